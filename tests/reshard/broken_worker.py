"""One process of several, the last of which dies or has an error in the middle of a move."""

import os
import sys
import time
from typing import Any

import jax

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.config.update("jax_num_cpu_devices", int(sys.argv[4]))
jax.distributed.initialize(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))

import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import redistrib as rd
from redistrib.backends.jax import private
from redistrib.backends.jax.buckets.compiled import CompiledBucket

LAST = jax.process_index() == jax.process_count() - 1
LINE = Mesh(np.array(jax.devices()), ("x",))
VALUES = np.zeros((64, 64), np.float32)


def main() -> None:
    array = jax.make_array_from_callback(VALUES.shape, NamedSharding(LINE, P("x")), lambda index: VALUES[index])
    target = NamedSharding(LINE, P(None, "x"))
    jax.block_until_ready(rd.reshard(array, target))

    def launch(*_: Any) -> Any:
        if sys.argv[5] == "dies":
            os._exit(0)
        raise MemoryError("no room for a tile")

    if LAST:
        CompiledBucket.launch = launch  # type: ignore[method-assign]
    for attempt in ("move", "next call"):
        started = time.monotonic()
        try:
            rd.reshard(array, target)
        except (rd.RedistribError, MemoryError) as error:
            print(f"RAISED {attempt}: {type(error).__name__}: {error}".replace("\n", " "))
        print(f"SECONDS {attempt}: {time.monotonic() - started:.1f}", flush=True)
    store = private.notes_of_processes()
    if jax.process_index():
        store.key_value_set(f"left/{jax.process_index()}", "")
    else:  # it has the coordinator, which the others ask
        for other in range(1, jax.process_count() - (sys.argv[5] == "dies")):
            store.blocking_key_value_get(f"left/{other}", 60_000)
        time.sleep(1)
    os._exit(0)  # the job is over, and JAX would wait for the process that died


main()
