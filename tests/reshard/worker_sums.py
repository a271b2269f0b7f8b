"""One process of several: reduces arrays of summands by `reshard`, checks every element of its own shards, and prints
which collectives did it."""

import sys
from collections import Counter

import jax

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.config.update("jax_num_cpu_devices", int(sys.argv[4]))
jax.distributed.initialize(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))

import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import redistrib as rd
from redistrib.explain.profiling.inspect import inspect

PART = 1 << 22  # bytes of a part of a tile: gloo moves so large ones in pieces


def summand(number: int, shape: tuple[int, ...]) -> np.ndarray:
    """Summand s has 3**s times as much as the first: sums are exact, and tell which summands are in them."""
    return (np.arange(shape[0], dtype=np.float32)[:, None] % 61 + np.arange(shape[1]) % 7) * np.float32(3**number)


def main() -> None:
    devices = jax.devices()
    mesh = Mesh(np.array(devices).reshape(-1, 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
    n = len(devices)
    problems = [
        (P(None, None, unreduced={"x", "y"}), P("x", "y"), n),
        (P(None, None, unreduced={"x", "y"}), P(("y", "x"), None), n),
        (P("y", None, unreduced={"x"}), P(None, None), n // 2),
        (P("x", None, unreduced={"y"}), P("x", None), 2),
    ]
    wrong, kinds = 0, Counter[str]()
    for source, target, p in problems:
        shape = (n * 256, PART // 4 // 256)
        sharding = NamedSharding(mesh, source)
        whole = sum(summand(s, shape) for s in range(p))
        tiles = []
        for place in np.ndindex(mesh.devices.shape):
            at = dict(zip(mesh.axis_names, place, strict=True))
            own = summand(0, shape)
            if "y" not in source.unreduced:
                own = summand(at["x"], shape)[at["y"] * shape[0] // 2 :][: shape[0] // 2]
            elif "x" not in source.unreduced:
                rows = shape[0] // mesh.devices.shape[0]
                own = summand(at["y"], shape)[at["x"] * rows :][:rows]
            else:
                own = summand(2 * at["x"] + at["y"], shape)
            device = mesh.devices[place]
            if device.process_index == jax.process_index():
                tiles.append(jax.device_put(own, device))
        array = jax.make_array_from_single_device_arrays(shape, sharding, tiles)
        moved = rd.reshard(array, NamedSharding(mesh, target), machine="exact")
        plan = rd.synthesize(sharding, NamedSharding(mesh, target), shape=shape, machine="exact")
        kinds += Counter(step.kind for step in plan.steps)
        kinds += inspect(jax.jit(rd.to_jax(plan, mesh)).lower(array).compile()).kinds
        for shard in moved.addressable_shards:
            wrong += int((np.asarray(shard.data) != whole[shard.index]).sum())
    print(f"RESULT {jax.process_index()} {wrong} {kinds['reduce_scatter']} {kinds['reduce-scatter']}")


main()
