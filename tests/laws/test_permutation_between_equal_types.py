"""Lemma 5.1: types of equal global and local shape differ by a permutation of devices; and its converse."""

from __future__ import annotations

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from redistrib.plans.steps import AllPermute
from redistrib.synthesis.groups import permutation_pairs
from redistrib.testing import RedistributionCase, cut_type, cuts, meshes
from redistrib.theory.placement import Placement


@st.composite
def pairs_of_equal_local_type(draw: st.DrawFn) -> RedistributionCase:
    mesh = draw(meshes(max_devices=24))
    rank = draw(st.integers(1, 3))
    source, target = draw(cuts(mesh, rank)), draw(cuts(mesh, rank))
    sizes = {axis.name: axis.size for axis in mesh.axes}
    grids = [tuple(int(np.prod([sizes[n] for n in names])) for names in cut) for cut in (source, target)]
    if grids[0] != grids[1]:
        # Swap axes of equal size instead: same grid, other devices.
        order = draw(st.permutations(mesh.names))
        swap = dict(zip(sorted(mesh.names, key=sizes.__getitem__), sorted(order, key=sizes.__getitem__), strict=True))
        target = tuple(tuple(reversed([swap[n] for n in names])) for names in source)
    shape = tuple(int(np.prod([sizes[n] for n in names])) * 2 for names in source)
    return RedistributionCase(cut_type(mesh, shape, source), cut_type(mesh, shape, target), mesh, mesh)


@given(pairs_of_equal_local_type())
def test_one_permute_leads_from_one_to_the_other(pair: RedistributionCase) -> None:
    assert pair.source.local_shape == pair.target.local_shape
    before, after = pair.before, pair.after
    pi = np.arange(before.devices)
    moves = permutation_pairs(before, after)
    pi[moves[:, 1]] = moves[:, 0]
    assert sorted(pi.tolist()) == list(range(before.devices))
    assert np.array_equal(after.index, before.index[pi])
    plan = pair.plan("paper", "paper")
    assert [step.kind for step in plan.steps] == (["allpermute"] if before != after else [])


@given(pairs_of_equal_local_type())
def test_the_permute_names_just_the_devices_whose_tile_changes(pair: RedistributionCase) -> None:
    before, after = pair.before, pair.after
    for step in pair.plan("best", "exact").steps:
        assert isinstance(step, AllPermute)
        assert sorted(step.pairs[:, 1].tolist()) == np.flatnonzero(before.number != after.number).tolist()


@given(pairs_of_equal_local_type(), st.randoms(use_true_random=False))
def test_conversely_renumbering_devices_keeps_the_local_type(pair: RedistributionCase, random: object) -> None:
    order = list(range(pair.mesh.size))
    random.shuffle(order)  # type: ignore[attr-defined]
    before = pair.before
    after = Placement(before.shape, before.grid, before.index[order])
    assert after.tile == before.tile
    assert after.is_uniform()


@given(pairs_of_equal_local_type())
def test_every_tile_of_a_type_is_held_by_equally_many_devices(pair: RedistributionCase) -> None:
    """What the lemma also needs; a placement without it is no type, and no permutation leads there."""
    assert pair.before.is_uniform()
    assume(pair.before.tiles > 1)
    assert not Placement(pair.before.shape, pair.before.grid, np.zeros_like(pair.before.index)).is_uniform()
