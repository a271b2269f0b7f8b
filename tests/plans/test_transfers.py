"""What a step moves, against what the reference interpreter does with real tiles."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redistrib.errors import PlanFormError
from redistrib.lang.mesh import Mesh
from redistrib.plans import reference, verify
from redistrib.plans.reduction import Accumulator
from redistrib.plans.reference import Tile, run_step, scatter
from redistrib.plans.senders import Senders, SendingRule
from redistrib.plans.steps import AllPermute, AllReduce, AllToAll, DynSlice, Exchange, ReduceExchange, Step, Unreduce
from redistrib.plans.transfers import Transfers, lacking, lacking_by_box
from redistrib.synthesis.exchange import in_rounds
from redistrib.synthesis.problem import Problem
from redistrib.synthesis.synthesize import synthesize
from redistrib.testing import RedistributionCase, all_types, numbered, plans, redistributions
from redistrib.theory.boxes import Box, Boxes
from redistrib.theory.placement import Placement
from tests.messages import exactly
from tests.plans.hand import GOOD, place, shares
from tests.plans.hand_partial import PARTIAL, pulled_sums


def window(box: Box, placement: Placement, device: int) -> tuple[slice, ...]:
    """A box as an index into the tile of a device, in which it must lie."""
    assert box.volume
    assert box.meet(placement.box(device)) == box
    offset = box.moved(tuple(-s for s in placement.box(device).start)).start
    return tuple(slice(o, o + n) for o, n in zip(offset, box.size, strict=True))


def carried_out(step: Step, table: Transfers, tiles: Sequence[Tile]) -> list[Tile]:
    """The tiles after a step, every element written once: what stays, and what each message brings."""
    result = [np.zeros(step.after.tile, dtype=tile.dtype) for tile in tiles]
    times = [np.zeros(step.after.tile, dtype=int) for _ in tiles]
    stays = [(d, d, box) for d, box in enumerate(step.retained().rows()) if box.volume]
    travels = zip(table.sender.tolist(), table.receiver.tolist(), table.box.rows(), strict=True)
    for sender, receiver, box in [*stays, *travels]:
        target = window(box, step.after, receiver)
        result[receiver][target] = tiles[sender][window(box, step.before, sender)]
        times[receiver][target] += 1
    assert all((count == 1).all() for count in times)
    return result


def check(step: Step) -> None:
    """All that must hold of the messages of a step."""
    table = step.transfers()
    contents = scatter(numbered(step.before.shape), step.before)
    origins = [np.full(step.before.tile, device) for device in range(step.devices)]
    for tiles in (contents, origins):
        for got, expected in zip(carried_out(step, table, tiles), run_step(step, tiles), strict=True):
            np.testing.assert_array_equal(got, expected)

    check_table(step, table)


def check_table(step: Step, table: Transfers) -> None:
    """What is received, the rounds, and what is told of one device."""
    volumes, rounds = table.box.volumes(), table.round.tolist()
    largest = [max(v for v, r in zip(volumes, rounds, strict=True) if r == number) for number in range(table.rounds)]
    padded = isinstance(step, Exchange | ReduceExchange) and step.implementation == "rounds"
    received = [0] * step.devices
    for device, volume, number in zip(table.receiver.tolist(), volumes, rounds, strict=True):
        received[device] += largest[number] if padded else volume
    assert received == step.received()

    assert not (table.sender == table.receiver).any()
    for side in (table.sender, table.receiver):
        assert set(Counter(zip(rounds, side.tolist(), strict=True)).values()) <= {1}
    for device in range(step.devices):
        check_part(table, step.transfers(device), device)


def check_part(table: Transfers, part: Transfers, device: int) -> None:
    """What is told of one device is what is told of it among all."""
    mine = (table.sender == device) | (table.receiver == device)

    def rows(table: Transfers) -> list[tuple[int, int, int, Box]]:
        columns = (table.round.tolist(), table.sender.tolist(), table.receiver.tolist(), table.box.rows())
        return list(zip(*columns, strict=True))

    every = [row for row, taken in zip(rows(table), mine.tolist(), strict=True) if taken]
    assert sorted(rows(part), key=lambda row: row[:3]) == sorted(every, key=lambda row: row[:3])
    assert sorted(part.sends(device), key=str) == sorted(table.sends(device), key=str)
    assert part.sends(device) == [(to, box) for _, of, to, box in rows(part) if of == device]
    assert part.receives(device) == [(of, box) for _, of, to, box in rows(part) if to == device]


@pytest.mark.parametrize("name", GOOD)
def test_steps_by_hand(name: str) -> None:
    for step in GOOD[name]().steps:
        check(step)


def added_up(step: Step, table: Transfers, tiles: Sequence[Tile]) -> list[Tile]:
    """The tiles after a step: the sum, or what the reduction is, of what stays and what each message brings."""
    reduction = step.before.reduction or step.after.reduction or "sum"
    totals = [Accumulator(step.after.tile, tile.dtype, reduction) for tile in tiles]
    stays = [(d, d, box) for d, box in enumerate(step.retained().rows()) if box.volume]
    travels = zip(table.sender.tolist(), table.receiver.tolist(), table.box.rows(), strict=True)
    for sender, receiver, box in [*stays, *travels]:
        target = window(box, step.after, receiver)
        totals[receiver].add([part.start for part in target], tiles[sender][window(box, step.before, sender)])
    return [total.result() for total in totals]


@pytest.mark.parametrize("name", PARTIAL)
def test_summands_by_hand(name: str) -> None:
    for step in PARTIAL[name]().steps:
        if isinstance(step, AllReduce):
            with pytest.raises(
                PlanFormError,
                match=exactly(
                    "what travels in a step all_reduce is left to the platform; a reduce_scatter and an "
                    "allgather do the same and say what travels"
                ),
            ):
                step.transfers()
            continue
        check_sums(step)


def check_sums(step: Step) -> None:
    table = step.transfers()
    shape = step.before.stacked().shape if step.before.summands > 1 else step.before.shape
    tiles = scatter(np.random.default_rng(1).integers(1, 10**9, shape), step.before)
    for got, expected in zip(added_up(step, table, tiles), run_step(step, tiles), strict=True):
        np.testing.assert_array_equal(got, expected)
    check_table(step, table)


def test_summands_that_do_not_stay_where_they_are() -> None:
    """Two devices make sums of summands of which they hold none; two others swap theirs of one tile."""
    check_sums(pulled_sums(place("[4] sum{x,y}", "x=2,y=2"), place("[4] sum{x}", "x=2,y=2")))
    before = place("[4] sum{x}", "x=2")
    after = before.renumbered([1, 0])
    check_sums(Exchange(before, after, shares((0, 1, 0, [0], [4]), (1, 0, 0, [0], [4]))))


def test_a_scalar_that_is_given_up_is_refused() -> None:
    step = Unreduce(place("[]", "x=2"), place("[] sum{x}", "x=2"), np.array([0]))
    with pytest.raises(
        PlanFormError, match=exactly("a box of rank 0 is never empty, so none says that a device gives up its scalar")
    ):
        step.retained()


@settings(max_examples=150)
@given(plans(max_devices=12))
def test_steps_of_any_plan(plan) -> None:
    for step in plan.steps:
        check(step)


@settings(max_examples=50)
@given(redistributions(max_devices=12, max_size=2_000))
def test_direct_exchanges(case: RedistributionCase) -> None:
    for (step,) in in_rounds(Problem.plain(case.before, case.after)):
        assert isinstance(step, Exchange)
        check(step)
        check(replace(step, implementation="ragged"))


def test_all_pairs_of_types_on_small_meshes() -> None:
    found: set[str] = set()
    for axes, shape in (("x=2,y=2", (4, 2)), ("x=2,y=3", (6,)), ("x=4", (4, 4))):
        mesh = Mesh.of(axes)
        for source, target in product(list(all_types(mesh, shape)), repeat=2):
            for algorithm, model in (("best", "exact"), ("paper", "paper")):
                for step in synthesize(source, mesh, target, mesh, algorithm=algorithm, model=model).steps:
                    found.add(step.kind)
                    check(step)
    assert found == {"dynslice", "allgather", "alltoall", "allpermute", "exchange"}


def test_a_device_that_is_sent_its_tile_keeps_nothing() -> None:
    """Device 1 holds already what device 0 sends it; the permute brings it all the same."""
    whole = place("[4]", "x=2")
    step = AllPermute(whole, whole, [[0, 1]])  # type: ignore[arg-type]
    assert step.retained().rows() == [Box((0,), (4,)), Box((0,), (0,))]
    assert step.transfers().receives(1) == [(0, Box((0,), (4,)))]


def test_a_slice_moves_nothing() -> None:
    step = DynSlice(place("[4]", "x=2"), place("[2{x}4]", "x=2"))
    table = step.transfers()
    assert (len(table.sender), table.rounds) == (0, 0)
    assert step.retained().rows() == [Box((0,), (2,)), Box((2,), (2,))]


def test_nothing_travels_of_an_array_without_elements() -> None:
    table = AllToAll(place("[0{x}0, 4]", "x=2"), place("[0, 2{x}4]", "x=2"), [[0, 1]]).transfers()  # type: ignore[arg-type]
    assert (len(table.sender), table.rounds) == (0, 0)


@pytest.mark.parametrize("path", sorted([*Path(verify.__file__).parent.glob("verify*.py"), Path(reference.__file__)]))
def test_who_judges_a_step_does_not_ask_it_what_it_moves(path: Path) -> None:
    asked = {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
    assert not asked & {"transfers", "retained", "received", "sent", "crossing"}


@given(st.data())
def test_what_a_device_lacks_comes_from_devices_that_hold_it(data: st.DataObject) -> None:
    """Tiles are of any size, boxes may overlap, and a device may need several."""
    shape = (7, 5)
    cuts = tuple((0, *sorted(data.draw(st.sets(st.integers(1, size - 1)))), size) for size in shape)
    grid = (len(cuts[0]) - 1, len(cuts[1]) - 1)
    rows = [*np.ndindex(*grid), *data.draw(st.lists(st.tuples(*(st.integers(0, n - 1) for n in grid)), max_size=9))]
    source = Placement(shape, grid, np.array(rows), cuts=cuts)
    holders = data.draw(st.permutations(range(10, 10 + len(rows))))
    edges = [st.tuples(st.integers(0, size), st.integers(0, size)).map(sorted).map(tuple) for size in shape]
    needed = [Box.between(each) for each in data.draw(st.lists(st.tuples(*edges), max_size=6))]
    start, size = (np.array([getattr(b, name) for b in needed], np.int64).reshape(-1, 2) for name in ("start", "size"))
    boxes = Boxes(start, size)
    receivers = data.draw(st.lists(st.integers(8, 14), min_size=len(needed), max_size=len(needed)))
    side = dict(enumerate(data.draw(st.lists(st.integers(0, 2), min_size=60, max_size=60))))
    senders = data.draw(st.sampled_from([Senders(), Senders(side)]))
    table, number, row = lacking_by_box(source, holders, boxes, receivers, senders)
    every = table.rows()
    assert len({(each.receiver, each.box) for each in every}) == len(every) == len({*row.tolist()})
    held = dict(zip(holders, source.boxes.rows(), strict=True))
    for k, (receiver, box) in enumerate(zip(receivers, needed, strict=True)):
        got = np.zeros(shape, int)
        for each in (every[r] for r in row[number == k].tolist()):
            assert each.receiver == receiver and each.box.volume and each.box.lies_in(held[each.sender])
            assert each.sender == receiver or not (receiver in held and each.box.lies_in(held[receiver]))
            got[each.box.slices()] += 1
        assert (got[box.slices()] == 1).all() and got.sum() == box.volume
    assert table.round.tolist() == sorted(set(table.round.tolist()))
    if len(set(receivers)) == len(receivers) and not senders._side:
        assert lacking(source, holders, boxes, receivers) == table


@given(st.lists(st.tuples(st.integers(8, 15), st.integers(1, 6)), max_size=20), st.booleans())
def test_who_has_sent_least_sends_beside_the_receiver_if_it_can(needed: list[tuple[int, int]], sides: bool) -> None:
    """Of two tables: the loads of the holders that may send to the same devices differ by a box at most."""
    source = Placement((6,), (1,), np.zeros((5, 1), np.int64))
    side = {k: k % 4 for k in range(16)}  # the holders 0 to 4 are on the sides 0, 1, 2, 3 and 0
    senders = Senders(side) if sides else Senders()
    boxes = Boxes(np.zeros((len(needed), 1), np.int64), np.array([[n] for _, n in needed], np.int64).reshape(-1, 1))
    sent = [0] * 5
    for itemsize in (1, 4):
        for row in lacking_by_box(source, range(5), boxes, [to for to, _ in needed], senders, itemsize)[0].rows():
            able = [d for d in range(5) if not sides or side[d] == side[row.receiver]]
            assert row.sender == min(able, key=lambda d: (sent[d], d))
            sent[row.sender] += row.box.volume * itemsize


def test_a_side_without_a_holder_receives_from_another() -> None:
    source = Placement((4,), (2,), np.array([[0], [1], [0]]))
    table = lacking_by_box(
        source, range(3), Boxes.of([Box((0,), (4,))] * 2), [3, 4], Senders(dict(enumerate([0, 0, 1, 1, 2])))
    )[0]
    assert [(row.sender, row.receiver) for row in table.rows()] == [(2, 3), (1, 3), (0, 4), (1, 4)]


@pytest.mark.parametrize(
    ("rule", "sent"), [("in turn", [0, 0, 0, 0]), ("spread", [1, 0, 0, 1]), ("stay", [1, 0, 0, 0])]
)
def test_rules_differ_in_who_comes_first_and_who_may_send_more(rule: SendingRule, sent: list[int]) -> None:
    """The first receiver is on a side of its own, the others on that of holder 0; each holder may send twice."""
    side = {0: 0, 1: 1, 2: 2, 3: 0, 4: 0, 5: 0}
    source = Placement((4,), (1,), np.zeros((2, 1), np.int64))
    receivers = np.array([2, 3, 4, 5])
    assert Senders(side, rule=rule).of(source, [0, 1], receivers, np.zeros(4, np.int64), [1] * 4) == sent
