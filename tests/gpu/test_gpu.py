"""On real GPUs, by `make test-gpu`; skipped where there are none."""

from __future__ import annotations

import itertools
import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

import redistrib as rd
from redistrib.errors import RunSizeError
from redistrib.explain.profiling.compare import calibration_devices
from redistrib.explain.profiling.inspect import inspect
from redistrib.programs.time.fit import OperationSample, fit_rates
from redistrib.programs.time.operations import measure_operations

pytestmark = pytest.mark.skipif(
    "cuda" not in os.environ.get("JAX_PLATFORMS", "") or jax.default_backend() != "gpu", reason="there is no GPU"
)

DTYPES = ["float32", "bfloat16", "float16", "float64", "int8", "int32", "uint4", "int4", "bool", "complex64"]
DTYPES += ["float8_e4m3fn", "float8_e5m2"]
SPECS = [P(), P("x"), P(None, "x"), P("y", "x"), P(("x", "y")), P(("y", "x"), None)]


def mesh() -> Mesh:
    """All GPUs, on two axes."""
    devices = np.array(jax.devices("gpu"))
    return Mesh(devices.reshape(2 if len(devices) % 2 == 0 else 1, -1), ("x", "y"))


def matrix(dtype: Any = "float32") -> np.ndarray:
    return (np.arange(96 * 48) % 13).reshape(96, 48).astype(jnp.dtype(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("donate", [False, True])
def test_arrays_move_between_all_layouts(dtype: str, donate: bool) -> None:
    over = mesh()
    with jax.enable_x64(dtype == "float64"):
        for before, after in itertools.product(SPECS, SPECS):
            array = jax.device_put(matrix(dtype), NamedSharding(over, before))
            moved = rd.reshard(array, NamedSharding(over, after), donate=donate)
            assert moved.sharding == NamedSharding(over, after) and moved.dtype == matrix(dtype).dtype
            np.testing.assert_array_equal(np.asarray(moved), matrix(dtype))
            assert moved.devices() <= {*jax.devices("gpu")}


def test_plans_run_as_collectives() -> None:
    over = mesh()
    for before, after in itertools.product(SPECS, SPECS):
        ends = [NamedSharding(over, spec) for spec in (before, after)]
        plan = rd.reshard_plan(jax.ShapeDtypeStruct((96, 48), jnp.float32, sharding=ends[0]), ends[1])
        for item in [entry for batch in plan.batches for entry in batch.program.entries]:
            run = jax.jit(rd.to_jax(item.plan, over), in_shardings=ends[0])
            compiled = run.lower(jax.ShapeDtypeStruct((96, 48), jnp.float32)).compile()
            assert inspect(compiled).received_bytes == sum(item.plan.received) * 4


def test_memory_of_the_host_and_other_platforms() -> None:
    over = mesh()
    on_device = NamedSharding(over, P("x"))
    pinned = on_device.with_memory_kind("pinned_host")
    array = rd.reshard(matrix(), on_device)
    away = rd.reshard(array, pinned)
    assert away.sharding.memory_kind == "pinned_host"
    back = rd.reshard(away, NamedSharding(over, P(None, "x")), donate=True)
    assert back.sharding.memory_kind == "device"
    on_host = rd.reshard(back, SingleDeviceSharding(jax.devices("cpu")[0]))
    for each in (array, back, on_host):
        np.testing.assert_array_equal(np.asarray(each), matrix())


def test_trees_of_many_leaves() -> None:
    over = mesh()
    tree = {f"{k}": np.full((48, 24), k, dtype) for k, dtype in enumerate(["float32", "int32", "float16"] * 20)}
    here = jax.tree.map(lambda leaf: jax.device_put(leaf, NamedSharding(over, P("x"))), tree)
    moved = rd.reshard(here, NamedSharding(over, P(None, ("x", "y"))), donate=True)
    jax.tree.map(np.testing.assert_array_equal, moved, tree)


def step(params: Any, x: Any, y: Any) -> Any:
    """A step of layers by scan with a norm, a softmax, a sort and random numbers."""

    def loss(params: Any) -> Any:
        def layer(h: Any, w: Any) -> Any:
            h = h + jnp.tanh(h @ w) / (1 + jnp.std(h, -1, keepdims=True))
            return h, jnp.sort(h, -1)[:, -2:].sum()

        h, kept = jax.lax.scan(layer, x, params["layers"])
        noise = jax.random.normal(jax.random.key(3), h.shape) * 1e-3
        logits = (h + noise) @ params["out"]
        taken = jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], -1)
        return -taken.mean() + 1e-3 * kept.mean()

    value, slopes = jax.value_and_grad(loss)(params)
    return value, jax.tree.map(lambda p, g: p - 0.1 * g, params, slopes)


def test_programs_are_distributed() -> None:
    random = np.random.default_rng(0)
    params = {"layers": random.normal(size=(6, 32, 32)).astype(np.float32) / 8, "out": np.eye(32, dtype=np.float32)}
    x, y = random.normal(size=(16, 32)).astype(np.float32), random.integers(0, 32, 16)
    with jax.default_matmul_precision("highest"):
        expected = jax.jit(step)(params, x, y)
        for schedule in ([rd.along("x", {"x": 0, "y": 0})], [rd.along("y", {"params/layers": 2})], "auto"):
            f = rd.distribute(step, (params, x, y), mesh(), schedule=schedule)
            found = f(params, x, y)
            jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5), found, expected)
            assert inspect(f.lower().compile()).received_bytes == f.compiled_received_bytes


def test_a_pipeline_of_one_stage() -> None:
    def loss(params: Any, x: Any) -> Any:
        for w in params:
            x = jnp.tanh(x @ w)
        return jnp.mean(x**2)

    def train(params: Any, x: Any) -> Any:
        value, slopes = jax.value_and_grad(loss)(params, x)
        return value, jax.tree.map(lambda p, g: p - g, params, slopes)

    params, x = [np.eye(16, dtype=np.float32)] * 4, np.ones((8, 16), np.float32)
    expected = jax.jit(train)(params, x)
    f = rd.pipeline(train, (params, x), {"x": 0}, rd.Layout(microbatches=4), devices=jax.devices("gpu")[:1])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5), f(params, x), expected)


def test_rates_of_a_gpu_are_those_of_no_cpu() -> None:
    timed = measure_operations(products=(64, 2048), sums=(1 << 24,), classes=())
    rates = fit_rates([OperationSample(*one) for one in timed])
    assert rates.bandwidth > 2e11 and rates.dtypes["bfloat16"] > 2e13 and rates.launch < 1e-4


def test_planning_for_more_gpus_than_there_are() -> None:
    over, x = AbstractMesh((64,), ("d",)), jnp.ones((64, 64))
    f = rd.distribute(lambda x, w: x @ w, (x, x), over, schedule=[rd.along("d", {"x": 0, "w": 0})])
    assert f.cost.received_bytes == 64 * 63 * 64 * 4


@pytest.mark.skipif(len(jax.devices()) > 1, reason="links can be timed")
def test_links_of_one_gpu_are_refused() -> None:
    with pytest.raises(RunSizeError, match="between 2 devices or more, and JAX has 1 of NVIDIA"):
        calibration_devices(None)
