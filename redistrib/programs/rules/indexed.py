"""Rules of primitives that read or write elements by index, or depend on the position of a tile in the array."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.random import threefry2x32_p

from redistrib.backends.jax.offsets import integers_for
from redistrib.programs.ir.nest import Nest
from redistrib.programs.ir.record import Sums
from redistrib.programs.rules.equation import ArrayForm, At, Equation, is_whole, letters, rule, written_in_place
from redistrib.programs.rules.sums import outside_of, sum_identity


@rule("iota")
def _iota(equation: Equation) -> Nest | None:
    if equation.ins:
        return None
    sizes, along = letters("d", equation.outs[0].shape), equation.params["dimension"]
    dtype = equation.params["dtype"]

    def body(at: At) -> Any:
        tile_shape = tuple(len(at[name]) for name in sizes)
        numbers = at[f"d{along}"]
        wide = integers_for(max(sizes.values()))  # so that numbers are rounded, or wrap, once, after the addition
        return (lax.broadcasted_iota(wide, tile_shape, along) + jnp.asarray(numbers.start).astype(wide)).astype(dtype)

    return equation.nest(sizes, [], [list(sizes)], body=body, indexed={f"d{along}"}, flops=0)


@rule("random_bits")
def _random_bits(equation: Equation) -> Nest | None:
    """The bits of an element depend on its number within its key, so a tile computes the bits of its numbers."""
    out = equation.outs[0]
    if not _is_counted(equation, out.shape):
        return None

    def written(high: Any, low: Any) -> Any:
        """The two words of 32 bits as one of 64, or combined, of which fewer bits take the lowest."""
        if equation.params["bit_width"] == 64:
            return lax.shift_left(high.astype(out.dtype), jnp.asarray(32, out.dtype)) | low.astype(out.dtype)
        return (high ^ low).astype(out.dtype)

    return _counted(equation, out.shape, [], written)


def _is_counted(equation: Equation, shape: Sequence[int]) -> bool:
    """Whether element `i` of the result of keys is Threefry's hash of `i`, and `i` fits in 32 bits."""
    key = equation.ins[0]
    partitionable: bool = jax.config.jax_threefry_partitionable  # type: ignore[attr-defined]
    counted = math.prod(shape[len(key.shape) - 1 :])
    return partitionable and "fry" in str(key.key) and not equation.literals and counted < 2**32


def _counted(equation: Equation, shape: Sequence[int], after: list[str], written: Callable[[Any, Any], Any]) -> Nest:
    """The nest of hashes of the numbers of elements; `written` makes the result of their two words."""
    keys = len(equation.ins[0].shape) - 1  # dimensions in which keys lie side by side
    sizes = letters("d", shape)
    numbered = list(sizes)[keys:]  # of the numbers of one key

    def body(at: At, data: Any) -> Any:
        tile_shape = tuple(len(at[name]) for name in sizes)
        number = jnp.zeros(tile_shape, jnp.uint32)
        for k, name in enumerate(numbered, keys):
            along = lax.broadcasted_iota(jnp.uint32, tile_shape, k) + jnp.asarray(at[name].start).astype(jnp.uint32)
            number = number * jnp.uint32(sizes[name]) + along
        high = jnp.zeros(tile_shape, jnp.uint32)
        words = [jnp.asarray(data)[..., k] for k in (0, 1)]  # of one key they are numbers, which take no memory
        first, second = (lax.broadcast_in_dim(w, tile_shape, tuple(range(keys))) for w in words) if keys else words
        return written(*threefry2x32_p.bind(first, second, high, number))

    outs = [[*sizes, *after]]
    return equation.nest(sizes, [[*list(sizes)[:keys], ""]], outs, body=body, indexed=set(numbered), flops=100)


@rule("random_split")
def _split(equation: Equation) -> Nest | None:
    """Both words of a new key depend on its number among those of its key."""
    shape = equation.outs[0].shape[:-1]
    if not _is_counted(equation, shape):
        return _keys(equation)
    return _counted(equation, shape, [""], lambda a, b: jnp.stack([a, b], -1))


@rule("random_fold_in", "random_seed")
def _keys(equation: Equation) -> Nest | None:
    """Operations that make keys of keys, or of integers, one by one."""
    if any(equation.ins[k].shape for k in equation.literals):
        return None
    shape = equation.ins[0].shape[:-1] if equation.ins[0].key is not None else equation.ins[0].shape
    sizes = letters("d", shape)

    def dims(form: ArrayForm) -> list[str]:
        return [*sizes, *[""] * (len(form.shape) - len(sizes))] if form.shape else []

    ins, outs = ([dims(form) for form in side] for side in (equation.ins, equation.outs))
    return equation.nest(sizes, ins, outs, flops=100)


class _Windows(NamedTuple):
    """The windows in which a primitive reads or writes an array by index.

    Attributes:
        sizes: of the iteration dimensions.
        cut: the dimensions along which windows extend, each with its iteration dimension; "" if it is read whole.
        dims: the iteration dimension of every dimension of the array.
        looked_up: the dimension indexed one element at a time, if there is one and it can be cut.
        batch: the iteration dimensions of the indices.
    """

    sizes: dict[str, int]
    cut: list[tuple[int, str]]
    dims: list[str]
    looked_up: int | None
    batch: list[str]

    def beside(self, at: Collection[int], rank: int) -> list[str]:
        """The iteration dimensions of an operand whose windows lie along its dimensions `at`."""
        windows, batch = iter([name for _, name in self.cut]), iter(self.batch)
        return [next(windows) if k in at else next(batch) for k in range(rank)]


def _windows(
    equation: Equation, extent: Sequence[int], picked: Sequence[int], removed: Sequence[int], batching: dict[int, int]
) -> _Windows:
    shape, batch = equation.ins[0].shape, letters("b", equation.ins[1].shape[:-1])
    window_dims = (k for k in range(len(shape)) if k not in {*removed, *batching})
    cut = [(k, f"w{k}" if extent[k] == shape[k] and k not in picked else "") for k in window_dims]
    sizes = batch | {name: shape[k] for k, name in cut if name}
    dims = [""] * len(shape)
    for k, name in cut:
        dims[k] = name
    for k, j in batching.items():
        dims[k] = f"b{j}"
    looked_up = _looked_up_dim(picked, removed, equation)
    if looked_up is not None:
        dims[looked_up] = "p"
        sizes["p"] = shape[looked_up]
    return _Windows(sizes, cut, dims, looked_up, list(batch))


def bits_looked_up(equation: Equation) -> Equation | None:
    """The gather of the bits of floats, where elements are indexed along a dimension that may be cut.

    Each element of the result is on one device, and zero bits are on the others. So the sum of the bits is exact, with
    signs of zeros and bits of NaNs. None if the gather itself is exact.
    """
    numbers = equation.params["dimension_numbers"]
    looked_up = _looked_up_dim(numbers.start_index_map, numbers.collapsed_slice_dims, equation)
    form = equation.outs[0]
    if looked_up is None or equation.ins[0].shape[looked_up] < 2 or not jnp.issubdtype(form.dtype, jnp.floating):
        return None
    return replace(equation, outs=(form._replace(dtype=f"uint{_bits(form.dtype)}"),))


@rule("gather")
def _gather(equation: Equation) -> Nest | None:
    """Windows may be cut, and so may the indexed dimension, by a look-up in each part; see `bits_looked_up`."""
    numbers, slices = equation.params["dimension_numbers"], equation.params["slice_sizes"]
    shape = equation.ins[0].shape
    batching = dict(zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True))
    windows = _windows(equation, slices, numbers.start_index_map, numbers.collapsed_slice_dims, batching)
    looked_up, offsets, dtype = windows.looked_up, set(numbers.offset_dims), equation.outs[0].dtype

    def body(at: At, *tiles: Any) -> Any:
        tile_shape = list(slices)
        for k, name in windows.cut:
            if name:
                tile_shape[k] = len(at[name])
        if looked_up is None or is_whole(at["p"], shape[looked_up]):
            return written(equation.run(tiles, slice_sizes=tuple(tile_shape)))
        operand, rows = equation.operands(tiles)
        index, outside = _looked_up(rows, shape, looked_up, equation)
        start, count = at["p"].start, len(at["p"])
        inside = (index >= start) & (index < start + count)
        if _fills(equation):  # the first part has the fill value
            inside = jnp.where(outside, jnp.asarray(start) == 0, inside)
        params = {"slice_sizes": tuple(tile_shape), "mode": lax.GatherScatterMode.CLIP, "unique_indices": False}
        local = jnp.clip(index - start, 0, count - 1)
        elements = equation.primitive.bind(operand, local, **{**equation.params, **params})
        batch = [k for k in range(elements.ndim) if k not in offsets]
        if _fills(equation):
            fill = lax.broadcast_in_dim(outside[..., 0], elements.shape, batch)
            elements = jnp.where(fill, _filling(equation, elements.dtype), elements)
        elements = written(elements)
        mask = lax.broadcast_in_dim(inside[..., 0], elements.shape, batch)
        return jnp.where(mask, elements, jnp.zeros((), elements.dtype))

    def written(elements: Any) -> Any:
        return elements if elements.dtype == dtype else lax.bitcast_convert_type(elements, dtype)

    combine = {"p": "sum"} if looked_up is not None else {}
    indexed = {"p"} if looked_up is not None else set()
    return equation.nest(
        windows.sizes,
        [windows.dims, [*windows.batch, ""]],
        [windows.beside(offsets, len(equation.outs[0].shape))],
        body=body,
        combine=combine,
        indexed=indexed,
        flops=0,
    )


def _looked_up_dim(picked: Sequence[int], removed: Sequence[int], equation: Equation) -> int | None:
    """The dimension indexed one element at a time, if there is one and it can be cut."""
    literal = 0 in equation.literals or 1 in equation.literals
    if len(picked) != 1 or picked[0] not in removed or literal:
        return None
    dtype = equation.ins[0].dtype
    if equation.kind == "gather" and _bits(dtype) < 8:  # parts of a look-up are added as integers
        return None
    return int(picked[0]) if any(kind in dtype for kind in ("float", "int", "complex")) else None


def _bits(dtype: str) -> int:
    """Bits of an integer or float; zero for other element types, complex numbers included."""
    if "key<" not in dtype and jnp.issubdtype(jnp.dtype(dtype), jnp.floating):
        return int(jnp.finfo(dtype).bits)
    return int(jnp.iinfo(dtype).bits) if "int" in dtype else 0


def _fills(equation: Equation) -> bool:
    return outside_of(equation) is lax.GatherScatterMode.FILL_OR_DROP


def _filling(equation: Equation, dtype: Any) -> Any:
    """The value of a gather outside the array: a NaN, or the least signed integer, or the largest unsigned one."""
    fill_value = equation.params.get("fill_value")
    if fill_value is not None:
        return jnp.asarray(fill_value, dtype)
    if jnp.issubdtype(dtype, jnp.inexact):
        return jnp.asarray(jnp.nan, dtype)
    return jnp.asarray(
        jnp.iinfo(dtype).min if jnp.issubdtype(dtype, jnp.signedinteger) else jnp.iinfo(dtype).max, dtype
    )


def _looked_up(rows: Any, shape: Sequence[int], dim: int, equation: Equation) -> tuple[Any, Any]:
    """Indices clipped to a dimension, as signed integers, and a mask of those outside of it.

    They are compared in their element type, in which the largest unsigned integer is not -1. A gather with a fill value
    converts them to signed integers first, as JAX does.
    """
    wide = integers_for(max(shape))
    if equation.kind == "gather" and _fills(equation):
        rows = rows.astype(wide)
    limits = jnp.iinfo(rows.dtype)
    low, high = (rows.dtype.type(min(bound, limits.max)) for bound in (0, shape[dim] - 1))
    return jnp.clip(rows, low, high).astype(wide), (rows < low) | (rows > high)


@rule(
    "scatter-add", "scatter_add", "scatter-sub", "scatter", "scatter-mul", "scatter_mul", "scatter-min", "scatter-max"
)
def _scatter(equation: Equation) -> Nest | None:
    """Windows may be cut, and so may the indexed dimension; sums may be cut along the updates too."""
    numbers = equation.params["dimension_numbers"]
    shape, _, updates = (form.shape for form in equation.ins)
    if equation.literals:
        return None
    adds = equation.record.sums is Sums.UPDATES
    batching = dict(zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True))
    windows_at = list(numbers.update_window_dims)
    window_dims = [k for k in range(len(shape)) if k not in {*numbers.inserted_window_dims, *batching}]
    extent = [0] * len(shape)
    for k, j in zip(window_dims, windows_at, strict=True):
        extent[k] = updates[j]
    picked, inserted = numbers.scatter_dims_to_operand_dims, numbers.inserted_window_dims
    windows = _windows(equation, extent, picked, inserted, batching)
    looked_up, sizes = windows.looked_up, windows.sizes
    summed = [name for k, name in enumerate(windows.batch) if k not in batching.values()]

    def body(at: At, *tiles: Any) -> Any:
        base, rows, parts = equation.operands(tiles)
        if adds and not all(
            is_whole(at[name], sizes[name]) for name in summed
        ):  # only the first part adds to the operand
            first = jnp.asarray(True)
            for name in summed:
                first = first & (jnp.asarray(at[name].start) == 0)
            base = jnp.where(first, base, sum_identity(base.dtype))
        params = dict(equation.params)
        if looked_up is not None and not is_whole(
            at["p"], shape[looked_up]
        ):  # or longer, with the tails of an uneven cut
            start, count = at["p"].start, len(at["p"])
            index, outside = _looked_up(rows, shape, looked_up, equation)
            inside = (index >= start) & (index < start + count)
            if outside_of(equation) is not lax.GatherScatterMode.CLIP:
                inside &= ~outside
            rows = jnp.where(inside, index - start, count)  # beyond the end: dropped
            drop = lax.GatherScatterMode.FILL_OR_DROP
            params |= {"mode": drop, "indices_are_sorted": False, "unique_indices": False}
        return written_in_place(lambda base: equation.primitive.bind(base, rows, parts, **params), base)

    combine: Mapping[str, str] = dict.fromkeys(summed, "sum") if adds else {}
    return equation.nest(
        sizes,
        [windows.dims, [*windows.batch, ""], windows.beside(windows_at, len(updates))],
        [windows.dims],
        body=body,
        combine=combine,
        whole=() if adds else summed,
        indexed={*(summed if adds else ()), *(("p",) if looked_up is not None else ())},
        flops=0 if looked_up is not None else 1,  # of the points along "p" only one adds; its bytes take longer
    )
