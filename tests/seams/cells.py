"""Every public call beside JAX's transformations, meshes that are set, modes and sources: one cell for each pair.

A cell is right beside the same function without the library, or refused by an error of the library. A new call, or
something new to stand beside it, is one entry more in a table here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import redistrib as rd
from redistrib.errors import RedistribError
from redistrib.pipelines.layout import Layout
from tests.reshard.cases import jax_mesh
from tests.seams.transformations import TRANSFORMATIONS, Function

NUMBERS = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)
WEIGHTS = np.random.default_rng(1).normal(size=(4, 4)).astype(np.float32)
MESH = jax_mesh((("a", 2), ("b", 2)), tuple(range(4)))
SOURCE, TARGET = NamedSharding(MESH, P("a", "b")), NamedSharding(MESH, P("b", "a"))


def layer(x: Any) -> Any:
    return jnp.tanh(x @ WEIGHTS)


def _through(x: Any) -> Any:
    return rd.reshard({"w": x}, {"w": TARGET}, through=lambda tree: {"w": tree["w"] * 2})["w"]


def _tree(x: Any) -> Any:
    moved = rd.reshard({"w": x, "more": [x, WEIGHTS]}, TARGET, source=SOURCE, via="collectives")
    return moved["w"]


@cache
def _plans() -> tuple[Any, Any]:
    there, back = ((SOURCE, TARGET), (TARGET, SOURCE))
    return rd.synthesize(*there, shape=(4, 4)), rd.synthesize(*back, shape=(4, 4))


@cache
def _distributed() -> Any:
    return rd.distribute(layer, (NUMBERS,), MESH, schedule=[rd.along("a", {"x": 0}), rd.along("b", {"x": 1})])


@cache
def _searched() -> Any:
    return rd.search(layer, (NUMBERS,), MESH)[0].distributed


@cache
def _pipelined() -> Any:
    return rd.pipeline(layer, (NUMBERS,), {"x": 0}, Layout(data=2, microbatches=2), devices=jax.devices()[:2])


# The library's function, and the same without it.
CALLS: dict[str, tuple[Function, Function]] = {
    "reshard": (lambda x: rd.reshard(x, TARGET, source=SOURCE), lambda x: x),
    "reshard of trees": (_tree, lambda x: x),
    "reshard through": (_through, lambda x: x * 2),
    "to_jax": (lambda x: rd.to_jax(_plans()[0], MESH, reverse=_plans()[1])(x), lambda x: x),
    "distribute": (lambda x: _distributed()(x), layer),
    "search": (lambda x: _searched()(x), layer),
    "pipeline": (lambda x: _pipelined()(x), layer),
}


@dataclass(frozen=True)
class Beside:
    """What stands beside a call.

    Attributes:
        around: of a function, with arrays of as many dimensions more as `batches`.
        context: in which the library's function is called.
        source: the argument from the values.
    """

    around: Function = lambda f: f
    batches: int = 0
    context: Callable[[], AbstractContextManager[Any]] = nullcontext
    source: Callable[[np.ndarray], Any] | None = None


def _mapped(f: Function) -> Function:
    """The function of tiles, which is the same as on the whole where it works element by element."""
    return jax.shard_map(f, mesh=MESH, in_specs=P("a", "b"), out_specs=P("a", "b"))


def _set(*axes: tuple[str, int], kind: AxisType = AxisType.Auto) -> Callable[[], AbstractContextManager[Any]]:
    size = int(np.prod([size for _, size in axes]))
    return lambda: jax.set_mesh(jax_mesh(axes, tuple(range(size)), kind))


def _deleted(values: np.ndarray) -> jax.Array:
    array = jax.device_put(values, SOURCE)
    array.delete()
    return array


EXPLICIT = AxisType.Explicit
CONTEXTS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "its mesh": _set(("a", 2), ("b", 2)),
    "its mesh of Explicit axes": _set(("a", 2), ("b", 2), kind=EXPLICIT),
    "another mesh": _set(("z", 4)),
    "another mesh of Explicit axes": _set(("z", 4), kind=EXPLICIT),
    "a larger mesh": _set(("a", 4), ("b", 2)),
    "a smaller mesh of Explicit axes": _set(("a", 2), kind=EXPLICIT),
    "transfer_guard": lambda: jax.transfer_guard("disallow"),
    "debug_nans": lambda: jax.debug_nans(True),
    "disable_jit": jax.disable_jit,
    "checking_leaks": jax.checking_leaks,
    "enable_checks": lambda: jax.enable_checks(True),
    "numpy_dtype_promotion": lambda: jax.numpy_dtype_promotion("strict"),
    "threefry_partitionable": lambda: jax.threefry_partitionable(False),
    "x64": lambda: jax.enable_x64(True),
}
BESIDE: dict[str, Beside] = {
    "eager": Beside(),
    **{name: Beside(around, int(name == "vmap")) for name, around in TRANSFORMATIONS.items()},
    "jit of vmap of grad": Beside(lambda f: jax.jit(jax.vmap(TRANSFORMATIONS["grad"](f))), 1),
    "shard_map": Beside(_mapped),
    **{name: Beside(context=context) for name, context in CONTEXTS.items()},
    **{f"jit under {name}": Beside(jax.jit, context=context) for name, context in CONTEXTS.items()},
    "a deleted source": Beside(source=_deleted),
    "a source without values": Beside(source=lambda v: jax.ShapeDtypeStruct(v.shape, v.dtype, sharding=SOURCE)),
}


def cells() -> Iterator[tuple[str, str]]:
    """The names of all cells: of a call, and of what stands beside it."""
    return ((call, beside) for call in CALLS for beside in BESIDE)


def outcome(call: str, beside: str) -> str:
    """ "right", or the first line of the error of the library that refuses the cell.

    Raises:
        AssertionError: if the result differs.
        Exception: of JAX, which no cell may raise.
    """
    (ours, plain), cell = CALLS[call], BESIDE[beside]
    values = np.stack([NUMBERS] * 2) if cell.batches else NUMBERS
    entries = (None,) * cell.batches + tuple(SOURCE.spec)
    x = jax.device_put(values, NamedSharding(MESH, P(*entries))) if cell.source is None else cell.source(values)
    expected = TRANSFORMATIONS.get(beside, cell.around)(plain)(values) if beside != "shard_map" else plain(values)
    expected = np.asarray(expected)
    try:
        with cell.context():
            result = cell.around(ours)(x)
            jax.block_until_ready(result)
    except RedistribError as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    np.testing.assert_allclose(np.asarray(result), expected, rtol=1e-5, atol=1e-6)
    return "right"


def table(outcomes: dict[tuple[str, str], str]) -> str:
    """The refused cells as a table in Markdown: for each call and error, what stands beside the call."""
    rows: dict[tuple[str, str], list[str]] = {}
    for (call, beside), result in outcomes.items():
        if result != "right":
            rows.setdefault((call, result.partition(":")[0]), []).append(beside)
    lines = [f"| {call} | {', '.join(names)} | `{error}` |" for (call, error), names in rows.items()]
    return "\n".join(["| call | refused beside | error |", "|---|---|---|", *lines])


def refused(text: str) -> dict[tuple[str, str], str]:
    """The error of every refused cell, from the table."""
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    return {(row[0], name): row[2].strip("`") for row in rows if row[0] in CALLS for name in row[1].split(", ")}
