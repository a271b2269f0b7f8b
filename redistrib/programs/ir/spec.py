"""Nests from a line of notation, `"ij,jk->ik"`: one letter for each iteration dimension, parentheses for products."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from string import ascii_letters
from typing import Any, cast

import numpy as np

from redistrib.errors import ProgramError
from redistrib.lang.notation import Reduction
from redistrib.plans.reduction import combined_along
from redistrib.programs.ir.nest import Access, Nest

_OF_TRUTH: dict[str, Reduction] = {"or": "max", "any": "max", "and": "min", "all": "min"}  # False is below True
_OPERAND = re.compile(r"(?:[A-Za-z]|\([A-Za-z]+\))*")


def nest(
    spec: str,
    sizes: Sequence[int | range] | Mapping[str, int | range],
    *,
    name: str | None = None,
    reads: Sequence[str] | None = None,
    writes: str | None = None,
    fn: Callable[..., Any] | None = None,
    combine: str | None = "sum",
    whole: Collection[str] = (),
    linear: Sequence[Sequence[int]] | None = None,
    body: Callable[..., Any] | None = None,
    flops: int | None = None,
) -> Nest:
    """A nest in the notation of einsum.

    At every point of the iteration space one element of each operand is read, a function of them is computed, and
    the results of the points that write one element are combined.

    Args:
        spec: operands and result, `"ij,jk->ik"`; `"bhse->bs(he)"` makes one dimension of two, major to minor.
        sizes: points along each letter, by name or in order of first appearance: a size, or a range.
        name: of the operation; by default `"matmul"` for a reduced product of two operands, and the spec for others.
        reads: names of the operands; else `"a"`, `"b"`, ...
        writes: name of the result; else `"out"`.
        fn: the function at a point, of arrays that broadcast against each other; else the product.
        combine: how results are combined: `"sum"`, `"max"`, `"min"`; `"or"` (or `"any"`) and `"and"` (or `"all"`) are
            the maximum and the minimum of truth values, so that the result is of booleans; `"prod"`, which `partition`
            cuts in blocks, since no collective multiplies; None where they may not be.
        whole: letters that may never be cut.
        linear: groups of operands that the operation is linear in; else each alone for a sum of products.
        body: computes the result instead, see `Nest`; the accesses still describe its operands.
        flops: floating-point operations at each point; else one for each product and one for the sum.

    Raises:
        ProgramError: if the spec cannot be read or the sizes do not fit it.

    >>> product = nest("ij,jk->ik", (4, 8, 2))
    >>> product.name, [product.shape(access) for access in product.reads]
    ('matmul', [(4, 8), (8, 2)])
    """
    operands, result = _read(spec)
    if combine in _OF_TRUTH:
        fn, combine = _is_true(fn), _OF_TRUTH[combine]
    letters = dict.fromkeys(letter for operand in operands for dim in operand for letter in dim)
    letters |= dict.fromkeys(letter for dim in result for letter in dim)
    ranges = _ranges(spec, list(letters), sizes)
    written = {letter for dim in result for letter in dim}
    reduced = [letter for letter in letters if letter not in written]
    arrays = list(reads) if reads is not None else [chr(ord("a") + k) for k in range(len(operands))]
    if len(arrays) != len(operands):
        raise ProgramError(spec, "", "Nest", f"{len(operands)} operands have {len(arrays)} names")
    if name is None:
        name = "matmul" if len(operands) == 2 and reduced and fn is None else spec
    if linear is None:
        linear = [(k,) for k in range(len(operands))] if fn is None and combine == "sum" else []
    return Nest(
        name=name,
        ranges=ranges,  # type: ignore[arg-type]  # made ranges of
        reads=tuple(Access(array, operand) for array, operand in zip(arrays, operands, strict=True)),
        writes=(Access(writes or "out", result),),
        combine=tuple((letter, combine) for letter in reduced) if combine not in (None, "prod") else (),
        whole=frozenset(whole),
        linear=tuple(map(tuple, linear)),
        body=body or _body(operands, result, tuple(letters), fn, combine or "sum"),
        flops=max(0, len(operands) - 1) + bool(reduced) if flops is None else flops,
        blocks=partial(_in_blocks, spec, ranges, name, arrays, writes or "out", fn, frozenset(whole))
        if combine == "prod" and body is None
        else None,
    )


def _in_blocks(
    spec: str,
    ranges: Mapping[str, int | range],
    name: str,
    reads: Sequence[str],
    writes: str,
    fn: Callable[..., Any] | None,
    whole: frozenset[str],
    lengths: Mapping[str, int],
) -> tuple[Nest, Nest]:
    """The products of blocks, and the product of those; see `Nest.blocks`."""
    left, _, right = spec.replace(" ", "").partition("->")
    free = (letter for letter in ascii_letters if letter not in ranges)
    number = dict(zip(lengths, free, strict=False))  # the letter that numbers the blocks along a letter
    sizes = {letter: len(over) if isinstance(over, range) else over for letter, over in ranges.items()}
    counts = {number[letter]: sizes[letter] // length for letter, length in lengths.items()}
    inside = re.sub(
        r"\([A-Za-z]+\)|[A-Za-z]",
        lambda dim: _dim("".join(number.get(letter, "") + letter for letter in dim[0].strip("()"))),
        left,
    )
    blocks, partial_products = "".join(counts), f"{writes} of blocks"
    return (
        nest(
            f"{inside}->{blocks}{right}",
            {**counts, **sizes, **lengths},
            name=f"{name} of blocks",
            reads=reads,
            writes=partial_products,
            fn=fn,
            combine="prod",
            whole=whole,
        ),
        nest(
            f"{blocks}{right}->{right}",
            {letter: size for letter, size in {**counts, **sizes}.items() if letter in blocks + right},
            name=name,
            reads=[partial_products],
            writes=writes,
            combine="prod",
            whole=whole.intersection(right),
        ),
    )


def _dim(letters: str) -> str:
    return letters if len(letters) == 1 else f"({letters})"


def _is_true(fn: Callable[..., Any] | None) -> Callable[..., Any]:
    """The truth of a function at a point, of the product without one."""
    return lambda *arrays: (math.prod(arrays) if fn is None else fn(*arrays)) != 0


_Dims = tuple[tuple[str, ...], ...]


def _read(spec: str) -> tuple[list[_Dims], _Dims]:
    text = spec.replace(" ", "")
    left, arrow, right = text.partition("->")
    operands = left.split(",") if left else []
    for operand in (*operands, right):
        if not arrow or not _OPERAND.fullmatch(operand):
            raise ProgramError(
                spec, "", "Nest", "the notation is operands, '->', result, with a letter or '(letters)' a dimension"
            )
    read = [tuple(tuple(dim.strip("()")) for dim in re.findall(r"\w|\(\w+\)", text)) for text in (*operands, right)]
    return read[:-1], read[-1]


def _ranges(
    spec: str, letters: list[str], sizes: Sequence[int | range] | Mapping[str, int | range]
) -> dict[str, int | range]:
    by_name = dict(sizes) if isinstance(sizes, Mapping) else dict(zip(letters, sizes, strict=False))
    if len(sizes) != len(letters) or set(by_name) != set(letters):
        raise ProgramError(
            spec, "", "Nest", f"sizes {sizes!r} are given for the iteration dimensions {', '.join(letters)}"
        )
    return by_name


def _body(
    operands: list[_Dims], result: _Dims, letters: tuple[str, ...], fn: Callable[..., Any] | None, combine: str
) -> Callable[..., Any]:
    written = [letter for dim in result for letter in dim]

    def body(at: Mapping[str, range], *arrays: Any) -> Any:
        size = {letter: len(over) for letter, over in at.items()}
        separate = []
        for operand, array in zip(operands, arrays, strict=True):
            factors = [letter for dim in operand for letter in dim]
            separate.append((factors, _library(array).reshape(array, [size[letter] for letter in factors])))
        if fn is None and combine == "sum" and separate:
            whole = ",".join("".join(factors) for factors, _ in separate)
            output = _library(separate[0][1]).einsum(f"{whole}->{''.join(written)}", *(array for _, array in separate))
        else:
            aligned = [_aligned(array, factors, letters) for factors, array in separate]
            value = math.prod(aligned) if fn is None else fn(*aligned)
            library = _library(value)
            value = library.broadcast_to(value, [size[letter] for letter in letters])
            reduced = tuple(k for k, letter in enumerate(letters) if letter not in written)
            if reduced and isinstance(value, np.ndarray):
                value = _reduced(combine, value, reduced)
            elif reduced:
                value = getattr(library, combine)(value, axis=reduced)
            rest = [letter for letter in letters if letter in written]
            output = library.transpose(value, [rest.index(letter) for letter in written])
        return _library(output).reshape(output, [math.prod(size[letter] for letter in dim) for dim in result])

    return body


def _reduced(combine: str, value: Any, axes: tuple[int, ...]) -> Any:
    if combine == "prod":
        return np.multiply.reduce(value, axis=axes, dtype=value.dtype)
    return combined_along(cast(Reduction, combine), value, axes)


def _library(array: Any) -> Any:
    """The module with NumPy's functions for an array: NumPy, or the library whose array it is."""
    return array.__array_namespace__() if hasattr(array, "__array_namespace__") else np


def _aligned(array: Any, factors: list[str], letters: tuple[str, ...]) -> Any:
    """The operand with one dimension for each letter, of size 1 for letters it lacks."""
    present = [letter for letter in letters if letter in factors]
    turned = _library(array).transpose(array, [factors.index(letter) for letter in present])
    sizes = iter(turned.shape)
    return turned.reshape([next(sizes) if letter in factors else 1 for letter in letters])
