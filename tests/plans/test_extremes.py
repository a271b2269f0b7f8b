"""Maxima and minima in NumPy: of NaNs of both signs, of both zeros, of no elements, in every element type."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from redistrib.lang.notation import Reduction
from redistrib.plans.reduction import Accumulator, combined, combined_along, identity
from redistrib.programs.ir.spec import nest

FLOATS = ["float16", "float32", "float64", *(name for name in dir(ml_dtypes) if name.startswith(("float", "bfloat")))]
KINDS: tuple[Reduction, ...] = ("max", "min")


def extremes(dtype: np.dtype) -> np.ndarray:
    """All that is unlike other numbers, as far as a type has it."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.array([0, -0.0, 1, -1, 3, np.inf, -np.inf, np.nan, -np.nan], np.float32).astype(dtype)


def by_definition(kind: Reduction, numbers: list[float]) -> float:
    """Of numbers one by one: NaN if any is, and -0.0 below 0.0."""
    if any(number != number for number in numbers):
        return float("nan")
    return (max if kind == "max" else min)(numbers, key=lambda number: (number, not np.signbit(number)))


def same(one: np.ndarray, other: np.ndarray) -> bool:
    """Equal numbers with equal signs; NaNs equal NaNs of either sign."""
    one, other = (np.asarray(values).astype(np.float64) for values in (one, other))
    signs = np.isnan(one) | (np.signbit(one) == np.signbit(other))
    return bool(np.array_equal(one, other, equal_nan=True) and signs.all())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [name for name in FLOATS if name != "finfo"])
def test_two_by_two_and_along_an_axis(name: str, kind: Reduction) -> None:
    values = extremes(np.dtype(getattr(ml_dtypes, name, name)))
    one, other = (side.ravel() for side in np.meshgrid(values, values))
    pairs = zip(one.astype(np.float64), other.astype(np.float64), strict=True)
    wanted = np.array([by_definition(kind, list(pair)) for pair in pairs])
    assert same(combined(kind, one, other), wanted)
    assert same(combined_along(kind, np.stack([one, other]), (0,)), wanted)
    left, right = one.copy(), other.copy()  # each in turn takes up the result
    assert same(combined(kind, left, other, out=left), wanted) and same(left, wanted)
    assert same(combined(kind, one, right, out=right), wanted) and same(right, wanted)
    for k in range(len(one)):  # without a dimension
        assert same(combined(kind, one[k, ...], other[k, ...]), wanted[k])
    total = Accumulator(one.shape, values.dtype, kind)
    for part in (one, other, one):
        total.add([0], part)
    assert same(total.result(), wanted)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "name", ["float32", "bfloat16", "float8_e4m3fn", "float8_e8m0fnu", "int4", "uint8", "int64", "bool"]
)
def test_what_is_neutral_is_so_with_everything(name: str, kind: Reduction) -> None:
    """A device to which nothing comes has what changes no maximum, in boxes too that begin late."""
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    values = np.array([0, 1, 1, 0], dtype) if dtype.kind in "iub" or "int" in name else extremes(dtype)
    nothing = np.full(values.shape, identity(kind, dtype), dtype)
    assert combined(kind, nothing, values).tobytes() == values.tobytes()
    assert Accumulator(values.shape, dtype, kind).result().tobytes() == nothing.tobytes()
    total = Accumulator((len(values) + 1,), dtype, kind)
    total.add([1], values)
    assert total.result()[1:].tobytes() == values.tobytes() and total.result()[0] == identity(kind, dtype)


@pytest.mark.parametrize("kind", KINDS)
def test_a_nest_combines_likewise(kind: Reduction) -> None:
    rows = np.array([[0.0, -0.0, -0.0], [-0.0, 0.0, -0.0], [1, -np.nan, 2], [-np.inf, -0.0, np.inf]], np.float32)
    body = nest("ij->i", rows.shape, combine=kind).body
    assert body is not None
    result = body({"i": range(4), "j": range(3)}, rows)
    assert same(result, np.array([by_definition(kind, row.tolist()) for row in rows]))
