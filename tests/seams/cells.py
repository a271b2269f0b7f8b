"""Every public call beside JAX's transformations, meshes that are set, modes and sources: one cell for each pair.

A cell is right beside the same function without the library, or refused by an error of the library. A new call, or
something new to stand beside it, is one entry more in a table here.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import redistrib as rd
from redistrib.errors import RedistribError
from redistrib.programs.stages.layout import Layout
from tests.reshard.cases import jax_mesh
from tests.seams.transformations import TRANSFORMATIONS, Function, composed

NUMBERS = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)
WEIGHTS = np.random.default_rng(1).normal(size=(4, 4)).astype(np.float32)
MESH = jax_mesh((("a", 2), ("b", 2)), tuple(range(4)))
SOURCE, TARGET = NamedSharding(MESH, P("a", "b")), NamedSharding(MESH, P("b", "a"))


def layer(x: Any) -> Any:
    return jnp.tanh(x @ WEIGHTS)


def _through(x: Any, setting: Setting) -> Any:
    doubled = setting.inside(lambda x: x * 2)
    return rd.reshard({"w": x}, {"w": setting.target}, through=lambda tree: {"w": doubled(tree["w"])})["w"]


def _tree(x: Any, setting: Setting) -> Any:
    moved = rd.reshard({"w": x, "more": [x, WEIGHTS]}, setting.target, source=setting.source, via="collectives")
    return moved["w"]


@cache
def _plans() -> tuple[Any, Any]:
    there, back = ((SOURCE, TARGET), (TARGET, SOURCE))
    return rd.synthesize(*there, shape=(4, 4)), rd.synthesize(*back, shape=(4, 4))


@cache
def _distributed(inside: Function, kind: str | None) -> Any:
    schedule = [rd.along("a", {"x": 0}), rd.along("b", {"x": 1})]
    given = {} if kind is None else {"out_shardings": TARGET.with_memory_kind(kind)}
    return rd.distribute(inside(layer), (NUMBERS,), MESH, schedule=() if given else schedule, **given)


@cache
def _searched(inside: Function, kind: str | None) -> Any:
    given = {} if kind is None else {"out_shardings": TARGET.with_memory_kind(kind)}
    return rd.search(inside(layer), (NUMBERS,), MESH, progress=False, **given)[0].distributed


@cache
def _pipelined(inside: Function) -> Any:
    return rd.pipeline(inside(layer), (NUMBERS,), {"x": 0}, Layout(data=2, microbatches=2), devices=jax.devices()[:2])


@dataclass(frozen=True)
class Setting:
    """What a call is given.

    Attributes:
        inside: of the function that a call is given, before the call.
        source: sharding of the argument, without its batches.
        target: sharding asked for.
    """

    inside: Function = lambda f: f
    source: NamedSharding = SOURCE
    target: NamedSharding = TARGET

    @property
    def kind(self) -> str | None:
        """The kind of memory asked for; None if none is."""
        return self.target.memory_kind if self.target is not TARGET else None


@dataclass(frozen=True)
class Call:
    """The library's function, and the same without it.

    Attributes:
        takes_functions: so that a transformation may stand inside.
        takes_shardings: so that it may be asked for results in any memory.
    """

    ours: Callable[[Any, Setting], Any]
    plain: Function
    takes_functions: bool = False
    takes_shardings: bool = False


CALLS: dict[str, Call] = {
    "reshard": Call(lambda x, s: rd.reshard(x, s.target, source=s.source), lambda x: x, takes_shardings=True),
    "reshard of trees": Call(_tree, lambda x: x, takes_shardings=True),
    "reshard through": Call(_through, lambda x: x * 2, True, True),
    "to_jax": Call(lambda x, _: rd.to_jax(_plans()[0], MESH, reverse=_plans()[1])(x), lambda x: x),
    "distribute": Call(lambda x, s: _distributed(s.inside, s.kind)(x), layer, True, True),
    "search": Call(lambda x, s: _searched(s.inside, s.kind)(x), layer, True, True),
    "pipeline": Call(lambda x, s: _pipelined(s.inside)(x), layer, True),
}


@dataclass(frozen=True)
class Beside:
    """What stands beside a call.

    Attributes:
        around: of a function, with arrays of as many dimensions more as `batches`.
        batches: that the argument has.
        context: in which the library's function is called.
        argument: from the values; None places them by the setting.
        setting: what the call is given.
        elementwise: whether `around` is of tiles, on which a function of the whole is another one.
    """

    around: Function = lambda f: f
    batches: int = 0
    context: Callable[[], AbstractContextManager[Any]] = nullcontext
    argument: Callable[[np.ndarray], Any] | None = None
    setting: Setting = Setting()
    elementwise: bool = False

    def may_be_asked_of(self, call: Call) -> bool:
        """Whether the call has the argument that this changes."""
        functions = call.takes_functions or self.setting.inside is Setting.inside
        return functions and (call.takes_shardings or self.setting.kind is None)


def _mapped(f: Function) -> Function:
    """The function of tiles, which is the same as on the whole where it works element by element."""
    return jax.shard_map(f, mesh=MESH, in_specs=P("a", "b"), out_specs=P("a", "b"))


def _with_rows_mapped(f: Function) -> Function:
    """Rows go to devices in a `shard_map`, which is the same for functions of one row."""
    return lambda x: jax.shard_map(f, mesh=MESH, in_specs=P("a"), out_specs=P("a"))(x)


def _gradient_on_devices(f: Function) -> Function:
    """JAX differentiates no number in the host's memory, also one that `jax.device_put` has put there."""
    return TRANSFORMATIONS["grad"](lambda x: jax.device_put(f(x), TARGET.with_memory_kind("device")))


def under(names: Sequence[str]) -> Beside:
    """A composition of transformations around a call."""
    return Beside(partial(composed, names), names.count("vmap"))


def _set(*axes: tuple[str, int], kind: AxisType = AxisType.Auto) -> Callable[[], AbstractContextManager[Any]]:
    size = int(np.prod([size for _, size in axes]))
    return lambda: jax.set_mesh(jax_mesh(axes, tuple(range(size)), kind))


def _deleted(values: np.ndarray) -> jax.Array:
    array = jax.device_put(values, SOURCE)
    array.delete()
    return array


EXPLICIT = AxisType.Explicit
INSIDE: dict[str, Function] = {**TRANSFORMATIONS, "shard_map": _with_rows_mapped}
Context = Callable[[], AbstractContextManager[Any]]
MODES: dict[str, Context] = {
    "transfer_guard": lambda: jax.transfer_guard("disallow"),
    "debug_nans": lambda: jax.debug_nans(True),
    "disable_jit": jax.disable_jit,
    "checking_leaks": jax.checking_leaks,
    "enable_checks": lambda: jax.enable_checks(True),
    "numpy_dtype_promotion": lambda: jax.numpy_dtype_promotion("strict"),
    "threefry_partitionable": lambda: jax.threefry_partitionable(False),
    "x64": lambda: jax.enable_x64(True),
}
CONTEXTS: dict[str, Context] = {
    "its mesh": _set(("a", 2), ("b", 2)),
    "its mesh of Explicit axes": _set(("a", 2), ("b", 2), kind=EXPLICIT),
    "another mesh": _set(("z", 4)),
    "another mesh of Explicit axes": _set(("z", 4), kind=EXPLICIT),
    "a larger mesh": _set(("a", 4), ("b", 2)),
    "a smaller mesh of Explicit axes": _set(("a", 2), kind=EXPLICIT),
    **MODES,
}
MEMORY = {
    f"{way} {kind}": Setting(**{part: sharding.with_memory_kind(kind)})
    for kind in ("pinned_host", "unpinned_host")
    for way, part, sharding in (("from", "source", SOURCE), ("to", "target", TARGET))
}
BESIDE: dict[str, Beside] = {
    "eager": Beside(),
    **{name: under([name]) for name in TRANSFORMATIONS},
    "jit of vmap of grad": under(["jit", "vmap", "grad"]),
    "shard_map": Beside(_mapped, elementwise=True),
    **{f"{name} inside": Beside(setting=Setting(INSIDE[name])) for name in INSIDE},
    "jit with shard_map inside": Beside(jax.jit, setting=Setting(_with_rows_mapped)),
    "grad with shard_map inside": Beside(TRANSFORMATIONS["grad"], setting=Setting(_with_rows_mapped)),
    **{name: Beside(context=context) for name, context in CONTEXTS.items()},
    **{f"jit under {name}": Beside(jax.jit, context=context) for name, context in CONTEXTS.items()},
    **{
        f"{name} of vmap of grad under {context}": replace(under([name, "vmap", "grad"]), context=CONTEXTS[context])
        for name in ("jit", "checkpoint")
        for context in MODES
        if (name, context) != ("checkpoint", "transfer_guard")  # JAX moves the numbers of its gradients itself there
    },
    **{name: Beside(setting=setting) for name, setting in MEMORY.items()},
    **{f"jit {name}": Beside(jax.jit, setting=setting) for name, setting in MEMORY.items()},
    **{f"grad {name}": Beside(_gradient_on_devices, setting=setting) for name, setting in MEMORY.items()},
    "a deleted source": Beside(argument=_deleted),
    "a source without values": Beside(argument=lambda v: jax.ShapeDtypeStruct(v.shape, v.dtype, sharding=SOURCE)),
}


def cells() -> Iterator[tuple[str, str]]:
    """The names of all cells: of a call, and of what stands beside it."""
    return ((name, beside) for name, call in CALLS.items() for beside in BESIDE if BESIDE[beside].may_be_asked_of(call))


def outcome(name: str, cell: Beside) -> str:
    """ "right", or the first line of the error of the library that refuses a call beside something.

    Raises:
        AssertionError: if the result differs.
        Exception: of JAX, which no cell may raise.
    """
    call, setting = CALLS[name], cell.setting
    values = np.stack([NUMBERS] * 2**cell.batches).reshape(*(2,) * cell.batches, 4, 4) if cell.batches else NUMBERS
    entries = (None,) * cell.batches + tuple(SOURCE.spec)
    placed = NamedSharding(MESH, P(*entries), memory_kind=setting.source.memory_kind)
    x = jax.device_put(values, placed) if cell.argument is None else cell.argument(values)
    around: Function = (lambda f: f) if cell.elementwise else cell.around
    expected = np.asarray(around(setting.inside(call.plain))(values))
    try:
        with cell.context():
            result = cell.around(lambda x: call.ours(x, setting))(x)
            jax.block_until_ready(result)
    except RedistribError as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    np.testing.assert_allclose(np.asarray(result), expected, rtol=1e-5, atol=1e-6)
    if setting.kind is not None and cell.around is not _gradient_on_devices:
        assert result.sharding.memory_kind == setting.kind
    return "right"


_PARTED = re.compile(r"(.*?) (under|from|to|of(?= (?:all|the|this) )) (.*)")
_ITEM = re.compile(r"((?:\[[^]]*\]|[^,\[\]])+)(?:, |$)")


def table(outcomes: dict[tuple[str, str], str]) -> str:
    """The refused cells as a table in Markdown: for each call and error, what stands beside the call."""
    rows: dict[tuple[str, str], list[str]] = {}
    for (call, beside), result in outcomes.items():
        if result != "right":
            rows.setdefault((call, result.partition(":")[0]), []).append(beside)
    lines = [f"| {call} | {folded(names)} | `{error}` |" for (call, error), names in rows.items()]
    return "\n".join(["| call | refused beside | error |", "|---|---|---|", *lines])


def folded(names: Sequence[str]) -> str:
    """The names in one text, those of the same heads or tails together.

    >>> folded(["grad", "jit under x", "jit from a", "grad from a", "jit from b", "grad from b"])
    'grad, jit under x, [jit, grad] from [a, b]'
    """
    heads: dict[tuple[str, str], list[str]] = {}
    for name in names:
        if parts := _PARTED.fullmatch(name):
            heads.setdefault((parts[2], parts[3]), []).append(parts[1])
    tails: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (word, tail), found in heads.items():
        tails.setdefault((word, tuple(found)), []).append(tail)
    parted = [f"{_any_of(found)} {word} {_any_of(ends)}" for (word, found), ends in tails.items()]
    return ", ".join([*(name for name in names if not _PARTED.fullmatch(name)), *parted])


def unfolded(text: str) -> list[str]:
    """The names of a text of `folded`."""
    choices = [re.split(r"\[(.*?)\]", item) for item in _ITEM.findall(text)]
    return ["".join(parts) for item in choices for parts in itertools.product(*(part.split(", ") for part in item))]


def refused(text: str) -> dict[tuple[str, str], str]:
    """The error of every refused cell, from the table."""
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    return {(row[0], name): row[2].strip("`") for row in rows if row[0] in CALLS for name in unfolded(row[1])}


def _any_of(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"[{', '.join(names)}]"
