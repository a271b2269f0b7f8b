"""What the typing rules say of summands is what steps do to them: every type, rule and set of axes on small meshes.

`rules` and `reductions` know nothing of `placement`. A rule names axes; the step it stands for acts among the devices
that differ in those axes only. Run on real summands, it must leave every device with a tile that, with those of the
others, makes the array again in the way that the type after it says.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest

from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.plans.plan import Plan
from redistrib.plans.reference import assemble, run, scatter
from redistrib.plans.steps import AllReduce, ReduceScatter, Step, Unreduce
from redistrib.plans.verify import verify
from redistrib.testing import all_partial_types
from redistrib.theory.placement import Placement, placement_of
from tests.laws.test_rules_agree_with_semantics import groups_along
from tests.laws.test_rules_agree_with_semantics import step_of as moving_step
from tests.messages import exactly
from tests.specification import reductions, rules
from tests.specification.errors import RuleError
from tests.specification.weak_partial import PartialSpace, State, edges

MESHES = [Mesh.of("x=4"), Mesh.of("x=2,y=2"), Mesh.of("x=2,y=3")]
SHAPES = [(), (12,), (12, 6)]
COMBINE = {"sum": np.sum, "max": np.max, "min": np.min, None: np.sum}


def collectives(mesh: Mesh, rank: int, kind: str) -> Iterator[rules.AxesCollective]:
    """All that could be done along every list of axes, allowed or not."""
    for count in range(1, len(mesh.names) + 1):
        for axes in itertools.permutations(mesh.names, count):
            yield reductions.AllReduceRule(axes)
            yield reductions.UnreduceRule(axes, None, kind)  # type: ignore[arg-type]
            for dim in range(rank):
                yield reductions.ReduceScatterRule(dim, axes)
                yield reductions.UnreduceRule(axes, dim, kind)  # type: ignore[arg-type]
                yield rules.AllGatherRule(dim, axes)
                yield rules.DynSliceRule(dim, axes)
                for other in range(rank):
                    yield rules.AllToAllRule(dim, other, axes)


def numbered_for(after: Placement, before: Placement, groups: np.ndarray) -> Placement:
    """The placement before, its summands numbered as a reduction over these groups wants them."""
    label = before.label.copy()
    label[groups] = after.label[groups] * groups.shape[1] + np.arange(groups.shape[1])
    return before.renumbered(label)


def step_of(collective: rules.AxesCollective, mesh: Mesh, before: Placement, after: Placement) -> Step:
    fixed = [k for k, name in enumerate(mesh.names) if name not in collective.axes]
    moving = [k for k, name in enumerate(mesh.names) if name in collective.axes]
    if isinstance(collective, reductions.UnreduceRule):
        first = (mesh.coordinates[:, moving] == 0).all(axis=1)
        keeps = np.flatnonzero(first) if collective.dim is None and collective.reduction == "sum" else range(mesh.size)
        return Unreduce(before, after, keeps)  # type: ignore[arg-type]
    if isinstance(collective, reductions.AllReduceRule | reductions.ReduceScatterRule):
        members: dict[tuple[int, ...], list[int]] = {}
        for device in range(mesh.size):
            members.setdefault(tuple(mesh.coordinates[device, fixed].tolist()), []).append(device)
        groups = np.array([sorted(group, key=lambda d: after.number[d]) for group in members.values()])
        kind = AllReduce if isinstance(collective, reductions.AllReduceRule) else ReduceScatter
        return kind(numbered_for(after, before, groups), after, groups)
    if isinstance(collective, rules.DynSliceRule):
        return moving_step(collective, mesh, before, after)
    # summands keep their numbers, since members of a group hold one summand
    made = moving_step(collective, mesh, before, after)
    assert np.array_equal(made.groups, groups_along(mesh, collective.axes, before))  # type: ignore[union-attr]
    return made


def carried_out(step: Step, source: tuple[DistType, Mesh], target: tuple[DistType, Mesh]) -> bool:
    """Whether the step, on a different integer for every element of every summand, keeps the array what it is."""
    plan = Plan(*source, *target, "int64", 8, (step,), "by hand", "exact", 0, "elements")
    verify(plan, bound=10**9)
    before, after = plan.before, plan.after
    shape = (before.summands, *before.shape) if before.summands > 1 else before.shape
    given = np.random.default_rng(0).permutation(math.prod(shape)).reshape(shape)
    whole = COMBINE[before.reduction](given, axis=0) if before.summands > 1 else given
    tiles = run(plan, scatter(given, before))
    if after.summands == 1:
        return all(np.array_equal(got, want) for got, want in zip(tiles, scatter(whole, after), strict=True))
    return np.array_equal(assemble(tiles, after), whole)


@pytest.mark.parametrize("kind", ["sum", "max"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("mesh", MESHES, ids=str)
def test_what_rules_allow_steps_do(mesh: Mesh, shape: tuple[int, ...], kind: str) -> None:
    space = PartialSpace(shape, mesh.size, math.prod(shape))
    applied: dict[str, int] = {}
    for dist_type in all_partial_types(mesh, shape, kind):  # type: ignore[arg-type]
        for collective in collectives(mesh, len(shape), kind):
            try:
                result = collective.apply(dist_type, mesh)
            except RuleError:
                continue
            result.check(mesh)
            lowered, onto = collective.lower(dist_type, mesh)
            before, after = placement_of(dist_type, mesh), placement_of(result, mesh)
            assert placement_of(lowered, onto) == after
            assert carried_out(step_of(collective, mesh, before, after), (dist_type, mesh), (result, mesh))
            here, reached = State(before.grid, before.summands), State(after.grid, after.summands)
            assert reached in {edge.target for edge in edges(space, here) if edge.kind == collective.name}
            applied[collective.name] = applied.get(collective.name, 0) + 1
    expected = {"all_reduce", "unreduce"} | ({"reduce_scatter", "allgather", "dynslice"} if shape else set())
    assert set(applied) - {"alltoall"} == expected


@pytest.mark.parametrize("shape", SHAPES[1:], ids=str)
@pytest.mark.parametrize("mesh", MESHES[1:], ids=str)
def test_axes_may_be_taken_from_anywhere_in_a_dimension(mesh: Mesh, shape: tuple[int, ...]) -> None:
    lowered = 0
    for dist_type in all_partial_types(mesh, shape):
        for collective in collectives(mesh, len(shape), "sum"):
            try:
                result, onto = collective.lower(dist_type, mesh)
            except RuleError:
                continue
            before, after = placement_of(dist_type, mesh), placement_of(result, onto)
            assert carried_out(step_of(collective, onto, before, after), (dist_type, mesh), (result, onto))
            lowered += onto != mesh
    assert lowered


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("mesh", MESHES, ids=str)
def test_a_refused_reduction_is_no_step(mesh: Mesh, shape: tuple[int, ...]) -> None:
    """Along axes that are not partial, members do not hold the summands of one run, each once."""
    refused = 0
    for dist_type in all_partial_types(mesh, shape):
        for axes in (names for n in range(1, len(mesh.names) + 1) for names in itertools.combinations(mesh.names, n)):
            before = placement_of(dist_type, mesh)
            groups = groups_along(mesh, axes, Placement(before.shape, before.grid, before.index))
            summands = {(*before.index[d].tolist(), label) for d, label in enumerate(before.label.tolist())}
            held = [{(*before.index[d].tolist(), int(before.label[d])) for d in group} for group in groups]
            one_tile = all(len({entry[:-1] for entry in has}) == 1 for has in held)
            distinct = all(len(has) == len(group) for has, group in zip(held, groups, strict=True)) and summands
            possible = one_tile and distinct and groups.shape[1] > 1
            try:
                reductions.AllReduceRule(axes).apply(dist_type, mesh)
            except RuleError:
                assert not possible
                refused += 1
            else:
                assert possible
    assert refused


def test_permutes_move_summands_and_make_none() -> None:
    mesh = Mesh.of("x=2,y=2")
    source = DistType.parse("[2{x}4] sum{y}")
    for text in ("[2{y}4] sum{x}", "[2{x}4] sum{y}"):
        assert str(rules.AllPermuteRule(DistType.parse(text)).apply(source, mesh)) == text
    for text in ("[2{y}4]", "[2{y}4] max{x}"):
        with pytest.raises(
            RuleError,
            match=exactly(
                f"allpermute to {text}: it moves partial sums and makes none, and those of {source} are other "
                "ones; reduce them first"
            ),
        ):
            rules.AllPermuteRule(DistType.parse(text)).apply(source, mesh)


@pytest.mark.parametrize(
    ("collective", "text", "message"),
    [
        (
            reductions.AllReduceRule(("x",)),
            "[4] sum{y}",
            "all_reduce({x}): tiles of [4] sum{y} are no partial sums along 'x'; reduce along axes of 'y'",
        ),
        (
            reductions.UnreduceRule(("x",), None, "max"),
            "[4] sum{y}",
            "unreduce({x}): it makes partial sums by the reduction 'max' of [4] sum{y}; a type has one kind of "
            "reduction, "
            "of 'sum', 'max', 'min'",
        ),
        (
            rules.DynSliceRule(0, ("y",)),
            "[4] sum{y}",
            "dynslice(0, {y}): axis 'y' tells the partial sums of [4] sum{y} apart; free axes: 'x'",
        ),
        (
            reductions.ReduceScatterRule(0, ("y",)),
            "[3] sum{y}",
            "reduce_scatter(0, {y}) cuts the tile of dimension 0 of [3] sum{y} into 2 parts, and its 3 elements are "
            "not divisible by 2; use axes whose sizes divide 3",
        ),
    ],
)
def test_a_premise_that_fails_is_named(collective: rules.AxesCollective, text: str, message: str) -> None:
    with pytest.raises(RuleError) as caught:
        collective.apply(DistType.parse(text), Mesh.of("x=2,y=2"))
    assert str(caught.value) == message
