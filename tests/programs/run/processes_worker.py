"""One process of several: distributed functions that differ between processes, and searches within a limit of time."""

import sys
import time
from dataclasses import replace

import jax

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.config.update("jax_num_cpu_devices", int(sys.argv[4]))
jax.distributed.initialize(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))

import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import redistrib as rd
from redistrib.programs.ir.text import digest_of
from redistrib.programs.time.constants import machine

ME, LAST = jax.process_index(), jax.process_index() == jax.process_count() - 1
MESH = Mesh(np.array(jax.devices()).reshape(2, -1), ("d", "t"))
X, W = np.arange(128.0, dtype=np.float32).reshape(16, 8), np.ones((8, 8), np.float32)


def f(x: jax.Array, w: jax.Array) -> jax.Array:
    return jnp.tanh(x @ w) @ w


def main() -> None:
    def right(function: object) -> bool:
        result = function(X, W)  # type: ignore[operator]
        want = np.asarray(jnp.tanh(X @ W) @ W)
        return all(np.allclose(np.asarray(s.data), want[s.index], 1e-4) for s in result.addressable_shards)

    batch, model = ({"x": 0}, {"w": 1})
    alike = rd.distribute(f, (X, W), MESH, schedule=[rd.along("d", batch)])
    print("RIGHT", right(alike), right(alike), flush=True)
    other = rd.distribute(f, (X, W), MESH, schedule=[rd.along("d", model if LAST else batch)])
    arguments = rd.distribute(f, (X, W), MESH, schedule=[rd.along("t", batch)])
    captured = rd.distribute(
        lambda x: x * np.full(8, 1 + LAST, np.float32), (X,), MESH, schedule=[rd.along("d", {"x": 0})]
    )
    number = rd.distribute(lambda x: x * (1.0 + LAST), (X,), MESH, schedule=[rd.along("d", {"x": 0})])
    power = rd.distribute(lambda x: x ** (2 + LAST), (X,), MESH, schedule=[rd.along("d", {"x": 0})])
    with_sets = rd.distribute(  # whose text has a set of axes, in another order in each process
        lambda x: jax.shard_map(lambda x: x * 2, mesh=MESH, in_specs=P("d", "t"), out_specs=P("d", "t"))(x), (X,), MESH
    )
    sets = [np.array_equal(shard.data, 2 * X[shard.index]) for shard in with_sets(X).addressable_shards]
    print("SETS", all(sets), flush=True)
    placed = [
        jax.make_array_from_callback(value.shape, sharding, lambda index, value=value: value[index])
        for value, sharding in zip((X, W), alike.in_shardings, strict=True)
    ]
    whole, columns = (
        jax.make_array_from_callback(X.shape, NamedSharding(MESH, spec), lambda index: X[index])
        for spec in (P(), P(None, "d"))
    )
    calls = {
        "schedules": lambda: other(X, W),
        "arguments": lambda: arguments(X[:8] if LAST else X, W),
        "a pin": lambda: rd.search(f, (X, W), MESH, pins=rd.along("z" if LAST else "d", batch), limit=1),
        "options": lambda: rd.search(f, (X, W), MESH, limit=1, memory_limit="1GiB" if LAST else None),
        "machines of one name": lambda: rd.search(
            f, (X, W), MESH, limit=1, machine=replace(machine("v5p"), chip=None) if LAST else "v5p"
        ),
        "values": lambda: alike(X + LAST, W),
        "values of one process": lambda: alike(X if LAST else placed[0], W),
        "captured values": lambda: captured(X),
        "a number": lambda: number(placed[0]),
        "a power": lambda: power(placed[0]),
        "order": lambda: [g(*placed) for g in ((alike, arguments) if LAST else (arguments, alike))],
        "moved arguments": lambda: alike(whole if LAST else columns, W),
        "a call too few": lambda: [g(*placed) for g in ((arguments,) if LAST else (alike, arguments))],
        "memory": lambda: rd.search(f, (X, W), MESH, limit=1, memory_limit=1),
    }
    for name, call in calls.items():
        started = time.monotonic()
        try:
            call()
        except rd.RedistribError as error:
            print(f"DIFFERENT {name}: {type(error).__name__}: {error}".replace("\n", " "), flush=True)
        else:
            print(f"DIFFERENT {name}: nothing raised", flush=True)
        print(f"SECONDS {name}: {time.monotonic() - started:.1f}", flush=True)
    print("RIGHT", right(arguments), right(alike), flush=True)
    if LAST:  # a processor that others use: the search would come less far
        time.sleep(0.5)
    found = rd.search(f, (X, W), MESH, limit=0.5)
    print("FOUND", digest_of(found[0].program), found[0].seconds, len(found), right(found.distributed), flush=True)


main()
