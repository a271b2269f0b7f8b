"""What users see of plans between device sets: explanations, refusals, and shardings of JAX."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

import redistrib as rd
from redistrib.explain import explain, weak_graph
from tests.sets.cases import PAIRS
from tests.sets.test_between import between


def test_explain_tells_what_crosses() -> None:
    once = explain(between(*PAIRS["rows to replicated"]))
    assert "Exactly 256 elements cross from the source's devices to others: no plan lets fewer cross." in once
    several = explain(between(*PAIRS["replicated to replicated"], "cpu"))
    assert "1,024 elements cross from the source's devices to others, 4.00 times the 256 that must" in several
    none = explain(between(*PAIRS["eight to six"]))
    assert none.endswith("Nothing need cross: no device of the target is outside the source's.")


def test_what_needs_all_devices_says_so() -> None:
    jax = pytest.importorskip("jax")
    plan = between(*PAIRS["rows to columns"])
    with pytest.raises(rd.errors.ProgramError):
        rd.simulate(plan)
    with pytest.raises(rd.errors.PictureError):
        weak_graph(plan)
    upper = rd.Mesh.of("x=2", (2, 3))
    inside = rd.synthesize("[8{x}16, 4]", "[16, 2{x}4]", upper)
    assert (inside.devices, sum(inside.received)) == (4, 32)
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:2]), ("x",))
    with pytest.raises(rd.errors.ForeignMeshError) as caught:
        rd.to_jax(inside, mesh)
    assert caught.value.rule == "some devices"
    assert str(caught.value) == (
        "the plan has 4 devices, of which mesh {x:2} in device order [2, 3] leaves some out; a function under one JAX "
        "mesh is for all of its devices: number those of the mesh from 0, or use redistrib.reshard"
    )


def test_the_papers_algorithm_needs_the_same_devices() -> None:
    with pytest.raises(rd.errors.MeshDevicesError) as caught:
        rd.synthesize("[2{x}8]", "[4{x}8]", "x=4", target_mesh="x=2", algorithm="paper")
    assert str(caught.value) == (
        "the paper's algorithm needs the same devices on both sides, but the source mesh {x:4} has the devices "
        "0, 1, 2, 3 and the target mesh {x:2} the devices 0, 1"
    )


@dataclass(frozen=True)
class _Device:
    id: int


def _sharding(ids: list[int], spec: tuple[object, ...]) -> SimpleNamespace:
    """What is read of a `NamedSharding`."""
    devices = np.array([_Device(k) for k in ids], dtype=object)
    return SimpleNamespace(spec=spec, mesh=SimpleNamespace(axis_names=("x",), axis_sizes=(len(ids),), devices=devices))


def test_shardings_of_other_devices_are_numbered_by_id() -> None:
    source, target = _sharding([7, 5], ("x",)), _sharding([5, 9], (None,))
    plan = rd.synthesize(source, target, shape=(8,), machine="exact")
    assert (plan.source_mesh.devices, plan.target_mesh.devices) == ((1, 0), (0, 2))  # ids 5, 7 and 9
    assert sum(plan.received) == sum(plan.lower_bound) == 12
