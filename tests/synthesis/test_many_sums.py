"""Partial sums over thousands of devices: their numbering, their bounds, and plans within seconds and little memory."""

from __future__ import annotations

import contextlib
import math
import tracemalloc
from itertools import chain, combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redistrib.errors import VerificationError
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.plans.steps import Unreduce
from redistrib.plans.verify_reductions import check_unreduce
from redistrib.synthesis.partial.numbering import assigned, chosen_near
from redistrib.synthesis.synthesize import synthesize
from redistrib.theory import bounds
from redistrib.theory.bounds import least_received
from redistrib.theory.placement import Placement, placement_of


@given(st.data())
def test_a_numbering_gives_every_row_one_column_and_is_heaviest_where_there_is_room(data: st.DataObject) -> None:
    tiles, sums = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 5))
    columns = data.draw(st.integers(1, sums))
    into = np.array(data.draw(st.lists(st.integers(0, 4), min_size=columns, max_size=columns)))
    weights = np.array(
        data.draw(
            st.lists(st.lists(st.integers(0, 6), min_size=5, max_size=5), min_size=tiles * sums, max_size=tiles * sums)
        )
    )
    row, place = np.nonzero(weights)
    column, has_room = chosen_near(row, place, weights[row, place].astype(float), into, (tiles, sums))
    rooms = []
    for tile in range(tiles):
        numbers, heights = column[tile * sums :][:sums], weights[tile * sums :][:sums]
        assert sorted(number for number in numbers if number >= 0) == list(range(columns))
        rows, chosen = assigned(heights[:, into].astype(float))
        taken = numbers >= 0
        total, most = heights[taken, into[numbers[taken]]].sum(), heights[rows, into[chosen]].sum()
        rooms.append(total == heights.max(axis=1).sum())
        assert total <= most
        assert not has_room or total == most
    is_tied = ((weights == weights.max(axis=1, keepdims=True)).sum(axis=1) > 1) & (weights.max(axis=1) > 0)
    assert all(rooms) if has_room else (is_tied.any() or not all(rooms))  # of places as heavy it tries one


def test_a_row_stays_at_its_column_where_nothing_is_gained() -> None:
    row, place = np.array([0, 1, 1, 2, 3]), np.array([0, 0, 1, 0, 1])
    into = np.array([0, 0, 1, 1])
    column, has_room = chosen_near(row, place, np.ones(5), into, (1, 4))
    assert (column.tolist(), has_room) == ([0, 1, 2, 3], False)
    column, has_room = chosen_near(row[:3], place[:3], np.ones(3), into[:2], (1, 2))
    assert (column.tolist(), has_room) == ([0, 1], True)


NO_MESSAGE = [  # source, target and mesh, of 512 and more sums; the last has many ways to cut its tile
    ("[512{data}4096, 4096]", "[4096, 4096] sum{data,model}", "data=8,model=128"),
    ("[2{a}24, 24]", "[24, 24] max{a,b}", "a=12,b=50"),
    ("[32{a}64, 64]", "[64, 64] sum{a,b}", "a=2,b=512"),
    ("[128{a}1024, 4096]", "[1024, 4096] sum{a,b}", "a=8,b=128"),
    ("[16, 16{a}256, 256]", "[16, 256, 256] sum{a,b}", "a=16,b=64"),
    ("[64{a}512, 64, 64]", "[512, 64, 64] sum{a,b}", "a=8,b=64,c=4"),
]


@pytest.mark.parametrize(("source", "target", "mesh"), NO_MESSAGE)
def test_sums_of_slices_of_what_devices_have_need_no_message(source: str, target: str, mesh: str) -> None:
    axes = Mesh.of(mesh)
    plan = synthesize(DistType.of(source), axes, DistType.of(target), axes)
    assert sum(plan.received) == 0


@pytest.mark.parametrize("counted", [1, 7])
def test_the_bound_to_partial_sums_is_the_same_in_however_many_turns_it_is_counted(
    counted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = np.random.default_rng(0)
    for _ in range(50):
        grid = (int(numbers.choice([1, 2, 4])), int(numbers.choice([1, 3])))
        index = np.stack([numbers.integers(0, n, 12) for n in grid], axis=1)
        before = Placement((8, 6), (4, 2), np.stack([numbers.integers(0, n, 12) for n in (4, 2)], axis=1))
        after = Placement((8, 6), grid, index, numbers.integers(0, 5, 12), 5, "sum")
        at_once = least_received(before, after)
        with monkeypatch.context() as patch:
            patch.setattr(bounds, "_LACKING", counted)
            assert least_received(before, after) == at_once


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("[1{model}8, 8, 128, 8{data}8192]", "[1{model}8, 8, 128, 8192] sum{data}"),
        ("[8192] sum{data}", "[8192] sum{data,model}"),
    ],
)
def test_sums_of_what_devices_have_need_no_message(source: str, target: str) -> None:
    mesh = Mesh.of("data=1024,model=8")
    plan = synthesize(DistType.of(source), mesh, DistType.of(target), mesh, dtype="bfloat16", model="v5p")
    assert [type(step) for step in plan.steps] == [Unreduce]
    assert sum(plan.received) == 0


@pytest.mark.parametrize("devices", [12, 256, 8192])
def test_a_cut_array_becomes_sums_with_zeros_beside_its_tiles(devices: int) -> None:
    """However many ways there are to cut a tile of the target."""
    mesh = Mesh.of({"data": devices})
    for source in (f"[2{{data}}{2 * devices}, 8, 128]", f"[8, 128, 2{{data}}{2 * devices}]"):
        start = DistType.of(source)
        end = DistType.of(f"[{', '.join(str(dim.size) for dim in start.dims)}] sum{{data}}")
        plan = synthesize(start, mesh, end, mesh, model="v5p")
        assert [type(step) for step in plan.steps] == [Unreduce]


def _forms(draw: st.DrawFn, mesh: Mesh, may_sum: bool) -> DistType:
    """A type of an array of 4 by 4 elements whose axes cut, sum, or replicate."""
    dims = [draw(st.sampled_from([None, 0, 1, *["sum"] * may_sum])) for _ in mesh.names]
    axes: dict[int, list[str]] = {}
    partial: list[str] = []
    for axis, dim in zip(draw(st.permutations(mesh.names)), dims, strict=True):
        if dim == "sum":
            partial.append(axis)
        elif dim is not None:
            axes.setdefault(int(dim), []).append(axis)
    cut = DistType.cut((4, 4), axes, mesh)
    return DistType(cut.dims, tuple(sorted(partial)), "sum") if partial else cut


@given(st.data())
def test_whatever_one_local_step_makes_takes_one_local_step(data: st.DataObject) -> None:
    """Where identity elements around some tiles, or in their place, give the target: all choices are tried."""
    mesh = Mesh.of({"a": 2, "b": 2})
    source = _forms(data.draw, mesh, data.draw(st.booleans()))
    target = _forms(data.draw, mesh, True)
    before, after = placement_of(source, mesh), placement_of(target, mesh)
    if after.summands == 1:
        return
    is_local = False
    for keeps in chain.from_iterable(combinations(range(4), count) for count in range(5)):
        with contextlib.suppress(VerificationError):
            check_unreduce(0, Unreduce(before, after, np.array(keeps, dtype=np.int64)))
            is_local = True
    plan = synthesize(source, mesh, target, mesh, model="v5p")
    if is_local:
        assert len(plan.steps) <= 1
        assert sum(plan.received) == 0


def test_a_gather_after_a_reduction_has_as_many_calls_as_are_fastest() -> None:
    mesh = Mesh.of({"data": 1024})
    ends = (DistType.of("[8192, 64] sum{data}"), DistType.of("[8192, 64]"))
    plan = synthesize(ends[0], mesh, ends[1], mesh, model="v5p")
    assert [step.kind for step in plan.steps] == ["reduce_scatter", "allgather", "allgather"]


def test_sums_over_65_536_devices_take_little_memory() -> None:
    mesh = Mesh.of("data=8192,model=8")
    ends = (DistType.of("[65536] sum{data}"), DistType.of("[65536] sum{data,model}"))
    tracemalloc.start()
    plan = synthesize(ends[0], mesh, ends[1], mesh)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sum(plan.received) == 0
    assert most < math.prod((1 << 10, mesh.size))  # a table of all pairs of sums takes 512 times as much
