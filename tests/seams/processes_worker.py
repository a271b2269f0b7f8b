"""One process of two: every public call with arrays of all processes, of one alone, and of values of the host."""

import sys

import jax

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.config.update("jax_num_cpu_devices", int(sys.argv[4]))
jax.distributed.initialize(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))

from collections.abc import Callable

import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import redistrib as rd
from redistrib.errors import RedistribError
from redistrib.programs.stages.layout import Layout
from tests.seams.cells import CALLS, NUMBERS, SOURCE, Setting, layer


def of_devices(number: int) -> jax.Array:
    """The values on the devices of one process; the other process has none of them, and its array no values."""
    devices = np.array([device for device in jax.devices() if device.process_index == number])
    sharding = NamedSharding(jax.sharding.Mesh(devices, ("x",)), P("x"))
    return jax.make_array_from_callback((4, 4), sharding, lambda index: NUMBERS[index], dtype=NUMBERS.dtype)


def pipelined(x: object, _: Setting) -> object:
    devices = [jax.devices()[0], jax.devices()[2]]  # one of each process
    return rd.pipeline(layer, (NUMBERS,), {"x": 0}, Layout(data=2, microbatches=2), devices=devices)(x)


SOURCES: dict[str, Callable[[], object]] = {
    "of all processes": lambda: jax.make_array_from_callback((4, 4), SOURCE, lambda index: NUMBERS[index]),
    "of the first process": lambda: of_devices(0),
    "of the second process": lambda: of_devices(1),
    "of this process": lambda: of_devices(jax.process_index()),
    "of the host": lambda: NUMBERS,
}
AROUND: dict[str, Callable[..., Callable[..., object]]] = {
    "eager": lambda f: f,
    "jit": jax.jit,
    "jit of grad": lambda f: jax.jit(jax.grad(lambda x: (f(x) ** 2).sum())),
}


def told(call: Callable[[], object], expected: np.ndarray) -> str:
    """ "right", "wrong", or the kind of the error."""
    try:
        result = call()
    except RedistribError as error:
        return type(error).__name__
    except ValueError as error:  # of the jit around the call: its argument lies on other devices than the mesh
        assert "incompatible devices for jitted computation" in str(error), error
        return "that of jax.jit"
    pieces = [(np.asarray(piece.data), expected[piece.index]) for piece in result.addressable_shards]  # type: ignore[attr-defined]
    return "right" if pieces and all(np.allclose(one, other, 1e-5, 1e-6) for one, other in pieces) else "wrong"


def main() -> None:
    for name, call in CALLS.items():
        ours = pipelined if name == "pipeline" else call.ours
        for source, make in SOURCES.items():
            on_mesh = source in ("of all processes", "of the host")
            setting = Setting(source=SOURCE if on_mesh else make().sharding)  # type: ignore[attr-defined]
            for way, around in AROUND.items():
                expected = np.asarray(around(call.plain)(NUMBERS))
                moved = around(lambda x, ours=ours, setting=setting: ours(x, setting))
                print(
                    f"CELL {name}/{source}/{way}/{told(lambda moved=moved, make=make: moved(make()), expected)}",
                    flush=True,
                )


main()
