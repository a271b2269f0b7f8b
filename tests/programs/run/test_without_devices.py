"""Planning needs no devices: abstract meshes, more axes than the machine has, specs and shapes."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

import redistrib as rd
from redistrib.errors import GlobalShapeError, ProgramError

MANY = {"data": 64, "model": 8}
ABSTRACT = AbstractMesh((64, 8), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
FORMS = (jax.ShapeDtypeStruct((512, 64), np.float32), jax.ShapeDtypeStruct((64, 128), np.float32))


def product(x: Any, w: Any) -> Any:
    return x @ w


@pytest.mark.parametrize("mesh", [MANY, rd.Mesh.of(MANY), ABSTRACT], ids=["axes", "Mesh", "AbstractMesh"])
def test_a_function_is_planned_on_more_devices_than_there_are(mesh: Any) -> None:
    specs = (PartitionSpec("data"), PartitionSpec(None, "model"))
    f = rd.distribute(product, FORMS, mesh, in_shardings=specs, out_shardings=PartitionSpec("data"))
    same = rd.distribute(product, FORMS, MANY, in_shardings=specs, out_shardings=PartitionSpec("data"))
    assert str(f.program) == str(same.program)
    assert f.program.received_bytes == 512 * (128 - 16) * 4 * 8  # every device gathers the columns of the others
    assert f.memory >= (8 * 64 + 64 * 16 + 8 * 16 + 8 * 128) * 4
    assert f.cost.flops == 2 * 8 * 64 * 16
    text = f.lower().as_text()
    assert "num_partitions = 512" in text
    assert "all_gather" in text
    assert f.in_shardings[1].spec == PartitionSpec(None, "model")


def test_it_is_lowered_for_another_platform() -> None:
    f = rd.distribute(product, FORMS, MANY, schedule=[rd.along("data", {"x": 0})])
    assert "num_partitions = 512" in f.lower(platform="tpu").as_text()


def test_a_call_says_how_many_devices_are_missing() -> None:
    f = rd.distribute(product, FORMS, MANY, schedule=[rd.along("data", {"x": 0})])
    count = len(jax.devices())
    with pytest.raises(ProgramError, match=f"needs 512 devices to run, and JAX has {count}: {512 - count} are missing"):
        f(np.ones((512, 64), np.float32), np.ones((64, 128), np.float32))


def test_a_mesh_that_the_machine_has_still_runs() -> None:
    mesh = AbstractMesh((2, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    f = rd.distribute(product, FORMS, mesh, schedule=[rd.along("data", {"x": 0})])
    x, w = np.ones((512, 64), np.float32), np.ones((64, 128), np.float32)
    np.testing.assert_allclose(f(x, w), x @ w)


def test_a_search_hands_on_what_cannot_run_here() -> None:
    result = rd.search(product, FORMS, ABSTRACT, machine="v5p", progress=False)
    f = result.distributed
    assert f.program.received_bytes == result[0].program.received_bytes
    with pytest.raises(ProgramError, match="devices to run"):
        f(*(np.ones(form.shape, form.dtype) for form in FORMS))


def test_a_plan_between_specs_and_shardings_over_an_abstract_mesh() -> None:
    ends = PartitionSpec("data"), PartitionSpec(None, ("model", "data"))
    by_types = rd.synthesize("[8{data}512, 512]", "[512, 1{data,model}512]", MANY)
    by_specs = rd.synthesize(*ends, ABSTRACT, shape=(512, 512))
    by_shardings = rd.synthesize(*(NamedSharding(ABSTRACT, spec) for spec in ends), shape=(512, 512))
    assert by_types == by_specs == by_shardings
    with pytest.raises(GlobalShapeError):
        rd.synthesize(*ends, ABSTRACT)
