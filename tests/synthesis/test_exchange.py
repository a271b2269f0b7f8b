"""Every implementation of one exchange leaves the same tiles, receives what it says, and verifies."""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import chain

import numpy as np
import pytest
from hypothesis import assume, given, settings

from redistrib.cost.latency import Latency, LatencyBandwidth
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.plans.plan import Plan
from redistrib.plans.steps import AllGather, AllToAll, Exchange, Step
from redistrib.plans.transfers import NeededParts
from redistrib.plans.verify import verify
from redistrib.synthesis import exchange, limits
from redistrib.synthesis.problem import Problem
from redistrib.synthesis.rounds import colour_rounds
from redistrib.testing import RedistributionCase, is_exact, redistributions
from redistrib.theory.boxes import Boxes
from redistrib.theory.placement import Placement
from redistrib.theory.topology import Topology

WAYS = {
    "as slice": exchange.as_slice,
    "as permute": exchange.as_permute,
    "as grouped collective": exchange.as_grouped_collective,
    "in rounds": lambda problem: _nth_rounds(0, problem),
    "in fewer rounds": lambda problem: _nth_rounds(1, problem),
    "in fewest rounds": lambda problem: _nth_rounds(2, problem),
    "all-to-all, then permute": lambda problem: exchange.dense_and_permuted(problem, permute_first=False),
    "permute, then all-to-all": lambda problem: exchange.dense_and_permuted(problem, permute_first=True),
    "whole, then sliced": exchange.whole_then_sliced,
}


def _nth_rounds(n: int, problem: Problem) -> list[Step] | None:
    ways = exchange.in_rounds(problem)
    return ways[n] if n < len(ways) else None


AT_THE_BOUND = ("as slice", "as permute", "as grouped collective", "in rounds")


def plan(pair: RedistributionCase, steps: list[Step]) -> Plan:
    return Plan(
        pair.source,
        pair.mesh,
        pair.target,
        pair.target_mesh,
        "float32",
        4,
        tuple(steps),
        "best",
        "exact",
        0,
        "elements",
    )


@given(redistributions())
@settings(max_examples=150)
def test_every_implementation_gives_the_same_tiles(pair: RedistributionCase) -> None:
    before, after = pair.before, pair.after
    for name, way in WAYS.items():
        steps = way(Problem.plain(before, after))
        if steps is None:
            continue
        found = plan(pair, steps)
        verify(found, bound=before.tile_size * before.tiles)
        assert is_exact(found), name
        if name in AT_THE_BOUND:
            assert found.received == found.lower_bound, name
            assert name == "in rounds" or found.collectives <= 1


@given(redistributions())
@settings(max_examples=100)
def test_the_direct_exchange_is_always_open_and_ragged_moves_the_same_shares(pair: RedistributionCase) -> None:
    ways = exchange.in_rounds(Problem.plain(pair.before, pair.after))
    assert ways
    for step in chain(*ways):
        if isinstance(step, Exchange):
            ragged = Exchange(step.before, step.after, step.shares, "ragged")
            found = plan(pair, [ragged])
            assert found.received == found.lower_bound
            assert step.shares.mixed or step.received() == ragged.received()
            verify(found, bound=step.before.tile_size * step.before.tiles)
            assert is_exact(found)


@given(redistributions())
@settings(max_examples=100)
def test_hosts_change_who_talks_to_whom_but_not_what_arrives(pair: RedistributionCase) -> None:
    before, after = pair.before, pair.after
    assume(before.devices % 2 == 0)
    problem = Problem.plain(before, after, Topology.consecutive(before.devices, before.devices // 2))
    for name, way in WAYS.items():
        steps = way(problem)
        if steps is not None:
            found = plan(pair, steps)
            verify(found, bound=before.tile_size * before.tiles)
            assert is_exact(found), name


@pytest.mark.parametrize(
    ("source", "target", "mesh", "kinds"),
    [
        ("[8{x}16, 4]", "[16, 2{x}4]", "x=2,y=2", [AllToAll]),
        ("[2{x,y}8]", "[8]", "x=2,y=2", [AllGather]),
        ("[4{x}8, 4{y}8]", "[8, 8]", "x=2,y=2", [AllGather]),  # two dimensions in one gather
        ("[2{x,y}8, 8]", "[8, 4{y}8]", "x=2,y=2", [AllToAll]),  # repeated shares: exchange and gather in one
    ],
)
def test_one_collective_does_it(source: str, target: str, mesh: str, kinds: list[type]) -> None:
    over = Mesh.of(mesh)
    found = RedistributionCase(DistType.of(source), DistType.of(target), over, over).plan()
    assert [type(step) for step in found.steps if step.collectives] == kinds
    assert found.received == found.lower_bound


def test_placements_that_do_not_close_have_no_dense_exchange() -> None:
    before = Placement((4,), (4,), np.array([[0], [1], [2], [3]]))
    after = Placement((4,), (2,), np.array([[0], [1], [0], [1]]))
    assert exchange.as_grouped_collective(Problem.plain(before, after)) is None
    assert exchange.in_rounds(Problem.plain(before, after))


MANY = (
    # swaps and a rotation whose shares are of many shapes, more than are arranged in several ways
    ("[40{x}1640, 41{y}1640]", "[41{y}1640, 40{x}1640]", "x=41,y=40"),
    ("[63{x}4032, 64{y}4032]", "[64{y}4032, 63{x}4032]", "x=64,y=63"),
    ("[143{x}1001, 91{y}1001, 77{z}1001]", "[91{y}1001, 77{z}1001, 143{x}1001]", "x=7,y=11,z=13"),
)


@pytest.mark.parametrize(("source", "target", "mesh"), MANY, ids=["41 x 40", "64 x 63", "7 x 11 x 13"])
def test_many_unequal_shares_are_received_once_each(source: str, target: str, mesh: str) -> None:
    over = Mesh.of(mesh)
    pair = RedistributionCase(DistType.of(source), DistType.of(target), over, over)
    assert not exchange.in_rounds(Problem.plain(pair.before, pair.after))
    found = pair.plan()
    assert found.received == found.lower_bound
    assert found.note is None
    assert "note:" not in str(found)


def test_where_shares_are_too_many_the_plan_says_so() -> None:
    """Counted, not timed: colouring is the one part of planning that looks at shares one by one."""
    over = Mesh.of("x=2,y=3,z=5,u=7,v=11")
    pair = RedistributionCase(
        DistType.of("[42{v,z}2310, 770{y}2310, 165{x,u}2310]"),
        DistType.of("[330{u}2310, 2310, 210{v}2310]"),
        over,
        over,
    )
    found = pair.plan()
    assert found.collectives <= 8
    assert sum(found.received) > sum(found.lower_bound)
    said = "the direct exchange, which receives the lower bound, has 131,760 boxes; more than 131,072 are not planned"
    assert found.note == said
    assert str(found).endswith(f"\nnote: {said}")
    again = Plan.from_json(found.to_json())
    assert again == found
    assert again.note is None
    assert pair.plan(model="tpu").note is None


def test_equal_shares_have_a_limit_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    over = Mesh.of("x=2,y=2,z=2,u=2")
    pair = RedistributionCase(DistType.of("[2{x,y}8, 2{z,u}8]"), DistType.of("[2{z,x}8, 2{u,y}8]"), over, over)
    assert exchange.direct(Problem.plain(pair.before, pair.after)) is not None
    monkeypatch.setattr(limits, "DIRECT_SHARES", exchange.share_count(Problem.plain(pair.before, pair.after)) - 1)
    assert exchange.direct(Problem.plain(pair.before, pair.after)) is None


@pytest.mark.filterwarnings("error")
def test_without_elements_nothing_travels() -> None:
    """Counts that do not nest would be cut into pieces of no extent."""
    before = Placement((0, 12), (4, 1), np.stack([np.arange(24) // 6, np.zeros(24, np.int64)], axis=1))
    after = Placement((0, 12), (6, 1), np.stack([np.arange(24) % 6, np.zeros(24, np.int64)], axis=1))
    (steps,) = exchange.in_rounds(Problem.plain(before, after))
    assert [step.collectives for step in steps] == [0]


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("[0{w}0, 1]", "[0, 1]"),
        ("[0{w}0, 6]", "[0, 1{w}6]"),
        ("[6, 0]", "[1{w}6, 0]"),
        ("[1{w}6, 0]", "[6, 0]"),
        ("[0{w}0]", "[0{w}0]"),
        ("[0, 0{w}0, 4]", "[0{w}0, 0, 4]"),
    ],
)
@pytest.mark.parametrize("algorithm", ["best", "paper"])
@pytest.mark.parametrize("model", ["exact", "tpu", "gpu"])
def test_an_empty_array_needs_no_collective(source: str, target: str, algorithm: str, model: str) -> None:
    over = Mesh.of("w=6")
    found = RedistributionCase(DistType.of(source), DistType.of(target), over, over).plan(algorithm, model)
    verify(found)
    assert is_exact(found)
    assert found.collectives == 0
    assert sum(found.received) == 0
    assert Plan.from_json(found.to_json()) == found


@pytest.mark.parametrize(
    ("source", "target", "mesh", "rounds"),
    [("[1{x}4]", "[4]", "x=4", 3), ("[4, 2{x}4]", "[2{x}4, 4]", "x=2,y=2", 1), ("[4, 2{y}4]", "[4, 4]", "x=2,y=2", 1)],
)
def test_what_a_device_holds_takes_no_round(source: str, target: str, mesh: str, rounds: int) -> None:
    """Every device holds a chunk of its tile and sends no more often than it receives: one round less than chunks."""
    over = Mesh.of(mesh)
    pair = RedistributionCase(DistType.of(source), DistType.of(target), over, over)
    (steps,) = exchange.in_rounds(Problem.plain(pair.before, pair.after))
    assert [step.collectives for step in steps] == [rounds]


def test_senders_on_one_host_share_the_load() -> None:
    """Two of six devices on a host hold what the others lack: two rounds, each of them sending twice."""
    before = Placement((2,), (2,), np.array([[0], [0], [1], [1], [1], [1]]))
    zeros = np.zeros((4, 1), np.int64)
    missing = NeededParts(np.arange(2, 6), zeros[:, 0], Boxes(zeros, zeros + 1))
    shares = colour_rounds(missing, before, Topology(6, (0,) * 6))
    assert sorted(shares.sender.tolist()) == [0, 0, 1, 1]
    assert shares.rounds == 2


SWAP = ("[{rows}{{x}}{n}, {columns}{{y}}{n}]", "[{columns}{{y}}{n}, {rows}{{x}}{n}]")


def _swap(n: int) -> RedistributionCase:
    over = Mesh.of("x=4,y=6")
    source, target = (text.format(n=n, rows=n // 4, columns=n // 6) for text in SWAP)
    return RedistributionCase(DistType.of(source), DistType.of(target), over, over)


def test_fewer_rounds_of_several_shapes_then_the_fewest_padded() -> None:
    """The swap on (4,6): six rounds of equal boxes, five of equal volumes, four padded, as many as a tile has parts."""
    pair = _swap(24)
    ways = [plan(pair, steps) for steps in exchange.in_rounds(Problem.plain(pair.before, pair.after))]
    assert [way.collectives for way in ways] == [6, 5, 4]
    bound = sum(ways[0].lower_bound)
    assert [sum(way.received) for way in ways[:2]] == [bound, bound]
    assert bound < sum(ways[2].received) <= 1.3 * bound
    shares = [next(step for step in way.steps if isinstance(step, Exchange)).shares for way in ways]
    assert [max(table.shapes()) > 1 for table in shares] == [False, True, True]


@pytest.mark.parametrize(("launch", "rounds"), [(0.0, 6), (1.0, 4)])
def test_the_cost_model_weighs_padding_against_rounds(launch: float, rounds: int) -> None:
    """With permutes alone to choose from, the price of a launch decides."""
    never = {kind: Latency(1e9) for kind in ("allgather", "alltoall")}
    model = LatencyBandwidth("permutes", {**never, "allpermute": Latency(launch)}, 1e6, 1e9)
    pair = _swap(24 * 6)
    found = pair.plan(model=model)
    assert found.collectives == rounds
    assert is_exact(found)


@given(redistributions())
@settings(max_examples=100)
def test_padding_is_what_is_received_beyond_the_shares(pair: RedistributionCase) -> None:
    for steps in exchange.in_rounds(Problem.plain(pair.before, pair.after)):
        for step in steps:
            if isinstance(step, Exchange):
                largest: dict[int, int] = defaultdict(int)
                rows = list(
                    zip(
                        step.shares.receiver.tolist(),
                        step.shares.round.tolist(),
                        step.shares.box.size.tolist(),
                        strict=True,
                    )
                )
                for _, number, size in rows:
                    largest[number] = max(largest[number], math.prod(size))
                counted = [0] * step.devices
                for dst, number, _ in rows:
                    counted[dst] += largest[number]
                assert step.received() == counted
                assert step.received_total() == sum(counted)
                assert step.round_sizes() == [largest[number] for number in range(step.shares.rounds)]
