"""One JSON text, three machines: NumPy's interpreter, JAX, and MPI give the same bits on every device."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("mpi4py")

import jax
from launch import launch, mpiexec

import redistrib as rd
from redistrib.plans import reference

pytestmark = pytest.mark.skipif(mpiexec() is None, reason="no mpiexec: install the extra redistrib[mpi]")

MESH = {"x": 2, "y": 3}
CASES = {
    "gather": ("[4{x}8, 2{y}6]", "[8, 2{y}6]", "best", "float32"),
    "all-to-all": ("[2{x,y}12, 6]", "[12, 1{x,y}6]", "best", "int16"),
    "all-to-alls": ("[2{x,y}12, 6, 4]", "[12, 2{y}6, 2{x}4]", "paper", "float32"),
    "permute": ("[2{x,y}12]", "[2{y,x}12]", "best", "complex64"),
    "rounds": ("[6{x}12, 4]", "[4{y}12, 4]", "best", "uint8"),
    "all three phases": ("[6{x}12, 3]", "[4{y}12, 3]", "paper", "bool"),
    "slice": ("[12, 6]", "[4{y}12, 3{x}6]", "best", "float16"),
}


def telling(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Any bits at all, not-a-numbers included; but truth values are 0 or 1."""
    kind = np.dtype(dtype)
    bits = np.random.default_rng(7).integers(0, 256, (*shape, kind.itemsize), np.uint8)
    return (bits & 1 if dtype == "bool" else bits).view(kind).reshape(shape)


def by_jax(plan: rd.Plan, whole: np.ndarray) -> list[np.ndarray]:
    """The tile of every device after the plan ran on virtual CPU devices."""
    shape = tuple(MESH.values())
    mesh = jax.sharding.Mesh(np.array(jax.devices()[: plan.devices]).reshape(shape), tuple(MESH))
    spec = [tuple(reversed(dim.axes)) or None for dim in plan.source.dims]
    array = jax.device_put(whole, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec)))
    moved = rd.to_jax(plan, mesh)(array)
    tiles = {shard.device.id: np.asarray(shard.data) for shard in moved.addressable_shards}
    return [tiles[device] for device in range(plan.devices)]


def test_one_json_runs_on_numpy_jax_and_mpi_with_identical_results(tmp_path):
    expected: dict[str, list[np.ndarray]] = {}
    kinds = set()
    for name, (source, target, algorithm, dtype) in CASES.items():
        made = rd.synthesize(source, target, MESH, dtype=dtype, algorithm=algorithm, machine="exact")
        (tmp_path / f"{name}.json").write_text(made.to_json())
        np.save(tmp_path / f"{name}.npy", telling(made.shape, dtype))
    for name in CASES:
        plan = rd.Plan.from_json((tmp_path / f"{name}.json").read_text())
        whole = np.load(tmp_path / f"{name}.npy")
        kinds |= {step.kind for step in plan.steps}
        tiles = reference.scatter(whole, plan.before)
        expected[name] = reference.run(plan, tiles)
        for device, (ours, theirs) in enumerate(zip(expected[name], by_jax(plan, whole), strict=True)):
            assert theirs.dtype == ours.dtype
            assert theirs.shape == ours.shape
            assert theirs.tobytes() == ours.tobytes(), f"JAX differs from NumPy on {name}, device {device}"
    assert kinds == {"dynslice", "allgather", "alltoall", "allpermute", "exchange"}
    ran = launch(6, "shipped", str(tmp_path)).figures()
    assert set(ran) == set(CASES)
    for name, tiles in expected.items():
        for device, ours in enumerate(tiles):
            theirs = np.load(tmp_path / f"{name}.mpi.{device}.npy")
            assert theirs.dtype == ours.dtype
            assert theirs.shape == ours.shape
            assert theirs.tobytes() == ours.tobytes(), f"MPI differs from NumPy on {name}, device {device}"
