"""Calls of processes, which are threads here, over a store as the coordinator of `jax.distributed` has it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import pytest

from redistrib.backends.jax.store import CoordinatorStore
from redistrib.errors import CommunicatorError, LeafError, RedistribError, TilesError
from redistrib.launches import liveness, times
from redistrib.launches.agreement import agree, of_ranks
from redistrib.launches.call_errors import CallsEnd
from redistrib.launches.call_order import NumberedCall, circle_of
from redistrib.launches.calls import Calls

DIFFERING = ("trees", "a hint")


class Store:
    """A store of threads, with the errors of the client of `jax.distributed`."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.changed = threading.Condition()
        self.barriers: dict[str, set[int]] = {}

    def key_value_set(self, key: str, value: str, allow_overwrite: bool = False) -> None:
        with self.changed:
            if key in self.values and not allow_overwrite:
                raise jax.errors.JaxRuntimeError(f"ALREADY_EXISTS: {key}")
            self.values[key] = value
            self.changed.notify_all()

    def blocking_key_value_get(self, key: str, timeout_in_ms: int) -> str:
        with self.changed:
            if not self.changed.wait_for(lambda: key in self.values, timeout_in_ms / 1000):
                raise jax.errors.JaxRuntimeError(f"DEADLINE_EXCEEDED: {key}")
            return self.values[key]

    def key_value_dir_get(self, key: str) -> list[tuple[str, str]]:
        assert key.endswith("/")
        with self.changed:
            return [(name, value) for name, value in self.values.items() if name.startswith(key)]

    def key_value_delete(self, key: str) -> None:
        with self.changed:
            for name in [name for name in self.values if name == key or (key[-1] == "/" and name.startswith(key))]:
                del self.values[name]

    def wait_at_barrier(self, barrier_id: str, timeout_in_ms: int, process_ids: list[int]) -> None:
        raise jax.errors.JaxRuntimeError("DEADLINE_EXCEEDED: threads have no barriers here")


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(times, "WAIT_SECONDS", 30.0)
    monkeypatch.setattr(times, "LOOK_SECONDS", 0.02)


Act = Callable[[Calls], Any]


def meets(processes: Sequence[int], record: str = "reshard a") -> Act:
    return lambda calls: calls.meet(tuple(processes), record, DIFFERING)


def fails(processes: Sequence[int], text: str = "gone") -> Act:
    def fail(calls: Calls) -> None:
        raise calls.fail(tuple(processes), "reshard", LeafError("w", text))

    return fail


def ends(calls: Calls) -> None:
    calls.end()


def told(*by_process: Sequence[Act], store: Store | None = None) -> list[list[str]]:
    """What the calls of every process raise, one after the other; empty texts for those that raise nothing."""
    store = store or Store()

    def run(process: int) -> list[str]:
        made = Calls(CoordinatorStore(store), process)
        results = []
        for act in by_process[process]:
            try:
                act(made)
                results.append("")
            except RedistribError as error:
                results.append(f"{type(error).__name__}: {error}")
        return results

    with ThreadPoolExecutor(len(by_process)) as pool:
        return list(pool.map(run, range(len(by_process))))


BOTH, ALL = (0, 1), (0, 1, 2, 3)


def test_equal_calls_go_on_and_leave_no_records_but_the_last() -> None:
    store = Store()
    assert told(*[[meets(ALL), meets(ALL, "reshard b"), meets(ALL)] * 3] * 4, store=store) == [[""] * 9] * 4
    left = [key for key in store.values if "/alive/" not in key]
    assert len(left) == 5  # four records and the end of the last call
    assert {key.partition("/")[0] for key in store.values} == {"redistrib"}  # apart from the keys of others


@pytest.mark.parametrize(
    ("by_process", "text"),
    [
        ([[meets(BOTH)], [meets(BOTH, "reshard b")]], "call reshard with different trees: reshard a in process 0"),
        ([[meets(BOTH)], [meets(BOTH, "load")]], "make different calls: reshard a in process 0, load in process 1"),
        ([[meets(BOTH)], [fails(BOTH)]], "LeafError: leaf w: gone"),
        ([[meets(BOTH)], [meets((0, 1, 2))], [meets((0, 1, 2))]], "wait for each other in different calls"),
        ([[meets(BOTH)], [fails((0, 1, 2))], [meets((0, 1, 2))]], "LeafError: leaf w: gone"),
        ([[meets((0, 1, 2))], [fails(BOTH)], [meets((0, 1, 2))]], "LeafError: leaf w: gone"),
        ([[meets((0, 1)), meets((0, 2))], [meets((1, 2)), meets((0, 1))], [meets((0, 2)), meets((1, 2))]], "wait for"),
        ([[meets(BOTH)], [ends]], "process 1 has ended, and not called reshard; every process that owns a device"),
        ([[meets(BOTH)], []], "process 1 has not called reshard within 0.5 s; every process"),
    ],
    ids=[
        "trees", "functions", "error", "sets", "error of another set", "error of fewer", "orders", "end", "absence",
    ],
)  # fmt: skip
def test_all_processes_raise_the_same(by_process: list[list[Act]], text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if "within" in text:
        monkeypatch.setattr(times, "WAIT_SECONDS", 0.5)
    started = time.monotonic()
    first = [messages[0] for messages in told(*by_process) if messages and messages[0]]
    assert len(set(first)) == 1 and text in first[0]
    assert time.monotonic() - started < 10


def test_calls_match_again_after_every_error() -> None:
    """An error in one process alone does not shift its calls: each has its own number."""
    three = (0, 1, 2)
    again = [meets(three, "reshard after"), meets(BOTH, "reshard pair")]
    acts = [
        [meets(three), *again, meets(BOTH), *again, meets(three, "load"), *again],
        [fails(three), *again, meets(three), *again, meets(three, "load"), *again],
        [meets(three), again[0], meets(three), again[0], meets(three, "save"), again[0]],
    ]
    results = told(*acts)
    assert all(not message for messages in results for message in messages if message.endswith("after"))
    assert [message for messages in results[:2] for message in messages].count("") == 12
    assert results[2][1::2] == ["", "", ""]
    assert results[0] == results[1]


def test_a_late_process_raises_the_same_and_then_matches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(times, "WAIT_SECONDS", 1.0)
    raised = threading.Event()
    after = [lambda _: raised.set(), meets(BOTH)]
    results = told([meets(BOTH), *after], [lambda _: raised.wait(), meets(BOTH), meets(BOTH)])
    assert results[0][0] == results[1][1] and "process 1 has not called reshard within 1 s" in results[0][0]
    assert results[0][2] == results[1][2] == ""


def test_a_move_that_is_broken_off_ends_in_all_processes() -> None:
    def breaks(made: Calls) -> None:
        raise made.break_off(BOTH, MemoryError("no room"))

    def waits(made: Calls) -> None:
        until = time.monotonic() + 60  # far longer than the other needs
        while time.monotonic() < until:
            made.require_whole(BOTH)

    first, other = told([meets(BOTH), breaks, meets(BOTH)], [meets(BOTH), waits, meets(BOTH)])
    assert first == other and first[0] == "" and first[1] == first[2]
    assert "did not finish a move between them: process 0: no room" in first[1]


def test_no_circle_among_drawn_calls_in_one_order() -> None:
    """Each process has come to the first few of the calls, in their order; any of them may be late."""
    import random

    for seed in range(200):
        draw = random.Random(seed)
        order = [NumberedCall(tuple(sorted(draw.sample(range(5), draw.randint(2, 4)))), k) for k in range(6)]
        came = [draw.randint(0, 6) for _ in range(5)]  # number of the calls to which each process has come
        records = {
            call: {process: "" for process in call.processes if came[process] > order.index(call)} for call in order
        }
        waiting = [(process, order[came[process] - 1]) for process in range(5) if came[process]]
        for process, call in waiting:
            if process in call.processes:
                lacking = {each: set(each.processes) - came.keys() for each, came in records.items()}
                assert circle_of(records, lacking, (process, call)) == ()


def test_processes_of_this_host_that_have_died() -> None:
    assert not liveness.has_died(liveness.identity())
    child = subprocess.Popen(
        [sys.executable, "-c", "from redistrib.launches import liveness; print(liveness.identity(), flush=True)"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    identity = child.stdout.readline().strip()
    child.kill()
    while os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT) is None:
        pass
    assert liveness.has_died(identity)  # though its parent has not asked for its end
    child.communicate()
    assert liveness.has_died(identity)
    host, pid, began = liveness.identity().split()
    assert liveness.has_died(f"{host} {pid} {int(began) + 1}")  # another process had the number
    assert not liveness.has_died(f"elsewhere {pid} {int(began) + 1}")
    assert not liveness.has_died("")


def test_of_two_errors_of_a_circle_the_first_that_is_written_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes see a circle at the same time, and one writes between a look and a write of the other."""
    store = Store()
    circle = [NumberedCall((0, 1), 0), NumberedCall((0, 2), 0)]
    calls, others = (Calls(CoordinatorStore(store), process) for process in (0, 1))
    write = store.key_value_set

    def write_late(key: str, value: str, allow_overwrite: bool = False) -> None:
        monkeypatch.setattr(store, "key_value_set", write)
        others._all_ended(circle[:1], CommunicatorError("of process 1"))
        write(key, value, allow_overwrite)

    monkeypatch.setattr(store, "key_value_set", write_late)
    end = calls._all_ended(circle, CommunicatorError("of process 0"))
    assert str(end.problem) == "of process 1"
    ends = [CallsEnd.from_json(value) for key, value in sorted(store.values.items()) if "ends/" in key]
    assert [str(each.problem) for each in ends] == ["of process 1"] * 2


def test_names_of_calls() -> None:
    for processes in ((0,), (0, 1), (0, 2, 3, 4, 9), tuple(range(1000))):
        assert NumberedCall.parse(NumberedCall(processes, 7).name) == NumberedCall(processes, 7)
    assert NumberedCall((0, 2, 3, 4, 9), 7).name == "0,2-4,9/7"


def test_a_coordinator_that_is_gone_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store()

    def unavailable(*_: Any) -> None:
        raise jax.errors.JaxRuntimeError("UNAVAILABLE: failed to connect\nmore")

    monkeypatch.setattr(store, "key_value_set", unavailable)
    with pytest.raises(CommunicatorError, match="does not answer: UNAVAILABLE: failed to connect; the job has ended"):
        Calls(CoordinatorStore(store), 0).meet(BOTH, "reshard a", DIFFERING)


def test_the_problem_of_a_rank_names_it_and_that_of_all_does_not() -> None:
    tile, same, call = TilesError("no tile"), TilesError("no tile"), CommunicatorError("freed")
    assert of_ranks([None, None]) is None
    cases = [None, tile, call], [tile, same], [None, call], [tile, call]
    assert [repr(of_ranks(problems)) for problems in cases] == [
        "TilesError('rank 1: no tile')", "TilesError('no tile')", "CommunicatorError('rank 1: freed')",
        "TilesError('rank 0: no tile')",
    ]  # fmt: skip


class Told(Exception):
    """What a rank would tell the others."""


def agreed(*ranks: dict[str, Any]) -> list[object]:
    """What each rank gets or raises that agrees with the others."""
    given = [{"problem": None, "call": {"plan": "7"}, "beside": f"of {k}"} | each for k, each in enumerate(ranks)]

    def told(text: str) -> list[str]:
        raise Told(text)

    def said(rank: int, gather: Callable[[str], Sequence[str]]) -> object:
        try:
            return agree(gather, rank, **given[rank])
        except (Told, RedistribError) as error:
            return error

    texts = [str(said(rank, told)) for rank in range(len(ranks))]
    return [said(rank, lambda _: texts) for rank in range(len(ranks))]


def test_ranks_agree_or_all_raise_one_error() -> None:
    assert agreed({}, {}) == [["of 0", "of 1"]] * 2
    leaf = LeafError("a/b", "no target")
    cases: list[tuple[tuple[dict[str, Any], ...], type[RedistribError], str]] = [
        (({}, {"problem": leaf}), LeafError, f"rank 1: {leaf}"),
        (({"problem": leaf},) * 2, LeafError, str(leaf)),
        (({}, {"problem": leaf}, {"call": {"plan": "8"}}), LeafError, f"rank 1: {leaf}"),
        (({}, {}, {"call": {"plan": "8"}}), CommunicatorError, "rank 2 gives another plan than rank 0; give the same "),
        (({}, {"call": {"program": "7"}}), CommunicatorError, "rank 1 gives another plan than rank 0; give the same "),
        (({"words": "scatter"}, {"words": "gather"}), CommunicatorError, "rank 1 makes another call than rank 0: gath"),
    ]
    for ranks, kind, words in cases:
        errors = agreed(*ranks)
        assert {(type(error), str(error)) for error in errors} == {(kind, str(errors[0]))}, errors
        assert str(errors[0]).startswith(words), errors
    one = agreed({}, {"problem": leaf})[0]
    assert isinstance(one, LeafError) and one.path == "a/b"
