"""Random JAX functions through `rd.distribute`, beside `jax.jit`: the same numbers, or one of the library's errors.

A function is a short list of operations, drawn one after the other, on arguments of every element type. Integers are of
the whole range. Floats are multiples of a power of two, few enough bits long that every sum is exact in any order, with
infinities, NaN and negative zeros among them. So integers and floats must agree bit for bit; only NaN may have other
bits, and a zero another sign where something is summed.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import redistrib as rd
from redistrib.programs.ir.primitives import record_of
from redistrib.programs.ir.record import Opens
from redistrib.programs.rules.inline import trace
from redistrib.programs.rules.traced import TraceOptions
from redistrib.programs.run.arguments import leaf_names
from redistrib.programs.run.region import REGIONS
from tests.fuzz import closures, operations, primitives, structured, windows
from tests.fuzz.guard import Failure, attempt
from tests.fuzz.values import FLOATS, INTEGERS, WIDE, Function, Value

OPERATIONS = (*operations.OPERATIONS, *structured.OPERATIONS, *windows.OPERATIONS)
NARROW = ("float8_e4m3fn", "float8_e5m2")
MESHES: tuple[dict[str, int], ...] = ({"d": 4}, {"d": 4}, {"d": 2}, {"d": 2, "t": 2}, {"d": 8}, {"d": 4, "t": 2})
UNEVEN: tuple[dict[str, int], ...] = ({"d": 3}, {"d": 5}, {"d": 3, "t": 2}, {"d": 2, "t": 3})
UNEVENLY = 0.2  # of the functions, cut by axes that do not divide their dimensions
MOST = 6  # operations of a function
SEARCHED = 0.15  # of the functions, whose schedule is found by a search


def check(seed: int, index: int) -> str:
    """Distribute the function of this number: "agrees", or "refused" by an error of the library.

    `jax.jit` says what is right; where ours is something else, the operations one by one do, since XLA for CPUs writes
    over what it still reads in some programs: then "agrees with single operations". A function that it cannot run
    itself is "not run by jit".

    Raises:
        Failure: if it computes something else, or anything but a `RedistribError` comes out.
    """
    function = drawn(seed, index)
    rng = random.Random(f"schedule/{seed}/{index}")
    mesh = rng.choice(MESHES)
    unevenly = random.Random(f"uneven/{seed}/{index}")
    if is_uneven := unevenly.random() < UNEVENLY:
        mesh = unevenly.choice(UNEVEN)
    schedule: Any = _schedule(function, mesh, rng, is_uneven)
    if rng.random() < 0.3:
        schedule = [*_work(function, mesh, rng), *schedule]
    exact = rng.random() < 0.2
    ends = _ends(function, mesh, rng) if rng.random() < 0.3 else None
    if random.Random(f"search/{seed}/{index}").random() < SEARCHED:
        schedule = "auto"
    case = f"{function}; on {mesh} by {schedule}{', exact' if exact else ''}{f' to {ends}' if ends else ''}"
    with jax.enable_x64(function.wide):
        try:
            wanted = [np.asarray(array) for array in jax.jit(function)(*function.arguments)]
        except jax.errors.JaxRuntimeError as error:  # XLA:CPU multiplies bfloat16 into float32 in some shapes only
            if "UNIMPLEMENTED" in str(error):
                return "not run by jit"
            raise

    def distributed() -> list[Any]:
        over = _mesh(tuple(mesh.items()))
        with jax.enable_x64(function.wide):
            call = rd.distribute(function, function.arguments, over, schedule=schedule, exact=exact, out_shardings=ends)
            return [np.asarray(array) for array in call(*function.arguments)]

    results = attempt(distributed, case)
    if results is None:
        return "refused"
    difference = _first_difference(function, results, wanted)
    if not difference:
        return "agrees"
    with jax.enable_x64(function.wide):
        alone = [np.asarray(array) for array in function(*function.arguments)]
    if _first_difference(function, results, alone):
        raise Failure("wrong", difference, case=case)
    return "agrees with single operations"


def _first_difference(function: Function, results: list[Any], wanted: list[Any]) -> str:
    """The first result that is not as wanted; empty if all are."""
    for number, (one, other) in enumerate(zip(results, wanted, strict=True)):
        value = function.values[function.results[number]]
        difference = _difference(one, other, function.sums, value.is_float and not value.grain)
        if difference:
            return f"result {number} {difference}"
    return ""


def drawn(seed: int, index: int) -> Function:
    """The function of a number."""
    rng = random.Random(f"function/{seed}/{index}")
    function = Function(rng, wide=rng.random() < 0.15)
    with jax.enable_x64(function.wide):
        _draw(function)
        primitives.extend(function, f"{seed}/{index}")
        closures.extend(function, f"{seed}/{index}")
    return function


def _draw(function: Function) -> None:
    rng = function.rng
    shape = tuple(rng.choice((4, 8, 8, 4, 2)) for _ in range(rng.choice((1, 2, 2, 3))))
    dtype = _dtype(rng, function.wide)
    _argument(function, (8, *shape[1:]), dtype)
    for _ in range(rng.choice((0, 1, 1, 2))):
        _argument(
            function,
            rng.choice(((8, *shape[1:]), shape[1:], (), (4, 8))),
            rng.choice((dtype, _dtype(rng, function.wide))),
        )
    for _ in range(rng.randint(1, MOST)):
        for _ in range(20):
            if rng.choice(OPERATIONS)(function):
                break


@cache
def _mesh(axes: tuple[tuple[str, int], ...]) -> jax.sharding.Mesh:
    sizes = tuple(size for _, size in axes)
    devices = np.array(jax.devices()[: int(np.prod(sizes))]).reshape(sizes)
    return jax.sharding.Mesh(devices, tuple(name for name, _ in axes))


def _schedule(function: Function, mesh: dict[str, int], rng: random.Random, is_uneven: bool) -> list[Any]:
    tactics = []
    for axis, size in mesh.items():
        cut: dict[str, int] = {}
        for k, value in enumerate(function.values[: len(function.arguments)]):
            dims = [dim for dim, n in enumerate(value.shape) if n % size == 0 or (is_uneven and n > 1)]
            if dims and (k == 0 or rng.random() < 0.4):
                cut[f"arg{k}"] = 0 if k == 0 and 0 in dims and rng.random() < 0.7 else rng.choice(dims)
        if cut:
            tactics.append(rd.along(axis, cut))
    return tactics


def _work(function: Function, mesh: dict[str, int], rng: random.Random) -> list[Any]:
    """Cuts of the work of two operations, along any of their dimensions: those that are summed over among them."""
    with jax.enable_x64(function.wide):
        rules = {kind: rule for kind, rule in REGIONS.items() if record_of(kind).opens is not Opens.LOOP}
        names = leaf_names(function, function.arguments)
        graph = trace(function, function.arguments, names, TraceOptions(rules, opens_loops=True)).graph
    tactics = []
    for axis in rng.choices(sorted(mesh), k=2):
        options = [
            (operation.name, name)
            for operation in graph.operations
            for name, over in operation.nest.ranges
            if len(over) % mesh[axis] == 0
        ]
        if options:
            tactics.append(rd.work(axis, dict([rng.choice(options)])))
    return tactics


def _ends(function: Function, mesh: dict[str, int], rng: random.Random) -> list[Any]:
    """How results are to lie: cut by an axis of the mesh, or left open."""
    specs: list[Any] = []
    for value in (function.values[k] for k in function.results):
        axis = rng.choice(sorted(mesh))
        dims = [dim for dim, n in enumerate(value.shape) if n and n % mesh[axis] == 0]
        cut = rng.choice(dims) if dims else None
        whole = jax.sharding.PartitionSpec(*[axis if dim == cut else None for dim in range(len(value.shape))])
        specs.append(rng.choice((whole, whole, None)))
    return specs


def _difference(found: Any, wanted: Any, sums: bool, is_rounded: bool) -> str:
    """How two arrays differ, in words; empty if they are the same.

    A quotient may be rounded twice: XLA takes some of them for products with a reciprocal.
    """
    if (found.shape, found.dtype) != (wanted.shape, wanted.dtype):
        return f"is {found.dtype}{list(found.shape)} and not {wanted.dtype}{list(wanted.shape)}"
    if jnp.issubdtype(found.dtype, jnp.inexact):
        parts = [np.asarray(array, np.complex128).ravel().view(np.float64) for array in (found, wanted)]
        one, other = parts
        near = one == other
        if is_rounded:
            with np.errstate(invalid="ignore"):  # infinities, which are equal or not
                near |= np.abs(one - other) <= 4 * float(jnp.finfo(found.dtype).eps) * np.abs(other)
        same = (np.isnan(one) & np.isnan(other)) | (near & (sums | (np.signbit(one) == np.signbit(other))))
    else:
        one, other = found.ravel(), wanted.ravel()
        same = one == other
    if same.all():
        return ""
    first = int(np.flatnonzero(~same)[0])
    return f"has {one[first]} and not {other[first]} at element {first}, and so on"


# --------------------------------------------------------------------------------------------- arguments


def _dtype(rng: random.Random, wide: bool) -> str:
    if wide and rng.random() < 0.7:
        return rng.choice(WIDE)
    return rng.choice(rng.choice((INTEGERS, FLOATS, FLOATS, INTEGERS, FLOATS, ("bool",), ("complex64",), NARROW)))


def _argument(function: Function, shape: Sequence[int], dtype: str) -> None:
    rng = np.random.default_rng(function.rng.getrandbits(32))
    shape = tuple(shape)
    if dtype == "bool":
        array: Any = rng.random(shape) < 0.5
        value = Value(shape, dtype)
    elif dtype in (*INTEGERS, "int64", "uint64"):
        limits = np.iinfo(dtype)
        array = rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
        if function.rng.random() < 0.5:  # small ones, for indices among other things
            array = array % np.dtype(dtype).type(11) - np.dtype(dtype).type(3 if limits.min else 0)
        array = np.asarray(array).astype(dtype)
        value = Value(shape, dtype)
    else:
        array = rng.integers(-3, 4, shape).astype(np.float32)
        if dtype.startswith("complex"):  # infinities in products of these depend on the algorithm
            array = array + 1j * rng.integers(-3, 4, shape)
        elif function.rng.random() < 0.6 and array.ndim:
            for special in function.rng.sample((np.inf, -np.inf, np.nan, -0.0, -0.0), 2):
                array.reshape(-1)[rng.integers(0, array.size, max(1, array.size // 8))] = special
        elif function.rng.random() < 0.4:
            array = np.full(shape, function.rng.choice((np.inf, np.nan, -0.0, 0.0, 2.0)), np.float32)
        array = np.asarray(array).astype(jnp.dtype(dtype))
        value = Value(shape, dtype, 5.0 if dtype.startswith("complex") else 3.0, 1.0)
    function.arguments.append(array)
    function.values.append(value)
