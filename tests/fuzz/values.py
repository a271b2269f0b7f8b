"""A random JAX function in the making, and what is known of its values.

Floats are multiples of a power of two, few enough bits long that every sum of them is exact in any order.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32")
FLOATS = ("float32", "float32", "float16", "bfloat16")
WIDE = ("int64", "uint64", "float64", "complex128")  # which JAX has where it is told so
MANTISSA = {
    "float64": 53, "float32": 24, "float16": 11, "bfloat16": 8, "complex64": 24, "complex128": 53,
    "float8_e4m3fn": 4, "float8_e5m2": 3,
}  # fmt: skip


class Value(NamedTuple):
    """What is known of a value of a function.

    Attributes:
        shape, dtype: of the array.
        bound: the largest magnitude of its finite elements.
        grain: a power of two that they are multiples of; zero: they are rounded, and only looked at.
    """

    shape: tuple[int, ...]
    dtype: str
    bound: float = 0.0
    grain: float = 0.0

    @property
    def is_integer(self) -> bool:
        return self.dtype in (*INTEGERS, "int64", "uint64")

    @property
    def is_float(self) -> bool:
        return self.dtype in MANTISSA

    @property
    def is_complex(self) -> bool:
        return self.dtype.startswith("complex")

    @property
    def is_number(self) -> bool:
        return self.is_float or self.is_integer

    @property
    def is_exact(self) -> bool:
        """Whether sums of such numbers need no rounding."""
        if not self.is_float:
            return self.is_integer or self.dtype == "bool"
        return self.grain > 2.0**-12 and self.bound < 2.0**14 and self.bound / self.grain < 2 ** MANTISSA[self.dtype]


class Step(NamedTuple):
    """One operation: its name, what it computes, and the numbers of the values that it reads."""

    name: str
    run: Callable[..., Any]
    reads: tuple[int, ...]


@dataclass(eq=False)
class Function:
    """A function in the making.

    Attributes:
        rng: draws everything.
        values: the arguments, then what each step makes.
        arguments: arrays.
        steps: in order.
        sums: whether something is summed, so that the sign of a zero says nothing.
        wide: whether it is made and run where JAX has elements of 64 bits.
    """

    rng: random.Random
    values: list[Value] = field(default_factory=list)
    arguments: list[Any] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    sums: bool = False
    wide: bool = False

    def __call__(self, *args: Any) -> Any:
        held = [jnp.asarray(arg) for arg in args]
        for step in self.steps:
            held.append(step.run(*(held[k] for k in step.reads)))
        return [held[k] for k in self.results]

    @property
    def results(self) -> list[int]:
        """The values that no operation reads."""
        read = {k for step in self.steps for k in step.reads}
        return [k for k in range(len(self.arguments), len(self.values)) if k not in read] or [0]

    def __str__(self) -> str:
        said = [
            f"a{k} = {value.dtype}{list(value.shape)}" for k, value in enumerate(self.values[: len(self.arguments)])
        ]
        first = len(self.arguments)
        for k, step in enumerate(self.steps):
            value = self.values[first + k]
            reads = ", ".join(f"a{number}" for number in step.reads)
            said.append(f"a{first + k} = {step.name}({reads}): {value.dtype}{list(value.shape)}")
        return "; ".join(said)

    def pick(self, wanted: Callable[[Value], bool]) -> int | None:
        """A value, later ones more often."""
        found = [k for k, value in enumerate(self.values) if value.is_exact and wanted(value)]
        return max(self.rng.choice(found), self.rng.choice(found)) if found else None

    def axis(self, number: int) -> int:
        """A dimension of a value, the first more often."""
        rank = len(self.values[number].shape)
        return self.rng.choice((0, 0, rank - 1, self.rng.randrange(rank)))

    def alike(self, number: int) -> int:
        """A value of the same shape and element type, itself if there is no other."""
        one = self.values[number]
        found = self.pick(lambda value: (value.shape, value.dtype) == (one.shape, one.dtype))
        return number if found is None else found

    def add(
        self,
        name: str,
        run: Callable[..., Any],
        *reads: int,
        bound: float = 0.0,
        grain: float = 0.0,
        sums: bool = False,
    ) -> bool:
        """Add an operation, unless JAX does not have it for these operands, or its result would be rounded."""
        forms = [jax.ShapeDtypeStruct(self.values[k].shape, jnp.dtype(self.values[k].dtype)) for k in reads]
        try:
            made = jax.eval_shape(run, *forms)
        except (TypeError, ValueError, OverflowError):
            return False
        if made.dtype == jax.dtypes.float0:
            return False
        value = Value(made.shape, str(made.dtype), bound, grain)
        if (grain and not value.is_exact) or int(np.prod(made.shape)) > 4096:
            return False
        self.steps.append(Step(name, run, reads))
        self.values.append(value)
        self.sums |= sums
        return True


def is_array(value: Value) -> bool:
    return bool(value.shape) and value.is_number


def factor(x: Any) -> Any:
    """An array as a factor of a product of matrices: complex ones without infinities and NaN.

    By the shapes XLA for CPUs decides how it multiplies complex numbers, and so whether an infinity makes NaN.
    """
    return jnp.where(jnp.isfinite(x), x, 1) if jnp.iscomplexobj(x) else x
