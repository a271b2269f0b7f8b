"""Ranks that do not make the same calls get one error each, and none waits for ever."""

from __future__ import annotations

import os
import re
import sys
import time
from types import SimpleNamespace

import pytest
from ranks import Ranks

from redistrib.errors import CommunicatorError, LeafError
from redistrib.launches.call_errors import described
from redistrib.launches.call_order import NumberedCall
from redistrib.launches.deadlocks import CallsState, RankState, RecentCall, circle_of_ranks, late, other_call, told

# Of two ranks that differ either may be the first that the others hear of.
OTHER = r"rank ({0} makes another call than rank \d|\d makes another call than rank {0}):"


@pytest.mark.parametrize(
    ("which", "words"),
    [
        ("two known calls", OTHER.format(2)),
        ("a new call", OTHER.format(4)),
        ("a wrong tensor", r"rank 3: the local tensor has shape \[2, 8\]"),
        ("wrong placements", OTHER.format(6) + ".*a call that is wrong"),
        ("compared by one", OTHER.format(5)),
        ("nothing travels", OTHER.format(1)),
        ("a tree", OTHER.format(7) + ".*reshard of 1 tensors"),
    ],
)
def test_one_error_on_every_rank(ranks: Ranks, which: str, words: str) -> None:
    said = ranks.run("calls.different", which, longest=90.0)
    assert all(one == said[0] for one in said), said
    assert re.search(words, said[0][0]), said[0][0]


WRONG = ("plain", "nested", "one", "mesh", "hosts", "few", "order", "orders", "limit", "model", "dtype", "back", "dim",
         "everyone", "no shape", "wrong twice")  # fmt: skip


@pytest.mark.parametrize("which", WRONG)
def test_an_error_before_the_meeting_is_told(ranks: Ranks, which: str) -> None:
    answers = ranks.run("calls.before_the_meeting", which, longest=90.0)
    assert len({said for said, _ in answers}) == 1, answers
    assert "no error" not in answers[0][0] and max(seconds for _, seconds in answers) < 20, answers


@pytest.mark.parametrize(("count", "seed"), [(4, 0), (8, 1)])
def test_a_table_of_disagreements(ranks: Ranks, count: int, seed: int) -> None:
    """Each is the same library error on all ranks within seconds, or right on all."""
    answers = ranks.run("calls.table", count, seed, longest=115.0)[:count]
    for case in zip(*answers, strict=True):
        kind = case[0][0]
        assert len({text for _, text, _ in case}) == 1, case
        assert case[0][1] != "no error", (kind, case)
        assert max(seconds for *_, seconds in case) < 20, case


@pytest.mark.parametrize(("count", "last", "other"), [(4, 2, 1), (8, 3, 6)])
def test_the_last_call_left_out(count: int, last: int, other: int) -> None:
    """The limit of all calls ends it, not that of the group, and the rank that left it out is told at its next one."""
    with Ranks(count) as launched:
        answers = launched.run("calls.left_out", other, last, 6.0, longest=90.0)
    assert len({said for said, _ in answers}) == 1, answers
    assert re.search(rf"rank {other} has not called redistribute of \[8, 16\] .* within 6 s; every rank", answers[0][0])
    assert max(seconds for rank, (_, seconds) in enumerate(answers) if rank != other) < 14, answers


def test_an_error_between_launches_is_told(ranks: Ranks) -> None:
    said = ranks.run("calls.stopped", 3, longest=90.0)
    assert said.pop(3) == "ValueError: enough" and len(set(said)) == 1, said
    assert "rank 3: progress= has raised ValueError enough" in said[0], said


def test_an_error_where_nobody_waits_yet(ranks: Ranks) -> None:
    ranks.run("calls.alone_and_late", longest=90.0)


def test_calls_in_another_order(ranks: Ranks) -> None:
    said = ranks.run("calls.in_another_order", longest=90.0)
    assert {said[rank] for rank in (2, 3)} == {said[2]} and "rank 3 makes another call than rank 2" in said[2]


@pytest.mark.parametrize(
    ("count", "which", "late"), [(2, "all", 6.0), (4, "all", 0.0), (2, "one", 0.0), (2, "one", 6.0), (4, "each", 6.0)]
)
def test_the_error_of_a_call_is_no_other_call_s(count: int, which: str, late: float) -> None:
    """An error in one rank alone does not shift its calls, though no barrier holds the ranks together."""
    with Ranks(count) as launched:
        by_rank = launched.run("calls.errors_in_a_row", which, late, longest=110.0)
    for function in zip(*by_rank, strict=True):
        for k, said in enumerate(zip(*function, strict=True)):
            assert {text == "no error" for text in said} == {k in (2, 4, 5)}, (k, function)
            assert k in (2, 4, 5) or re.search(rf"Number{k}|dim=1{k}|{k} apples", said[0]), (k, said)
            assert len({re.sub(r"^(\w+: )rank \d: ", r"\1", text) for text in said}) == 1, (k, said)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such policy")
def test_readers_of_sockets_take_no_core_from_a_rank_that_writes() -> None:
    """One that does spins for a time slice: pairs of 4 ranks on 2 cores took twice the time of DTensor."""
    with Ranks(2) as launched:
        for policies in launched.run("calls.readers"):
            assert policies and set(policies) == {os.SCHED_BATCH}, policies


def test_a_late_rank_is_waited_for(ranks: Ranks) -> None:
    assert ranks.run("calls.late", 4.0, longest=90.0) == ["no error"] * 8


@pytest.mark.parametrize(
    ("how", "timeout", "word"),
    [("is away", 1800.0, "within 4 s"), ("is away", 1.0, "within 4 s"), ("from the first", 1800.0, "within 4 s"),
     ("raises", 1800.0, "within 4 s"), ("ends", 1800.0, "its connection has ended")],
)  # fmt: skip
def test_one_rank_does_not_come(how: str, timeout: float, word: str) -> None:
    """The others are told within the limit of all calls, whether the process group has a longer or a shorter one."""
    with Ranks(4, timeout=timeout) as launched:
        begun = time.monotonic()
        answers = launched.answers("calls.missing", how, 4.0, longest=90.0, patience=20.0)
    said = [answers[rank][0] for rank in (0, 2, 3)]
    assert len(set(said)) == 1 and said[0].startswith("CommunicatorError: rank 1 has not called redistribute of"), said
    assert word in said[0] and "here the ranks [0, 1, 2, 3]" in said[0] and time.monotonic() - begun < 60, said


@pytest.mark.parametrize("how", ["prepared by all", "not prepared by one"])
def test_one_rank_does_not_come_to_a_plan(how: str) -> None:
    """The rank that is late is not named, and the group's own limit of 30 minutes does not count."""
    with Ranks(4) as launched:
        answers = launched.answers("calls.plan_missing", how, 4.0, longest=90.0, patience=20.0)
    said = {answers[rank][0] for rank in (0, 2, 3)}
    assert len(said) == 1 and next(iter(said)).startswith("CommunicatorError: rank 1 has not called the plan "), answers
    assert "within 4 s" in next(iter(said)), said


def _state(beat: int, *calls: CallsState) -> RankState:
    return RankState(beat, calls)


def _calls(members: tuple[int, ...], *digests: int, waits: bool = True, compares: bool = False) -> CallsState:
    recent = tuple(RecentCall(number, digest, f"call {digest}") for number, digest in enumerate(digests, 1))
    return CallsState(members, 0, recent, waits, compares)


def test_who_is_late_and_who_differs() -> None:
    pair = (0, 1)
    behind = {0: _state(1, _calls(pair, 5, 7)), 1: _state(1, _calls(pair, 5, waits=False))}
    assert other_call(behind) is None and late(behind, pair, 2, 0) == [1]
    differs = {0: _state(1, _calls(pair, 5, 7)), 1: _state(1, _calls(pair, 6, waits=False))}
    assert (verdict := other_call(differs)) is not None
    assert "rank 1 makes another call than rank 0" in str(verdict.problem)
    both_compare = {rank: _state(1, _calls(pair, 5, 6 + rank, compares=True)) for rank in pair}
    assert other_call(both_compare) is None  # they tell each other
    nobody_waits = {rank: _state(1, _calls(pair, 5 + rank, waits=False)) for rank in pair}
    assert other_call(nobody_waits) is None
    assert RankState.of_text(differs[0].to_text()) == differs[0]


def test_ranks_that_wait_in_a_circle() -> None:
    ring = {
        0: _state(1, _calls((0, 1), 1)),
        1: _state(1, _calls((1, 2), 2)),
        2: _state(1, _calls((0, 2), 3)),
    }
    assert circle_of_ranks(ring) == (
        (0, NumberedCall((0, 1), 1)), (1, NumberedCall((1, 2), 1)), (2, NumberedCall((0, 2), 1)),
    )  # fmt: skip
    ring[2] = _state(1, _calls((0, 2), 3, waits=False))
    assert not circle_of_ranks(ring)  # rank 2 computes, and will come


def test_the_error_of_a_rank_that_does_not_come_keeps_its_class() -> None:
    pair, problem = (0, 1), LeafError("a/b", "no target")
    raised = RankState(1, (), (described(problem, 1),))
    assert told({1: raised}) is None  # nobody waits for it
    end = told({0: _state(1, _calls(pair, 5)), 1: RankState.of_text(raised.to_text())})
    assert end is not None and end.calls == (NumberedCall(pair, 0),)
    assert isinstance(end.problem, LeafError) and str(end.problem) == f"rank 1: {problem}"


def test_the_store_of_a_group_keeps_what_is_put_and_says_when_it_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch.distributed as dist

    from redistrib.backends.torch import store

    kept = dist.HashStore()
    monkeypatch.setattr(store, "default_store", lambda: kept)
    texts = store.GroupStore()
    begun = time.monotonic()
    assert texts.get("a/b", 0.0) is None and texts.get("a/b", 0.2) is None and time.monotonic() - begun >= 0.2
    assert texts.put("a/b", "one") and not texts.put("a/b", "two") and texts.get("a/b", 0.0) == "one"
    assert texts.put("a/b", "two", replace=True) and texts.get("a/b", 0.0) == "two"
    assert kept.get("redistrib/a/b") == b"two" and texts.of_group("g").check(["a/b"]) is False

    def gone(*_: object) -> None:
        raise RuntimeError("Connection reset by peer\nmore")

    monkeypatch.setattr(store, "default_store", lambda: SimpleNamespace(check=gone, set=gone, compare_set=gone))
    for ask in (lambda s: s.get("a", 0.0), lambda s: s.put("a", "b"), lambda s: s.put("a", "b", replace=True)):
        with pytest.raises(
            CommunicatorError, match=r"store of the default process group does not answer: .* by peer; "
        ):
            ask(store.GroupStore())
