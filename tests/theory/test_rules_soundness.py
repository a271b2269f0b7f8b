"""The typing rules against the meaning of types: sound, and no stricter than they must be."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redistrib.errors import TypeFormError
from redistrib.lang.mesh import Axis, Mesh
from redistrib.lang.types import DimType, DistType
from redistrib.theory.placement import Placement, number_of, placement_of
from tests.specification.errors import RuleError
from tests.specification.rules import (
    AllGatherRule,
    AllPermuteRule,
    AllToAllRule,
    AxesCollective,
    DynSliceRule,
    derive,
    reorder,
)


def types_on(mesh: Mesh, shape: tuple[int, ...]) -> Iterator[DistType]:
    """Every well-formed type of a global shape."""
    rank = len(shape)
    for places in itertools.product(range(-1, rank), repeat=len(mesh.axes)):
        cuts = [[name for name, place in zip(mesh.names, places, strict=True) if place == i] for i in range(rank)]
        counts = [math.prod(mesh.axis(name).size for name in cut) for cut in cuts]
        if all(size % count == 0 for size, count in zip(shape, counts, strict=True)):
            for axes in itertools.product(*(itertools.permutations(cut) for cut in cuts)):
                yield DistType(tuple(map(DimType, (s // c for s, c in zip(shape, counts, strict=True)), axes, shape)))


def collectives_on(mesh: Mesh, rank: int) -> Iterator[AxesCollective]:
    """Every collective over axes of the mesh, applicable or not."""
    for length in range(1, len(mesh.axes) + 1):
        for axes in itertools.permutations(mesh.names, length):
            for i in range(rank):
                yield AllGatherRule(i, axes)
                yield DynSliceRule(i, axes)
                for j in range(rank):
                    yield AllToAllRule(i, j, axes)


def groups(mesh: Mesh, axes: tuple[str, ...]) -> np.ndarray[Any, Any]:
    """`[groups, members]` device numbers that agree on all coordinates but those of `axes`."""
    kept = [k for k, name in enumerate(mesh.names) if name not in axes]
    keys: dict[tuple[int, ...], list[int]] = {}
    for device, row in enumerate(mesh.coordinates[:, kept].tolist()):
        keys.setdefault(tuple(row), []).append(device)
    return np.array(list(keys.values()))


def joined(fine: Placement, coarse: Placement, members: np.ndarray[Any, Any]) -> None:
    """In every group, the fine tiles are all different, lie in the coarse tile of each member, and fill it."""
    assert (fine.coarse(coarse.grid) == coarse.index).all()
    tiles = np.sort(fine.number[members], axis=1)
    assert (np.diff(tiles, axis=1) > 0).all()
    cells = coarse.number[members]
    assert (cells == cells[:, :1]).all()
    assert fine.tiles == coarse.tiles * members.shape[1]


def means_what_it_says(collective: AxesCollective, before: Placement, after: Placement, mesh: Mesh) -> None:
    """The placements before and after a collective are related as its name says; `mesh` is the one afterwards."""
    members = groups(mesh, collective.axes)
    match collective:
        case AllGatherRule():
            joined(before, after, members)
        case DynSliceRule():
            joined(after, before, members)
        case AllToAllRule():
            # a group holds one cell between them, cut one way before and the other way after
            assert before.tiles == after.tiles
            assert before.tile_size == after.tile_size
            grid = tuple(map(min, before.grid, after.grid))
            cell = Placement(before.shape, grid, before.coarse(grid))
            joined(before, cell, members)
            joined(after, cell, members)


LAW_MESHES = [("x=4", (8, 12)), ("x=2,y=3", (12, 6)), ("x=2,y=2,z=2", (8, 16)), ("x=4,y=6", (24, 12))]


@pytest.mark.parametrize(
    ("text", "shape"), [*LAW_MESHES, ("x=2,y=3", (6, 6, 6)), ("x=2,y=2", (0, 4)), ("x=1,y=2", (2, 4))]
)
@pytest.mark.parametrize("backwards", [False, True])
def test_rules_are_sound_and_no_stricter_than_the_meaning(text: str, shape: tuple[int, ...], backwards: bool) -> None:
    """Every collective on every type: if it applies, the meaning changes as it says; if not, the result is no type."""
    mesh = Mesh.of(text)
    if backwards:
        mesh = Mesh(mesh.axes, mesh.devices[::-1])
    applied = refused = 0
    for source in types_on(mesh, shape):
        before = placement_of(source, mesh)
        for collective in collectives_on(mesh, len(shape)):
            try:
                after, new_mesh = collective.lower(source, mesh)
            except RuleError:
                refused += 1
                assert not _conclusion_is_a_type(collective, source, mesh)
                with pytest.raises(RuleError):
                    collective.apply(source, mesh)
                continue
            applied += 1
            after.check(new_mesh)
            assert after.global_shape == source.global_shape
            means_what_it_says(collective, before, placement_of(after, new_mesh), new_mesh)
            _agrees_with_figure_8(collective, source, mesh, (after, new_mesh))
    assert applied
    assert refused


def _agrees_with_figure_8(
    collective: AxesCollective, source: DistType, mesh: Mesh, lowered: tuple[DistType, Mesh]
) -> None:
    taken = () if collective.takes_from is None else source.dims[collective.takes_from].axes
    if collective.takes_from is None or taken[: len(collective.axes)] == collective.axes:
        assert (collective.apply(source, mesh), mesh) == lowered
    else:
        with pytest.raises(RuleError) as caught:
            collective.apply(source, mesh)
        assert caught.value.rule == "axes not minor"


def _conclusion_is_a_type(collective: AxesCollective, source: DistType, mesh: Mesh) -> bool:
    """Whether taking the axes from one dimension and giving them to the other is possible and makes a type at all."""
    if collective.takes_from == collective.gives_to:
        return False
    cuts = [list(dim.axes) for dim in source.dims]
    if collective.takes_from is not None:
        if not set(collective.axes) <= set(cuts[collective.takes_from]):
            return False
        cuts[collective.takes_from] = [n for n in cuts[collective.takes_from] if n not in collective.axes]
    if collective.gives_to is not None:
        cuts[collective.gives_to] = [*collective.axes, *cuts[collective.gives_to]]
    try:
        dims = []
        for size, axes in zip(source.global_shape, cuts, strict=True):
            dims.append(DimType(size // math.prod(mesh.axis(n).size for n in axes), tuple(axes), size))
        DistType(tuple(dims)).check(mesh)
    except TypeFormError:
        return False
    return True


@pytest.mark.parametrize(("text", "shape"), [*LAW_MESHES, ("x=2,y=2", (0, 4)), ("x=2,y=4,z=2", (8, 4))])
def test_a_permute_applies_exactly_where_tiles_correspond_one_to_one(text: str, shape: tuple[int, ...]) -> None:
    mesh = Mesh.of(text)
    types = list(types_on(mesh, shape))
    applied = refused = 0
    for source, target in itertools.product(types, types):
        before, after = placement_of(source, mesh), placement_of(target, mesh)
        held = [np.bincount(p.number, minlength=p.tiles).tolist() for p in (before, after)]
        bijection = before.grid == after.grid and held[0] == held[1]
        try:
            assert AllPermuteRule(target).apply(source, mesh) == target
        except RuleError as error:
            assert error.rule == "permute tiles"
            refused += 1
            assert not bijection
        else:
            applied += 1
            assert bijection
    assert applied
    assert refused


@pytest.mark.parametrize(("text", "shape"), LAW_MESHES)
def test_reordering_axes_moves_no_data(text: str, shape: tuple[int, ...]) -> None:
    mesh = Mesh.of(text)
    rotated = Mesh(mesh.axes, (*mesh.devices[1:], mesh.devices[0]))
    for source in types_on(mesh, shape):
        for dim, side in enumerate(source.dims):
            for axes in itertools.permutations(side.axes):
                for on in (mesh, rotated):
                    after, new_mesh = reorder(source, on, dim, axes)
                    assert after.dims[dim].axes == axes
                    assert placement_of(after, new_mesh) == placement_of(source, on)


def test_several_axes_at_once_are_one_after_the_other() -> None:
    """Section 7.1: a multi-axis collective is the sequence of single-axis ones."""
    mesh = Mesh.of("x=2,y=3,z=2")
    start = DistType.parse("[2{x,y,z}24, 12]")
    whole = AllGatherRule(0, ("x", "y")).apply(start, mesh)
    assert (
        whole
        == derive(start, [AllGatherRule(0, ("x",)), AllGatherRule(0, ("y",))], mesh)[-1]
        == DistType.parse("[12{z}24, 12]")
    )
    assert DynSliceRule(0, ("x", "y")).apply(whole, mesh) == start
    assert derive(whole, [DynSliceRule(0, ("y",)), DynSliceRule(0, ("x",))], mesh)[-1] == start
    at_once = AllToAllRule(0, 1, ("x", "y")).apply(start, mesh)
    assert at_once == DistType.parse("[12{z}24, 2{x,y}12]")
    assert derive(start, [AllToAllRule(0, 1, ("x",)), AllToAllRule(0, 1, ("y",))], mesh)[-1] == DistType.parse(
        "[12{z}24, 2{y,x}12]"
    )


def test_axes_that_are_not_side_by_side() -> None:
    """From axes of sizes 2, 3, 2 in one dimension, a gather by 4 takes the first and the last."""
    mesh = Mesh.of("a=2,b=3,c=2")
    source = DistType.parse("[1{a,b,c}12]")
    after, on = AllGatherRule(0, ("a", "c")).lower(source, mesh)
    assert (str(after), on == mesh) == ("[4{b}12]", False)
    means_what_it_says(AllGatherRule(0, ("a", "c")), placement_of(source, mesh), placement_of(after, on), on)
    other, there = AllGatherRule(0, ("c", "a")).lower(source, mesh)
    assert str(other) == "[4{b}12]"
    # the cell a device ends with is the same: which four tiles are neighbours does not depend on the order
    assert placement_of(other, there) == placement_of(after, on)


@st.composite
def walks(draw: st.DrawFn) -> tuple[Mesh, DistType, list[AxesCollective]]:
    """A mesh, a type on it, and collectives that may or may not apply."""
    sizes = draw(st.lists(st.sampled_from([1, 2, 3, 4, 5]), min_size=1, max_size=4))
    total = math.prod(sizes)
    axes = tuple(Axis(name, size) for name, size in zip("wxyz", sizes, strict=False))
    mesh = Mesh(axes, tuple(draw(st.permutations(range(total)))))
    rank = draw(st.integers(1, 3))
    cuts: list[list[str]] = [[] for _ in range(rank)]
    for name in draw(st.permutations(mesh.names)):
        place = draw(st.integers(-1, rank - 1))
        if place >= 0:
            cuts[place].append(name)
    dims = []
    for cut in cuts:
        count = math.prod(mesh.axis(name).size for name in cut)
        tile = draw(st.sampled_from([1, 2, 6, 12, 60]))
        dims.append(DimType(tile, tuple(cut), tile * count))
    steps: list[AxesCollective] = []
    for _ in range(draw(st.integers(1, 4))):
        names = tuple(draw(st.lists(st.sampled_from(mesh.names), min_size=1, max_size=3, unique=True)))
        i, j = draw(st.integers(0, rank - 1)), draw(st.integers(0, rank - 1))
        steps.append(
            draw(st.sampled_from([AllGatherRule(i, names), DynSliceRule(i, names), AllToAllRule(i, j, names)]))
        )
    return mesh, DistType(tuple(dims)), steps


@given(walks())
def test_sequences_of_low_level_rules_are_sound(walk: tuple[Mesh, DistType, list[AxesCollective]]) -> None:
    mesh, at, steps = walk
    for step in steps:
        before = placement_of(at, mesh)
        try:
            at, mesh = step.lower(at, mesh)
        except RuleError:
            continue
        means_what_it_says(step, before, placement_of(at, mesh), mesh)


@given(walks())
def test_a_sequence_ends_a_permute_away_from_its_type_on_the_first_mesh(
    walk: tuple[Mesh, DistType, list[AxesCollective]],
) -> None:
    """Equation (7): what device maps have drifted apart, one final permute brings home."""
    home, at, steps = walk
    mesh = home
    for step in steps:
        try:
            at, mesh = step.lower(at, mesh)
        except RuleError:
            continue
    final, onto = AllPermuteRule(at, onto=home).lower(at, mesh)
    assert (final, onto) == (at, home)
    drifted, wanted = placement_of(at, mesh), placement_of(final, onto)
    assert sorted(drifted.number.tolist()) == sorted(wanted.number.tolist())
    assert (number_of(wanted.index, wanted.grid) == wanted.number).all()
