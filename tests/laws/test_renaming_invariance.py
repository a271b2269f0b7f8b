"""Renaming axes or devices renames the plan and changes nothing else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from redistrib.lang.mesh import Axis, Mesh
from redistrib.lang.types import DimType, DistType
from redistrib.testing import RedistributionCase, is_exact, redistributions

HOW = st.sampled_from([("best", "exact"), ("best", "tpu"), ("paper", "paper")])


def with_names(mesh: Mesh, names: dict[str, str]) -> Mesh:
    return Mesh(tuple(Axis(names[axis.name], axis.size) for axis in mesh.axes), mesh.devices)


def type_with_names(dist_type: DistType, names: dict[str, str]) -> DistType:
    return DistType(tuple(DimType(d.tile, tuple(names[n] for n in d.axes), d.size) for d in dist_type.dims))


@given(redistributions(), HOW, st.permutations(["z", "q", "axis", "x", "a b", "y"]))
def test_renaming_axes_changes_no_step(pair: RedistributionCase, how: tuple[str, str], fresh: list[str]) -> None:
    there = dict(zip(pair.mesh.names, fresh, strict=False))
    back = dict(zip(pair.target_mesh.names, reversed(fresh), strict=False))
    renamed = RedistributionCase(
        type_with_names(pair.source, there),
        type_with_names(pair.target, back),
        with_names(pair.mesh, there),
        with_names(pair.target_mesh, back),
    )
    assert renamed.plan(*how).steps == pair.plan(*how).steps


@given(redistributions(), HOW, st.randoms(use_true_random=False))
def test_renumbering_devices_changes_no_cost(pair: RedistributionCase, how: tuple[str, str], random: object) -> None:
    """Device d becomes number new[d] on both sides; who holds a tile first may change, what plans cost does not."""
    new = list(range(pair.mesh.size))
    random.shuffle(new)  # type: ignore[attr-defined]

    def renumbered(mesh: Mesh) -> Mesh:
        return Mesh(mesh.axes, tuple(new[d] for d in mesh.devices))

    plan = pair.plan(*how)
    moved = RedistributionCase(pair.source, pair.target, renumbered(pair.mesh), renumbered(pair.target_mesh)).plan(*how)
    assert is_exact(moved)
    assert moved.lower_bound == tuple(plan.lower_bound[new.index(d)] for d in range(len(new)))
    assert moved.cost == plan.cost
    if how == ("best", "exact"):
        assert moved.received == moved.lower_bound


@given(redistributions(two_meshes=False), HOW)
def test_splitting_axes_into_primes_changes_no_step(pair: RedistributionCase, how: tuple[str, str]) -> None:
    """Principle 1 without loss: the type on the prime mesh means the same, so the plan is the same."""
    from tests.primes import prime_type

    prime = pair.mesh.prime().mesh
    split = RedistributionCase(prime_type(pair.source, pair.mesh), prime_type(pair.target, pair.mesh), prime, prime)
    assert split.plan(*how).steps == pair.plan(*how).steps
