"""Operations by name, with and without concrete operands, after ONNX; they compute shapes and read them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from redistrib.errors import ProgramError
from redistrib.plans.dtypes import dtype_of
from redistrib.programs.ir.abstract import ABSTRACT, CONCRETE, NumPyArray, Register
from redistrib.programs.ir.builder import Builder
from redistrib.programs.ir.nest import Access, Nest
from redistrib.programs.ir.program import Place, Value
from redistrib.programs.ir.spec import nest

REGISTER: Register[Builder] = Register()


@REGISTER.implement("shape", ABSTRACT)
def _shape(builder: Builder, x: Value | NumPyArray) -> NumPyArray:
    return np.array(x.type.global_shape if isinstance(x, Value) else x.shape, dtype=np.int64)


@REGISTER.implement("gather", CONCRETE, CONCRETE)
def _gather(builder: Builder, x: NumPyArray, index: NumPyArray, axis: int = 0) -> NumPyArray:
    return np.asarray(np.take(x, index, axis))


@REGISTER.implement("unsqueeze", CONCRETE)
def _unsqueeze(builder: Builder, x: NumPyArray, axes: Sequence[int] = (0,)) -> NumPyArray:
    return np.asarray(np.expand_dims(x, tuple(axes)))


@REGISTER.implement("concat", CONCRETE, CONCRETE)
def _concat(builder: Builder, x: NumPyArray, y: NumPyArray, axis: int = 0) -> NumPyArray:
    return np.concatenate([x, y], axis)


@REGISTER.implement("concat", ABSTRACT, ABSTRACT)
def _concat_values(builder: Builder, x: Value | NumPyArray, y: Value | NumPyArray, axis: int = 0) -> Any:
    one, other = _values(builder, "concat", x, y)
    (a, b), names = (one.type.global_shape, other.type.global_shape), [f"d{k}" for k in range(one.type.rank)]
    if len(a) != len(b) or any(m != n for k, (m, n) in enumerate(zip(a, b, strict=True)) if k != axis):
        raise ProgramError("concat", "", "Nest", f"shapes {a} and {b} cannot be joined along dimension {axis}")
    dims = tuple(() if k == axis else (name,) for k, name in enumerate(names))
    joined = Nest(
        "concat",
        tuple((name, range(size)) for k, (name, size) in enumerate(zip(names, a, strict=True)) if k != axis),
        (Access("x", dims, (a[axis],)), Access("y", dims, (b[axis],))),
        (Access("out", dims, (a[axis] + b[axis],)),),
        linear=((0, 1),),
        body=lambda at, one, other: np.concatenate([one, other], axis),
        flops=0,
    )
    return builder.compute(joined, one, other)


@REGISTER.implement("reshape", CONCRETE, CONCRETE)
def _reshape_array(builder: Builder, x: NumPyArray, shape: NumPyArray) -> NumPyArray:
    return x.reshape(_resolved(x.size, shape))


@REGISTER.implement("reshape", ABSTRACT, CONCRETE)
def _reshape(builder: Builder, x: Value, shape: NumPyArray) -> Any:
    old = x.type.global_shape
    return builder.compute(reshaping(old, _resolved(math.prod(old), shape)), x)


@REGISTER.implement("add", CONCRETE, CONCRETE)
def _add_arrays(builder: Builder, x: NumPyArray, y: NumPyArray) -> NumPyArray:
    return np.asarray(x + y)


@REGISTER.implement("add", ABSTRACT, ABSTRACT)
def _add(builder: Builder, x: Value | NumPyArray, y: Value | NumPyArray) -> Any:
    one, other = _values(builder, "add", x, y)
    dims = _letters(one)
    spec = f"{dims},{dims}->{dims}"
    added = nest(spec, one.type.global_shape, name="add", fn=np.add, linear=[(0, 1)], flops=1)
    return builder.compute(added, one, other)


@REGISTER.implement("relu", ABSTRACT)
def _relu(builder: Builder, x: Value | NumPyArray) -> Any:
    (one,) = _values(builder, "relu", x)
    dims = _letters(one)
    spec = f"{dims}->{dims}"
    return builder.compute(nest(spec, one.type.global_shape, name="relu", fn=lambda a: np.maximum(a, 0), flops=1), one)


@REGISTER.implement("gemm", ABSTRACT, ABSTRACT)
def _gemm(builder: Builder, x: Value | NumPyArray, w: Value | NumPyArray) -> Any:
    values = _values(builder, "gemm", x, w)
    for value in values:
        if value.type.rank != 2:
            raise ProgramError("gemm", value.name, "Nest", f"it multiplies matrices, and this is {value.type}")
    (m, k), (_, n) = (value.type.global_shape for value in values)
    return builder.compute(nest("mk,kn->mn", (m, k, n), name="gemm"), *values)


def _values(builder: Builder, kind: str, *operands: Value | NumPyArray) -> list[Value]:
    """The operands as values: arrays are made where the first value is, and of its element type where that has them."""
    first = next((operand for operand in operands if isinstance(operand, Value)), None)
    if first is None:
        raise ProgramError(kind, "", "Register", "all it is given are arrays, on no device; make one an input")
    return [
        operand if isinstance(operand, Value) else _constant(builder, _alike(operand, first.dtype), first.place)
        for operand in operands
    ]


def _alike(array: NumPyArray, dtype: str) -> NumPyArray:
    """The array in another element type, or as it is where that changes an element."""
    with np.errstate(invalid="ignore", over="ignore"):
        converted = array.astype(dtype_of(dtype))
    return (
        converted if np.array_equal(converted.astype(array.dtype), array, equal_nan=array.dtype.kind in "fc") else array
    )


def _constant(builder: Builder, array: NumPyArray, place: Place) -> Value:
    dims = tuple((f"d{k}", range(size)) for k, size in enumerate(array.shape))

    def body(at: Mapping[str, range]) -> NumPyArray:
        return array[tuple(slice(over.start, over.stop) for over in at.values())]

    writes = (Access("out", tuple((name,) for name, _ in dims)),)
    constant = Nest("constant", dims, (), writes, indexed=frozenset(name for name, _ in dims), body=body, flops=0)
    value: Value = builder.compute(constant, place=place, dtype=array.dtype.name)
    return value


def _letters(value: Value) -> str:
    return "".join(chr(ord("a") + k) for k in range(value.type.rank))


def _resolved(size: int, shape: NumPyArray) -> tuple[int, ...]:
    """The shape with its one -1 worked out."""
    sizes = [int(n) for n in shape]
    product = math.prod(n for n in sizes if n != -1)
    if sizes.count(-1) == 1 and product > 0 and size % product == 0:
        sizes[sizes.index(-1)] = size // product
    if any(n < 0 for n in sizes) or math.prod(sizes) != size:
        raise ProgramError("reshape", "", "Nest", f"{size} elements have no shape {tuple(int(n) for n in shape)}")
    return tuple(sizes)


def reshaping(old: Sequence[int], new: Sequence[int]) -> Nest:
    """A reshape whose common factors are iteration dimensions; where there are none, dimensions are read whole.

    >>> reshaping((256, 8, 768), (2048, 768)).writes
    (Access(array='out', dims=(('f0', 'f1'), ('f2',)), extents=(), windows=()),)
    >>> reshaping((5, 4, 6), (5, 6, 4)).writes
    (Access(array='out', dims=(('f0',), (), ()), extents=(6, 4), windows=()),)
    """
    factors, read, written = _factored(old, new)
    extents = [
        tuple(size for size, dim in zip(shape, dims, strict=True) if not dim)
        for shape, dims in ((old, read), (new, written))
    ]

    def body(at: Mapping[str, range], x: NumPyArray) -> NumPyArray:
        return x.reshape(
            [math.prod(len(at[name]) for name in dim) if dim else size for size, dim in zip(new, written, strict=True)]
        )

    return Nest(
        "reshape",
        tuple((f"f{k}", range(factor)) for k, factor in enumerate(factors)),
        (Access("x", read, extents[0]),),
        (Access("out", written, extents[1]),),
        linear=((0,),),
        body=body,
        flops=0,
    )


_Dims = tuple[tuple[str, ...], ...]


def _factored(old: Sequence[int], new: Sequence[int]) -> tuple[list[int], _Dims, _Dims]:
    """Factors of which runs multiply to the sizes of both shapes, and which of them every dimension is made of.

    Shapes are split where their products meet; a stretch that has no common factors is whole.
    """
    factors: list[int] = []
    dims: list[list[tuple[str, ...]]] = [[() for _ in shape] for shape in (old, new)]
    if 0 in (*old, *new):
        return factors, tuple(dims[0]), tuple(dims[1])
    ends = [[math.prod(shape[: k + 1]) for k in range(len(shape))] for shape in (old, new)]
    meet = sorted({1, *ends[0]} & {1, *ends[1]})
    for low, high in pairwise(meet):
        inside = sorted({low, high, *(end for side in ends for end in side if low < end < high)})
        if any(b % a for a, b in pairwise(inside)):
            continue
        name = {a: f"f{len(factors) + k}" for k, a in enumerate(inside[:-1])}
        factors += [b // a for a, b in pairwise(inside)]
        for side, shape in zip(dims, (old, new), strict=True):
            start = 1
            for k, size in enumerate(shape):
                if low <= start < start * size <= high:
                    side[k] = tuple(name[a] for a in inside if start <= a < start * size)
                start *= size
    return factors, tuple(dims[0]), tuple(dims[1])
