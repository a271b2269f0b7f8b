"""Rules of primitives that pick elements by index, or that must know where in the whole they stand."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.random import threefry2x32_p

from redistrib.backends.jax.trace.equation import At, Equation, letters, rule
from redistrib.programs.nest import Nest


@rule("iota")
def _iota(equation: Equation) -> Nest | None:
    if equation.ins:
        return None
    sizes, along = letters("d", equation.outs[0].shape), equation.params["dimension"]
    dtype = equation.params["dtype"]

    def body(at: At) -> Any:
        own = tuple(len(at[name]) for name in sizes)
        start = jnp.asarray(at[f"d{along}"].start).astype(dtype)
        return lax.broadcasted_iota(dtype, own, along) + start

    return equation.nest(sizes, [], [list(sizes)], body=body, indexed={f"d{along}"}, flops=0)


@rule("random_bits")
def _random_bits(equation: Equation) -> Nest | None:
    """Bits of an element depend on its number in the whole array, so a tile computes those of its own numbers."""
    key, out = equation.ins[0], equation.outs[0]
    if "fry" not in str(key.key) or equation.params["bit_width"] != 32 or len(key.shape) != 1 or equation.literals:
        return None
    if not jax.config.jax_threefry_partitionable or math.prod(out.shape) >= 2**32:  # type: ignore[attr-defined]
        return None
    sizes = letters("d", out.shape)

    def body(at: At, data: Any) -> Any:
        own = tuple(len(at[name]) for name in sizes)
        number = jnp.zeros(own, jnp.uint32)
        for k, (name, size) in enumerate(sizes.items()):
            here = lax.broadcasted_iota(jnp.uint32, own, k) + jnp.asarray(at[name].start).astype(jnp.uint32)
            number = number * jnp.uint32(size) + here
        high = jnp.zeros(own, jnp.uint32)
        first, second = (jnp.broadcast_to(jnp.asarray(data)[k], own) for k in (0, 1))
        a, b = threefry2x32_p.bind(first, second, high, number)
        return a ^ b

    return equation.nest(sizes, [[""]], [list(sizes)], body=body, indexed=set(sizes), flops=100)


class _Windows(NamedTuple):
    """How a primitive reads or writes an array by index, window by window.

    Attributes:
        sizes: of the iteration dimensions.
        cut: the dimensions that windows run over, each with its iteration dimension; "" where it is read whole.
        dims: the iteration dimension of every dimension of the array.
        one: the dimension that is picked from, one element at a time, if there is one and it can be cut.
        batch: the iteration dimensions of the indices.
    """

    sizes: dict[str, int]
    cut: list[tuple[int, str]]
    dims: list[str]
    one: int | None
    batch: list[str]

    def beside(self, at: Collection[int], rank: int) -> list[str]:
        """The iteration dimensions of what is read or written, whose windows are `at` these of its dimensions."""
        windows, batch = iter([name for _, name in self.cut]), iter(self.batch)
        return [next(windows) if k in at else next(batch) for k in range(rank)]


def _windows(
    equation: Equation, extent: Sequence[int], picked: Sequence[int], removed: Sequence[int], batching: dict[int, int]
) -> _Windows:
    shape, batch = equation.ins[0].shape, letters("b", equation.ins[1].shape[:-1])
    rest = (k for k in range(len(shape)) if k not in {*removed, *batching})
    cut = [(k, f"w{k}" if extent[k] == shape[k] and k not in picked else "") for k in rest]
    sizes = batch | {name: shape[k] for k, name in cut if name}
    dims = [""] * len(shape)
    for k, name in cut:
        dims[k] = name
    for k, j in batching.items():
        dims[k] = f"b{j}"
    one = _one_picked(picked, removed, equation)
    if one is not None:
        dims[one] = "p"
        sizes["p"] = shape[one]
    return _Windows(sizes, cut, dims, one, list(batch))


@rule("gather")
def _gather(equation: Equation) -> Nest | None:
    numbers, slices = equation.params["dimension_numbers"], equation.params["slice_sizes"]
    shape = equation.ins[0].shape
    batching = dict(zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True))
    windows = _windows(equation, slices, numbers.start_index_map, numbers.collapsed_slice_dims, batching)
    one, offsets = windows.one, set(numbers.offset_dims)

    def body(at: At, *tiles: Any) -> Any:
        own = list(slices)
        for k, name in windows.cut:
            if name:
                own[k] = len(at[name])
        if one is None or len(at["p"]) == shape[one]:
            return equation.run(tiles, slice_sizes=tuple(own))
        operand, rows = equation.operands(tiles)
        start, count = at["p"].start, len(at["p"])
        inside = _masked(rows, shape[one], equation.params["mode"])
        here = (inside >= start) & (inside < start + count)
        local = jnp.clip(inside - start, 0, count - 1)
        found = equation.primitive.bind(
            operand, local, **{**equation.params, "slice_sizes": tuple(own), "mode": lax.GatherScatterMode.CLIP}
        )
        batch = [k for k in range(found.ndim) if k not in offsets]
        mask = lax.broadcast_in_dim(here[..., 0], found.shape, batch)
        nothing: Any = jnp.zeros((), found.dtype)
        if _fills(equation):  # the first part says so where an index is outside the whole
            outside = lax.broadcast_in_dim(((inside < 0) | (inside >= shape[one]))[..., 0], found.shape, batch)
            nothing = jnp.where(outside & (jnp.asarray(start) == 0), _filling(equation, found.dtype), nothing)
        return jnp.where(mask, found, nothing)

    combine = {"p": "sum"} if one is not None else {}
    indexed = {"p"} if one is not None else set()
    return equation.nest(
        windows.sizes,
        [windows.dims, [*windows.batch, ""]],
        [windows.beside(offsets, len(equation.outs[0].shape))],
        body=body,
        combine=combine,
        indexed=indexed,
        linear=((0,),) if _is_linear(equation) else (),
        flops=0,
    )


def _one_picked(picked: Sequence[int], removed: Sequence[int], equation: Equation) -> int | None:
    """The dimension that is picked from, one element at a time, if there is one and it can be cut."""
    literal = 0 in equation.literals or 1 in equation.literals
    if len(picked) != 1 or picked[0] not in removed or literal:
        return None
    if not any(kind in equation.ins[0].dtype for kind in ("float", "int", "complex")):
        return None
    return int(picked[0])


def _fills(equation: Equation) -> bool:
    return str(equation.params["mode"]).upper().endswith("FILL_OR_DROP")


def _is_linear(equation: Equation) -> bool:
    """Whether a gather of a sum is the sum of gathers: not where it fills in a number."""
    given = equation.params.get("fill_value")
    return not _fills(equation) or given == 0 or (given is None and "float" in equation.outs[0].dtype)


def _filling(equation: Equation, dtype: Any) -> Any:
    """What a gather gives outside the whole: not a number, or the least integer, or the largest without a sign."""
    given = equation.params.get("fill_value")
    if given is not None:
        return jnp.asarray(given, dtype)
    if jnp.issubdtype(dtype, jnp.inexact):
        return jnp.asarray(jnp.nan, dtype)
    return jnp.asarray(
        jnp.iinfo(dtype).min if jnp.issubdtype(dtype, jnp.signedinteger) else jnp.iinfo(dtype).max, dtype
    )


def _masked(rows: Any, size: int, mode: Any) -> Any:
    """Indices as signed integers, clipped to the whole array where the primitive clips."""
    signed = rows.astype(jnp.int32)
    return jnp.clip(signed, 0, size - 1) if str(mode).upper().endswith("CLIP") else signed


@rule("scatter-add", "scatter_add", "scatter", "scatter-mul", "scatter_mul", "scatter-min", "scatter-max")
def _scatter(equation: Equation) -> Nest | None:
    """Windows may be cut, and the dimension that is picked from; sums also along the updates."""
    numbers = equation.params["dimension_numbers"]
    shape, _, updates = (form.shape for form in equation.ins)
    if equation.literals:
        return None
    adds = equation.kind in ("scatter-add", "scatter_add")
    batching = dict(zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True))
    windows_at = list(numbers.update_window_dims)
    rest = [k for k in range(len(shape)) if k not in {*numbers.inserted_window_dims, *batching}]
    extent = [0] * len(shape)
    for k, j in zip(rest, windows_at, strict=True):
        extent[k] = updates[j]
    picked, inserted = numbers.scatter_dims_to_operand_dims, numbers.inserted_window_dims
    windows = _windows(equation, extent, picked, inserted, batching)
    one, sizes = windows.one, windows.sizes
    summed = [name for k, name in enumerate(windows.batch) if k not in batching.values()]

    def body(at: At, *tiles: Any) -> Any:
        base, rows, parts = equation.operands(tiles)
        if adds and any(len(at[name]) < sizes[name] for name in summed):  # the first alone adds to what is there
            first = jnp.asarray(True)
            for name in summed:
                first = first & (jnp.asarray(at[name].start) == 0)
            base = jnp.where(first, base, jnp.zeros((), base.dtype))
        params = dict(equation.params)
        if one is not None and len(at["p"]) < shape[one]:
            start, count = at["p"].start, len(at["p"])
            inside = _masked(rows, shape[one], params["mode"])
            local = inside - start
            rows = jnp.where((local >= 0) & (local < count), local, count)  # beyond the end: dropped
            params["mode"] = lax.GatherScatterMode.FILL_OR_DROP
        return equation.primitive.bind(base, rows, parts, **params)

    combine: Mapping[str, str] = dict.fromkeys(summed, "sum") if adds else {}
    return equation.nest(
        sizes,
        [windows.dims, [*windows.batch, ""], windows.beside(windows_at, len(updates))],
        [windows.dims],
        body=body,
        combine=combine,
        whole=() if adds else summed,
        indexed={*(summed if adds else ()), *(("p",) if one is not None else ())},
        linear=((0, 2),) if adds else (),
        flops=1,
    )
