"""What the typing rules say of types is what collectives do to placements.

`rules` and `placement` know nothing of each other. A rule names axes; the collective it stands for acts among the
devices that differ in those axes only. Run on real tiles, it must leave every device with the tile that the type after
it means.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.plans.plan import Plan
from redistrib.plans.reference import run, scatter
from redistrib.plans.steps import AllGather, AllPermute, AllToAll, DynSlice, Step
from redistrib.plans.verify import verify
from redistrib.synthesis.groups import permutation_pairs
from redistrib.testing import cut_type, cuts, meshes, numbered
from redistrib.theory.placement import Placement, placement_of
from redistrib.theory.weak import WeakSpace, edges
from tests.specification import rules
from tests.specification.errors import RuleError


@st.composite
def applications(draw: st.DrawFn) -> tuple[rules.AxesCollective, DistType, Mesh]:
    """A type and a collective on some of its axes; the rules may or may not allow it."""
    mesh = draw(meshes(max_devices=16, shuffled=True).filter(lambda mesh: mesh.axes))
    rank = draw(st.integers(1, 3))
    cut = draw(cuts(mesh, rank))
    # In a roomy array every slice and exchange divides, in the other few do.
    tight = [math.prod(mesh.axis(name).size for name in names) for names in cut]
    shape = tight if draw(st.booleans()) else [size * mesh.size for size in tight]
    before = cut_type(mesh, shape, cut)
    kind = draw(st.sampled_from(["gather", "slice", "exchange", "exchange"]))
    dims = st.integers(0, rank - 1)
    dim = draw(st.sampled_from([i for i in range(rank) if cut[i]] or [0])) if kind != "slice" else draw(dims)
    cutting = cut[dim]
    free = [name for name in mesh.names if name not in before.axes]
    pool = free if kind == "slice" else cutting
    if not pool:
        pool = mesh.names
    if draw(st.booleans()):
        axes = tuple(pool[: draw(st.integers(1, len(pool)))])
    else:
        axes = tuple(draw(st.lists(st.sampled_from(list(pool)), min_size=1, unique=True)))
    if kind == "gather":
        return rules.AllGatherRule(dim, axes), before, mesh
    if kind == "slice":
        return rules.DynSliceRule(dim, axes), before, mesh
    return rules.AllToAllRule(dim, draw(dims), axes), before, mesh


def groups_along(mesh: Mesh, axes: tuple[str, ...], before: Placement) -> np.ndarray:
    """Devices that differ in the coordinates along `axes` only, one group a row, ordered by the tiles they hold."""
    fixed = [k for k, name in enumerate(mesh.names) if name not in axes]
    members: dict[tuple[int, ...], list[int]] = {}
    for device in range(mesh.size):
        members.setdefault(tuple(mesh.coordinates[device, fixed].tolist()), []).append(device)
    return np.array([sorted(group, key=lambda d: before.number[d]) for group in members.values()])


def step_of(collective: rules.AxesCollective, mesh: Mesh, before: Placement, after: Placement) -> Step:
    match collective:
        case rules.DynSliceRule():
            return DynSlice(before, after)
        case rules.AllGatherRule():
            return AllGather(before, after, groups_along(mesh, collective.axes, before))
        case _:
            return AllToAll(before, after, groups_along(mesh, collective.axes, before))


def carried_out(step: Step, source: tuple[DistType, Mesh], target: tuple[DistType, Mesh]) -> bool:
    plan = Plan(*source, *target, "int64", 8, (step,), "by hand", "exact", 0, "elements")
    verify(plan, bound=10**9)
    whole = numbered(plan.shape)
    tiles = run(plan, scatter(whole, step.before))
    return all(np.array_equal(got, want) for got, want in zip(tiles, scatter(whole, step.after), strict=True))


@given(applications())
def test_figure_8(case: tuple[rules.AxesCollective, DistType, Mesh]) -> None:
    collective, dist_type, mesh = case
    try:
        result = collective.apply(dist_type, mesh)
    except RuleError as error:
        event(error.rule)
        return
    event(f"{collective.name} applies")
    result.check(mesh)
    assert result.global_shape == dist_type.global_shape
    before, after = placement_of(dist_type, mesh), placement_of(result, mesh)
    # Only the devices that differ in the collective's axes take part, whatever else the mesh has.
    if before != after:
        assert carried_out(step_of(collective, mesh, before, after), (dist_type, mesh), (result, mesh))


@given(applications())
def test_figure_10(case: tuple[rules.AxesCollective, DistType, Mesh]) -> None:
    """The axes may stand anywhere; the groups then follow the new device map."""
    collective, dist_type, mesh = case
    try:
        result, onto = collective.lower(dist_type, mesh)
    except RuleError as error:
        event(error.rule)
        return
    event(f"{collective.name} lowers")
    result.check(onto)
    before, after = placement_of(dist_type, mesh), placement_of(result, onto)
    if before != after:
        assert carried_out(step_of(collective, onto, before, after), (dist_type, mesh), (result, onto))


@given(applications())
def test_figure_10_allows_whatever_figure_8_does_and_says_the_same(
    case: tuple[rules.AxesCollective, DistType, Mesh],
) -> None:
    collective, dist_type, mesh = case
    try:
        result = collective.apply(dist_type, mesh)
    except RuleError:
        return
    lowered, onto = collective.lower(dist_type, mesh)
    assert placement_of(lowered, onto) == placement_of(result, mesh)


@given(applications())
def test_every_typed_collective_is_an_edge_of_the_weak_graph(
    case: tuple[rules.AxesCollective, DistType, Mesh],
) -> None:
    collective, dist_type, mesh = case
    try:
        result, onto = collective.lower(dist_type, mesh)
    except RuleError:
        return
    before, after = placement_of(dist_type, mesh), placement_of(result, onto)
    if before.grid != after.grid:
        space = WeakSpace(before.shape, mesh.size, before.tile_size * before.tiles)
        kinds = {"allgather": "allgather", "dynslice": "dynslice", "alltoall": "alltoall"}
        assert after.grid in {edge.target for edge in edges(space, before.grid, (kinds[collective.name],))}  # type: ignore[arg-type]


@given(st.data())
def test_permutes_type_iff_a_permutation_leads_from_one_to_the_other(data: st.DataObject) -> None:
    """T-Permute with the premises that the paper leaves out, and Lemma 5.1."""
    mesh = data.draw(meshes(max_devices=16))
    rank = data.draw(st.integers(1, 2))
    shape = (mesh.size,) * rank
    source, target = (cut_type(mesh, shape, data.draw(cuts(mesh, rank))) for _ in range(2))
    before, after = placement_of(source, mesh), placement_of(target, mesh)
    same_tiles = sorted(before.start.tolist()) == sorted(after.start.tolist()) and before.tile == after.tile
    if same_tiles:
        assert rules.AllPermuteRule(target).apply(source, mesh) == target
        if before != after:
            step = AllPermute(before, after, permutation_pairs(before, after))
            assert carried_out(step, (source, mesh), (target, mesh))
    else:
        with pytest.raises(RuleError):
            rules.AllPermuteRule(target).apply(source, mesh)
