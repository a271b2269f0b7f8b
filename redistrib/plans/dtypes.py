"""Element types by name, as plans record them, in the spelling of NumPy, ml_dtypes and JAX; JAX is not imported.

Elements below a byte, of `int4` and others, have two sizes. An array of NumPy, MPI, PyTorch or `jax.Array.nbytes` gives
each a whole byte, and so do plans of arrays: `itemsize_of`. XLA packs them on every platform, in arguments, temporary
arrays and collectives: two of `int4` in a byte. So programs do, and with them `f.memory`, limits of bytes, searches and
simulations: `packed_bytes`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from redistrib.cache import cached
from redistrib.errors import DtypeError, ReductionError
from redistrib.extras import need
from redistrib.lang.notation import Reduction

# bytes of the types of ml_dtypes; those below a byte take a whole one in an array of NumPy
_EXTENDED = {"bfloat16": 2, "bcomplex32": 4, "complex32": 4} | dict.fromkeys(
    [
        "float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz",
        "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
        "int1", "int2", "int4", "uint1", "uint2", "uint4",
    ],
    1,
)  # fmt: skip
# bits of the types that XLA stores several in a byte
_PACKED = {"int4": 4, "uint4": 4, "float4_e2m1fn": 4, "int2": 2, "uint2": 2, "int1": 1, "uint1": 1}
# the names that NumPy parses; it warns of "a5"
_NUMPY = re.compile(r"[<>=|]?(?!a\d*$)[A-Za-z?][A-Za-z_]{0,15}\d{0,3}")
_NUMBERS = re.compile(r"(?P<real>b?float|u?int)\d+.*|b?complex\d+.*")
_ROUNDED_ONCE = ("bfloat16", "float16")  # added in float32 by default
_KEYS = {"key<fry>": 8, "key<rbg>": 16, "key<urbg>": 16}  # JAX's random keys, by implementation


@cached(128)
def itemsize_of(dtype: str) -> int:
    """Bytes per element of a dtype given by name; a type of less than a byte takes one.

    Raises:
        DtypeError: if the dtype is unknown, or has neither numbers nor booleans.

    >>> [itemsize_of(name) for name in ("float32", "bfloat16", "float8_e4m3fn", "int4", "complex64", "key<fry>")]
    [4, 2, 1, 1, 8, 8]
    """
    for sizes in (_EXTENDED, _KEYS):
        if dtype in sizes:
            return sizes[dtype]
    if _NUMPY.fullmatch(dtype):
        try:
            numpy_dtype = np.dtype(dtype)
        except TypeError:
            raise DtypeError(dtype) from None
        if numpy_dtype.kind in "biufc":
            return int(numpy_dtype.itemsize)
    raise DtypeError(dtype)


def bits_of(dtype: str) -> int:
    """Bits of an element where types below a byte are packed, as XLA stores them.

    Raises:
        DtypeError: as `itemsize_of` does.

    >>> [bits_of(name) for name in ("bfloat16", "float8_e4m3fn", "int4", "bool")]
    [16, 8, 4, 8]
    """
    return _PACKED.get(dtype) or 8 * itemsize_of(dtype)


def packed_bytes(elements: int, dtype: str) -> int:
    """Bytes of so many elements in a program, where types below a byte are packed.

    XLA does so on CPUs, GPUs and TPUs: `compiled.memory_analysis()` of a function of 8,192 elements of `int4` counts
    arguments of 4,096 bytes under JAX 0.10, and the layout in its text says `E(4)`, four bits an element.

    Raises:
        DtypeError: as `itemsize_of` does.

    >>> packed_bytes(3, "int4"), packed_bytes(3, "bfloat16")
    (2, 6)
    """
    return -(-elements * bits_of(dtype) // 8)


def packed_total(elements: Iterable[int], dtype: str) -> int:
    """Bytes of so many elements on each of several devices, each of which packs its elements by themselves.

    >>> packed_total((3, 3), "int4"), packed_bytes(6, "int4")
    (4, 3)
    """
    return sum(packed_bytes(count, dtype) for count in elements)


def dtype_of(name: str) -> np.dtype[Any]:
    """The NumPy dtype of an element type given by name: NumPy's own, or one of ml_dtypes.

    Raises:
        DtypeError: if the name is unknown, or names Python objects, which cannot be sent.
        MissingPackageError: if the type belongs to ml_dtypes, which is not installed.
    """
    try:
        dtype = np.dtype(name)
    except TypeError:
        if name in _EXTENDED:
            need("ml_dtypes")
        try:
            import ml_dtypes

            dtype = np.dtype(getattr(ml_dtypes, name))
        except (ImportError, AttributeError, TypeError):
            raise DtypeError(name) from None
    if dtype.hasobject:
        raise DtypeError(name)
    return dtype


def require_reduction(kind: Reduction, dtype: str) -> None:
    """Check that elements can be reduced: numbers have sums, ordered elements have maxima and minima.

    Raises:
        ReductionError: if they cannot.
    """
    number = _NUMBERS.fullmatch(dtype)
    if kind == "sum" and not number:
        raise ReductionError(
            f"elements of {dtype} have no sum; take max for 'any' and min for 'all', or an integer type"
        )
    if kind != "sum" and dtype != "bool" and not (number and number["real"]):
        raise ReductionError(f"elements of {dtype} have no {kind}, since they have no order; reduce a real type")


def default_accumulation(kind: Reduction, dtype: str) -> str | None:
    """The element type in which partial sums are added by default; None for their own.

    >>> [default_accumulation(*case) for case in (("sum", "bfloat16"), ("max", "bfloat16"), ("sum", "float64"))]
    ['float32', None, None]
    """
    return "float32" if kind == "sum" and dtype in _ROUNDED_ONCE else None
