"""Rules of primitives that rearrange elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
from jax import lax
from jax.experimental.layout import Layout, with_layout_constraint

from redistrib.programs.ir.nest import Nest
from redistrib.programs.ir.ops import reshaping
from redistrib.programs.rules.equation import At, Dims, Equation, EquationBody, letters, rule


@rule("transpose")
def _transpose(equation: Equation) -> Nest:
    names = letters("d", equation.ins[0].shape)
    turned = [f"d{k}" for k in equation.params["permutation"]]
    return equation.nest(names, [list(names)], [turned], flops=0)


@rule("reshape", "squeeze", "expand_dims")
def _reshape(equation: Equation) -> Nest | None:
    if equation.literals or (equation.params.get("dimensions") and equation.kind == "reshape"):
        return None
    nest = reshaping(equation.ins[0].shape, equation.outs[0].shape)
    reads = (replace(nest.reads[0], array="a0"),)
    return replace(nest, name=equation.kind, reads=reads)


def _uncut(equation: Equation, free: Sequence[bool]) -> tuple[dict[str, int], Dims]:
    """Iteration dimensions for the free dimensions of the first operand, and its access; the others are read whole."""
    shape = equation.ins[0].shape
    sizes = {f"d{k}": size for k, (size, is_free) in enumerate(zip(shape, free, strict=True)) if is_free}
    return sizes, [f"d{k}" if is_free else "" for k, is_free in enumerate(free)]


@rule("slice")
def _slice(equation: Equation) -> Nest:
    shape, params = equation.ins[0].shape, equation.params
    starts, limits = params["start_indices"], params["limit_indices"]
    strides = params["strides"] or (1,) * len(shape)
    free = [(a, b, s) == (0, n, 1) for a, b, s, n in zip(starts, limits, strides, shape, strict=True)]
    sizes, dims = _uncut(equation, free)

    def body(at: At, *tiles: Any) -> Any:
        ends = [len(at[f"d{k}"]) if is_free else limits[k] for k, is_free in enumerate(free)]
        return equation.run(tiles, limit_indices=tuple(ends))

    return equation.nest(sizes, [dims], [dims], body=EquationBody(equation, body), flops=0)


@rule("rev", "cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")
def _along(equation: Equation) -> Nest:
    along = equation.params.get("dimensions", equation.params.get("axis"))
    fixed = {along} if isinstance(along, int) else set(along)
    sizes, dims = _uncut(equation, [k not in fixed for k in range(len(equation.ins[0].shape))])
    return equation.nest(
        sizes, [dims], [dims], flops=0 if equation.kind == "rev" else equation.ins[0].shape[min(fixed)]
    )


@rule("sort", "top_k", "approx_top_k")
def _sorted(equation: Equation) -> Nest:
    rank = len(equation.ins[0].shape)
    params = equation.params
    fixed = next((params[name] for name in ("dimension", "axis", "reduction_dimension") if name in params), -1) % rank
    sizes, dims = _uncut(equation, [k != fixed for k in range(rank)])
    count = equation.ins[0].shape[fixed]  # of a row, whose elements are compared about log2(count) times each
    compared = count * max(1, (count - 1).bit_length())
    return equation.nest(sizes, [dims] * len(equation.ins), [dims] * len(equation.outs), flops=compared)


@rule("concatenate")
def _concatenate(equation: Equation) -> Nest:
    along = equation.params["dimension"]
    sizes, dims = _uncut(equation, [k != along for k in range(len(equation.ins[0].shape))])
    if equation.literals:
        return equation.nest({}, *([[""] * len(f.shape) for f in side] for side in (equation.ins, equation.outs)))
    dtype = equation.outs[0].dtype

    def in_bytes(_: At, *tiles: Any) -> Any:
        """XLA:CPU of JAX 0.10 ends the process where it concatenates integers of 2 bits."""
        return lax.concatenate([tile.astype(jnp.int8) for tile in tiles], along).astype(dtype)

    body = in_bytes if dtype in ("int2", "uint2") else None
    return equation.nest(sizes, [dims] * len(equation.ins), [dims], flops=0, body=body)


@rule("split")
def _split(equation: Equation) -> Nest:
    along = equation.params["axis"]
    sizes, dims = _uncut(equation, [k != along for k in range(len(equation.ins[0].shape))])
    return equation.nest(sizes, [dims], [dims] * len(equation.outs), flops=0)


@rule("pad")
def _pad(equation: Equation) -> Nest:
    config = equation.params["padding_config"]
    sizes, dims = _uncut(equation, [tuple(entry) == (0, 0, 0) for entry in config])
    return equation.nest(sizes, [dims, []], [dims], flops=0)


@rule("dynamic_slice")
def _dynamic_slice(equation: Equation) -> Nest:
    shape, extents = equation.ins[0].shape, equation.params["slice_sizes"]
    free = [n == m for n, m in zip(shape, extents, strict=True)]
    sizes, dims = _uncut(equation, free)

    def body(at: At, *tiles: Any) -> Any:
        tile_shape = tuple(len(at[f"d{k}"]) if is_free else extents[k] for k, is_free in enumerate(free))
        return equation.run(tiles, slice_sizes=tile_shape)

    ins = [dims, *[[]] * len(shape)]
    return equation.nest(sizes, ins, [dims], body=body, flops=0)


@rule("dynamic_update_slice")
def _dynamic_update(equation: Equation) -> Nest:
    shape, update = equation.ins[0].shape, equation.ins[1].shape
    sizes, dims = _uncut(equation, [n == m for n, m in zip(shape, update, strict=True)])

    return equation.nest(sizes, [dims, dims, *[[]] * len(shape)], [dims], flops=0)


@rule("stack")
def _stack(equation: Equation) -> Nest | None:
    if equation.literals:
        return None
    names, along = letters("d", equation.ins[0].shape), equation.params["axis"]
    dims = list(names)
    return equation.nest(names, [dims] * len(equation.ins), [[*dims[:along], "", *dims[along:]]], flops=0)


@rule("unstack")
def _unstack(equation: Equation) -> Nest:
    along = equation.params["axis"]
    sizes, dims = _uncut(equation, [k != along for k in range(len(equation.ins[0].shape))])
    return equation.nest(sizes, [dims], [[*dims[:along], *dims[along + 1 :]]] * len(equation.outs), flops=0)


@rule("tile")
def _tile(equation: Equation) -> Nest:
    """A dimension is copies of elements, of which the elements may be cut if there is one copy."""
    times = equation.params["reps"]
    names = letters("d", equation.ins[0].shape)
    copies = {f"r{k}": n for k, n in enumerate(times) if n > 1}
    out = [(f"r{k}", name) if times[k] > 1 else name for k, name in enumerate(names)]

    def body(at: At, *tiles: Any) -> Any:
        return equation.run(tiles, reps=tuple(len(at[f"r{k}"]) if n > 1 else n for k, n in enumerate(times)))

    return equation.nest(copies | names, [list(names)], [out], body=body, flops=0)


@rule("select_and_scatter")
def _windows(equation: Equation) -> Nest:
    params, rank = equation.params, len(equation.ins[0].shape)
    window, strides = params["window_dimensions"], params["window_strides"]
    ones = (1,) * rank
    dilations = [params.get(name) or ones for name in ("base_dilation", "window_dilation")]
    free = [
        (window[k], strides[k], tuple(params["padding"][k]), dilations[0][k], dilations[1][k]) == (1, 1, (0, 0), 1, 1)
        for k in range(rank)
    ]
    sizes, dims = _uncut(equation, free)
    ins = [dims if form.shape else [] for form in equation.ins]  # of any function: an initial value for each array
    return equation.nest(sizes, ins, [dims] * len(equation.outs), flops=1)


@rule("fft")
def _fft(equation: Equation) -> Nest:
    rank, turned = len(equation.ins[0].shape), len(equation.params["fft_lengths"])
    sizes, dims = _uncut(equation, [k < rank - turned for k in range(rank)])

    def body(
        at: At, *tiles: Any
    ) -> Any:  # XLA for CPUs transforms row-major arrays only, and may choose another layout
        return with_layout_constraint(equation.run(tiles), Layout(tuple(range(rank))))

    count = math.prod(equation.params["fft_lengths"])  # 5 n log2(n) operations, as benchmarks of transforms count
    flops = round(5 * count * math.log2(max(2, count)))
    return equation.nest(sizes, [dims], [dims], body=body, flops=flops)


_OF_VECTORS = ("tridiagonal_solve", "lu_pivots_to_permutation")  # whose first operand is a vector for each matrix


@rule(
    "cholesky",
    "lu",
    "geqrf",
    "householder_product",
    "qr",
    "eigh",
    "eig",
    "svd",
    "triangular_solve",
    "tridiagonal_solve",
    "tridiagonal",
    "hessenberg",
    "schur",
    "geqp3",
    "ormqr",
    "symmetric_product",
    "lu_pivots_to_permutation",
)
def _matrices(equation: Equation) -> Nest:
    """Matrices are whole; their batch dimensions may be cut."""
    stacked = len(equation.ins[0].shape) - (1 if equation.kind in _OF_VECTORS else 2)
    sizes = letters("d", equation.ins[0].shape[:stacked])
    ins, outs = (
        [[*sizes, *[""] * (len(form.shape) - stacked)] for form in side] for side in (equation.ins, equation.outs)
    )
    return equation.nest(sizes, ins, outs, flops=_of_one_matrix(equation, stacked))


def _of_one_matrix(equation: Equation, stacked: int) -> int:
    """Floating-point operations for one matrix: leading terms of dense algorithms (Golub and Van Loan, ch. 3 to 8).

    Where the number depends on the values, it is that of the reduction before the iterations.
    """
    shape = equation.ins[0].shape[stacked:]
    rows, n = shape[0], min(shape)
    m = max(shape)
    eliminations = n * n * (m - n / 3)
    match equation.kind:
        case "lu_pivots_to_permutation":
            flops: float = rows
        case "tridiagonal_solve":
            flops = 8 * math.prod(equation.ins[-1].shape[stacked:])
        case "triangular_solve":
            flops = rows * math.prod(equation.ins[1].shape[stacked:])
        case "cholesky":
            flops = n**3 / 3
        case "lu":
            flops = eliminations
        case "eigh" | "tridiagonal":
            flops = 4 * n**3 / 3
        case "eig" | "hessenberg" | "schur":
            flops = 10 * n**3 / 3
        case "svd":
            flops = 4 * eliminations
        case "symmetric_product":
            flops = 2 * rows * math.prod(shape)
        case _:
            flops = 2 * eliminations
    return max(1, round(flops))
