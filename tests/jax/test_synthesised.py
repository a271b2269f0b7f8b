"""Synthesised plans on real arrays, of every element type."""

import random
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from redistrib.backends.jax.execute import to_jax
from redistrib.errors import MemoryLimitError
from redistrib.explain.profiling.inspect import inspect
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DimType, DistType
from redistrib.plans.plan import Plan
from redistrib.plans.steps import AllPermute, DynSlice
from redistrib.synthesis.synthesize import synthesize
from redistrib.theory.placement import Placement, placement_of
from tests.jax.running import check, compiled, jax_mesh
from tests.messages import exactly


def random_type(rng, mesh, shape):
    axes = [[] for _ in shape]
    for name in rng.sample(mesh.names, len(mesh.names)):
        k = rng.randrange(len(shape) + 1)
        if k < len(shape):
            axes[k].append(name)
    sizes = {axis.name: axis.size for axis in mesh.axes}
    return DistType(
        tuple(
            DimType(n // int(np.prod([sizes[a] for a in cut], dtype=int)), tuple(cut), n)
            for n, cut in zip(shape, axes, strict=True)
        )
    )


@pytest.mark.parametrize("algorithm", ["best", "paper"])
@pytest.mark.parametrize("mesh", ["x=2,y=4", "x=2,y=2,z=2", "x=3,y=4", "x=4,y=6", "x=2,y=3,z=4"])
def test_synthesised_plans(mesh, algorithm):
    rng = random.Random(f"{mesh} {algorithm}")
    mesh = Mesh.of(mesh)
    for _ in range(6):
        shape = (mesh.size,) * rng.randint(1, 3)
        source, target = random_type(rng, mesh, shape), random_type(rng, mesh, shape)
        check(synthesize(source, mesh, target, mesh, algorithm=algorithm))


@pytest.mark.parametrize("mesh", ["x=2,y=4", "x=2,y=2,z=2", "x=2,y=3,z=4"])
def test_scratch_of_synthesised_plans(mesh):
    """By default two tiles; sequentially half a tile beside the tiles between steps."""
    rng = random.Random(mesh)
    mesh = Mesh.of(mesh)
    for _ in range(5):
        shape = (48 if mesh.size == 24 else 64,) * 3
        source, target = random_type(rng, mesh, shape), random_type(rng, mesh, shape)
        plan = synthesize(source, mesh, target, mesh)
        tile = 4 * max(source.local_size, target.local_size)
        assert check(plan).scratch <= 2 * tile + 65536
        between = 4 * max([step.after.tile_size for step in plan.steps[:-1] if step.kind != "dynslice"], default=0)
        part = max(0.48 * tile - between, tile / 8)
        assert check(plan, "sequential").scratch <= between + 1.1 * part + 4096


def test_under_a_limit_tiles_between_steps_take_from_what_a_dense_step_may_use():
    mesh = Mesh.of("x=2,y=4")
    plan = synthesize(
        DistType.of("[2{x,y}16, 16, 4]"), mesh, DistType.of("[16, 4{y}16, 2{x}4]"), mesh, algorithm="paper"
    )
    assert [step.kind for step in plan.steps] == ["alltoall", "alltoall"]
    tile = plan.before.tile_size * plan.itemsize
    for tiles, kind in ((5, "all-to-all"), (4.5, "collective-permute")):  # source, target, one between, two to pack
        limited = replace(plan, memory_limit=int(tiles * tile))
        assert set(inspect(compiled(to_jax(limited, jax_mesh(mesh)))).kinds) == {kind}
    tight = replace(plan, memory_limit=2 * tile - 1)
    with pytest.raises(
        MemoryLimitError,
        match=exactly(
            f"source and target alone take {2 * tile:,} bytes per device, more than the limit of "
            f"{2 * tile - 1:,} that the plan was made for; plan again for the memory there is, or name "
            "a schedule to run it without a limit"
        ),
    ) as caught:
        compiled(to_jax(tight, jax_mesh(mesh)))
    assert (caught.value.limit, caught.value.least) == (2 * tile - 1, 2 * tile)
    check(tight, "sequential")


def test_a_device_order_that_is_not_the_identity():
    """Positions of the JAX mesh are device numbers only up to the plan's own order."""
    order = (3, 1, 0, 2)
    mesh = Mesh(Mesh.of("x=4").axes, order)
    plan = synthesize(DistType.of("[2{x}8, 8]"), mesh, DistType.of("[8, 2{x}8]"), mesh)
    check(plan)
    spread = synthesize(DistType.of("[2{x}8]"), mesh, DistType.of("[8]"), mesh)
    check(spread)


def test_an_array_of_no_elements():
    plan = synthesize(DistType.of("[0{x}0, 8]"), Mesh.of("x=4"), DistType.of("[0, 2{x}8]"), Mesh.of("x=4"))
    f = to_jax(plan, jax_mesh(plan.source_mesh))
    assert f(jax.device_put(np.zeros((0, 8), np.float32), f.source_sharding)).shape == (0, 8)


def test_a_slice_and_a_permute_of_no_elements():
    mesh = Mesh.of("x=2,y=2")
    source, target = DistType.of("[0, 4{x}8]"), DistType.of("[0, 2{y,x}8]")
    before, after = placement_of(source, mesh), placement_of(target, mesh)
    cut = Placement(after.shape, after.grid, after.index[[1, 0, 3, 2]])
    steps = (DynSlice(before, cut), AllPermute(cut, after, [[0, 1], [1, 0], [2, 3], [3, 2]]))
    f = to_jax(replace(synthesize(source, mesh, target, mesh), steps=steps), jax_mesh(mesh))
    assert f(jax.device_put(np.zeros((0, 8), np.float32), f.source_sharding)).shape == (0, 8)


# ------------------------------------------------------------------------------------------- dtypes

DTYPES = [
    *("bool", "int2", "uint2", "int4", "uint4", "int8", "uint16", "int32", "float16", "bfloat16", "float32"),
    *("float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz", "float8_e3m4", "float8_e4m3", "float8_e8m0fnu"),
    *("float4_e2m1fn", "complex64"),
]
BELOW_A_BYTE = {"bool": 1, "int2": 2, "uint2": 2, "int4": 4, "uint4": 4, "float4_e2m1fn": 4}
MOVES = [
    ("[2{x}16, 16]", "[16, 2{x}16]", "x=8"),
    ("[2{x}16, 16]", "[16, 16]", "x=8"),  # one collective and no copy
    ("[16, 2{x}16]", "[16, 16]", "x=8"),
    ("[3{x}12, 2{y}12]", "[2{y}12, 3{x}12]", "x=4,y=6"),
]


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_bit_of_every_dtype(dtype):
    """Random bit patterns, signalling NaNs among them: what is moved is compared as bytes."""
    kind = jnp.dtype(dtype)
    rng = np.random.default_rng(0)
    for source, target, axes in MOVES:
        mesh = Mesh.of(axes)
        plan = synthesize(DistType.of(source), mesh, DistType.of(target), mesh, dtype=dtype)
        bits = BELOW_A_BYTE.get(dtype, 8)
        raw = rng.integers(0, 2**bits, size=(*plan.shape, kind.itemsize), dtype=np.uint8)
        if dtype in ("int2", "int4"):
            whole = (raw[..., 0].astype(np.int8) - 2 ** (bits - 1)).astype(kind)
        else:
            whole = raw.view(kind).reshape(plan.shape)
        f = to_jax(plan, jax_mesh(mesh))
        moved = f(jax.device_put(whole, f.source_sharding))
        assert moved.dtype == kind
        for shard in moved.addressable_shards:
            assert np.asarray(shard.data).tobytes() == np.ascontiguousarray(whole[shard.index]).tobytes()


def test_random_keys_are_moved():
    mesh = Mesh.of("x=8")
    keys = jax.random.split(jax.random.key(7), (16, 16))
    before, after = DistType.of("[2{x}16, 16]"), DistType.of("[16, 2{x}16]")
    steps = synthesize(before, mesh, after, mesh).steps
    plan = Plan(before, mesh, after, mesh, str(keys.dtype), 8, steps, "by hand", "none", 0, "elements")
    f = to_jax(plan, jax_mesh(mesh))
    moved = f(jax.device_put(keys, f.source_sharding))
    assert moved.dtype == keys.dtype
    assert moved.sharding.is_equivalent_to(f.target_sharding, 2)
    np.testing.assert_array_equal(jax.random.key_data(moved), jax.random.key_data(keys))
