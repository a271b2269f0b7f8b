"""One process of several: moves a tree by `reshard`, checks its own shards, prints what it planned."""

import hashlib
import sys

import jax

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.config.update("jax_num_cpu_devices", int(sys.argv[4]))
jax.distributed.initialize(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import redistrib as rd
from redistrib.explain.profiling.inspect import inspect


def placed(values: np.ndarray, sharding: NamedSharding, dtype: object = None) -> jax.Array:
    """An array made by every process from its own part."""
    return jax.make_array_from_callback(
        values.shape, sharding, lambda index: jnp.asarray(values[index], dtype), dtype=dtype
    )


def sums(devices: np.ndarray) -> tuple[int, set[str]]:
    """Wrong elements of sums across processes, of which each device keeps 1 MiB, and the collectives that ran."""
    mesh = Mesh(devices.reshape(2, -1), ("a", "b"), axis_types=(AxisType.Explicit,) * 2)
    target = NamedSharding(mesh, P(("a", "b"), None))
    rows = np.arange(256.0 * devices.size)[:, None] % 97

    def summand() -> jax.Array:
        factor = 1 + 2 * lax.axis_index("a") + 4 * lax.axis_index("b")
        return jnp.broadcast_to(jnp.asarray(rows) * factor, (len(rows), 1024))

    make = jax.shard_map(summand, mesh=mesh, in_specs=(), out_specs=P(unreduced={"a", "b"}), check_vma=False)
    array = jax.jit(make)()
    plan = rd.reshard_plan(array, target)
    assert [entry.plan.steps[0].implementation for _, entry in plan.batches[0].parts] == ["native"]
    moved = rd.reshard(array, target)
    wanted = rows * sum(1 + 2 * a + 4 * b for a in range(2) for b in range(devices.size // 2))
    wrong = sum(int((np.asarray(shard.data) != wanted[shard.index[0]]).sum()) for shard in moved.addressable_shards)
    return wrong, set(inspect(plan.batches[0].program.hlo()).kinds)


def main() -> None:
    devices = np.array(jax.devices())
    n = len(devices)
    line = Mesh(devices, ("x",))
    grid = Mesh(devices.reshape(2, -1), ("a", "b"))
    turned = Mesh(np.random.default_rng(0).permutation(devices).reshape(-1, 2), ("p", "q"))
    rng = np.random.default_rng(1)
    shapes = [(4 * n, 2 * n), (2 * n, 4 * n), (n, n, 3), (4 * n,), (4 * n,), (6 * n, n)]
    values = [rng.integers(0, 100, shape).astype(np.float32) for shape in shapes]
    sources = [NamedSharding(line, P("x"))] * 5 + [NamedSharding(grid, P("a", "b"))]
    targets = [
        NamedSharding(grid, P(None, "b")),
        NamedSharding(grid, P("b", "a")),
        NamedSharding(turned, P("p", "q")),
        NamedSharding(turned, P(("q", "p"))),
        NamedSharding(grid, P()),
        NamedSharding(turned, P("q", "p")),
    ]
    dtypes = [jnp.float32, jnp.bfloat16, jnp.int8, jnp.float32, jnp.float32, jnp.int32]
    tree = [placed(v, s, d) for v, s, d in zip(values, sources, dtypes, strict=True)]
    plan = rd.reshard_plan(tree, targets)
    hosts = f"{jax.process_count()} hosts of {jax.local_device_count()} devices"
    assert f"links between hosts taken to be slower: {hosts}" in str(plan), str(plan)
    digest = hashlib.sha256(
        "".join(entry.plan.to_json() for b in plan.batches for _, entry in b.parts).encode()
    ).hexdigest()
    wrong = 0
    for limit in (None, 2 * plan.peak_bytes):
        with jax.transfer_guard("disallow_explicit"):
            moved = jax.block_until_ready(rd.reshard(tree, targets, memory_limit=limit))
        for array, value, target in zip(moved, values, targets, strict=True):
            assert array.sharding == target
            for shard in array.addressable_shards:
                wrong += int((np.asarray(shard.data, np.float32) != value[shard.index]).sum())
    back = rd.reshard(moved, sources, donate=True)
    wrong += sum(
        int((np.asarray(shard.data, np.float32) != value[shard.index]).sum())
        for array, value in zip(back, values, strict=True)
        for shard in array.addressable_shards
    )
    wrong_sums, kinds = sums(devices)
    wrong += wrong_sums
    assert kinds == {"collective-permute"}, kinds  # large shares go round by round, and none by a reduce-scatter
    misses = rd.cache_info()["plans"].misses
    rd.reshard(tree, targets)
    assert rd.cache_info()["plans"].misses == misses
    print(f"RESULT {jax.process_index()} {n} {len(plan.order)} {wrong} {digest} {all(a.is_deleted() for a in moved)}")


main()
