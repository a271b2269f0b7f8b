"""Types and arrays mixed: programs run on partly known values.

`Mixed` is the semantics in which an operation on arrays gives arrays and any other gives types. `Register` holds
operations by name whose results may depend on known operands: of several implementations the most precise that fits is
taken. With it a `Builder` works out shapes that a program computes, those of reshapes for instance, and the result is a
program in which every shape is known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from redistrib.errors import ProgramError
from redistrib.programs.ir.program import Compute, Move, Value
from redistrib.programs.ir.reference import run_compute, stacked

NumPyArray: TypeAlias = npt.NDArray[Any]
AbstractValue: TypeAlias = Value | NumPyArray


@dataclass(frozen=True)
class Mixed:
    """Arrays where all that an operation reads is an array, and types elsewhere.

    Attributes:
        most: elements that a result may have to be computed; larger ones are known by type alone.

    >>> import numpy as np
    >>> from redistrib import nest, partition
    >>> from redistrib.programs.ir.interpret import interpret
    >>> program = partition(nest("ij->i", (2, 3), name="sum"), {"sum": (2, 1)})
    >>> interpret(program, [np.ones((2, 3))], Mixed())["out"]
    array([3., 3.])
    >>> interpret(program, program.inputs, Mixed())["out"].form
    '[1{r0}2]'
    """

    most: int = 1 << 16

    def compute(self, op: Compute, ins: Sequence[AbstractValue]) -> list[AbstractValue]:
        can_run = all(part.nest.body is not None for part in op.parts)
        small = all(value.type.global_size <= self.most for _, value in op.outs)
        arrays = [operand for operand in ins if isinstance(operand, np.ndarray)]
        if not (can_run and small and len(arrays) == len(ins)):
            return [value for _, value in op.outs]
        return [*run_compute(op, [dict(part.nest.ranges) for part in op.parts], arrays)]

    def move(self, op: Move, value: Value, operand: AbstractValue) -> AbstractValue:
        return operand if isinstance(operand, np.ndarray) else op.out

    def entry(self, operand: AbstractValue, step: int) -> AbstractValue:
        if isinstance(operand, np.ndarray):
            return np.asarray(operand[step])
        return replace(operand, type=replace(operand.type, dims=operand.type.dims[1:]))

    def stack(self, out: Value, entries: Sequence[AbstractValue]) -> AbstractValue:
        arrays = [operand for operand in entries if isinstance(operand, np.ndarray)]
        return stacked(out.shape, out.dtype, arrays) if len(arrays) == len(entries) else out

    def is_true(self, operand: AbstractValue) -> bool:
        if not isinstance(operand, np.ndarray):
            raise ProgramError("", operand.name, "Loop", "whether a loop goes on depends on a value that is not known")
        return bool(operand)


# ----------------------------------------------------------------------------------------- operations by name

ABSTRACT, CONCRETE = Value, np.ndarray
"""What an implementation takes: a type or an array, or an array alone."""

B = TypeVar("B")
Implementation: TypeAlias = Callable[..., Any]


@dataclass
class Register(Generic[B]):
    """Operations by name, each with implementations for types and for known operands.

    An implementation is called with a builder, the operands and the attributes. It adds operations to the builder,
    and returns the result: a value if only its type is known, or an array.

    >>> register = Register()
    >>> @register.implement("Add", CONCRETE, CONCRETE)
    ... def add(builder, a, b):
    ...     return a + b
    >>> register.apply(None, "Add", [1, 2], [3, 4])
    array([4, 6])
    """

    table: dict[str, list[tuple[tuple[type, ...], Implementation]]] = field(default_factory=dict)

    def implement(self, kind: str, *pattern: type) -> Callable[[Implementation], Implementation]:
        """Add an implementation for operands of a pattern, of `ABSTRACT` and `CONCRETE`."""

        def add(implementation: Implementation) -> Implementation:
            self.table.setdefault(kind, []).append((pattern, implementation))
            return implementation

        return add

    def apply(self, builder: B, kind: str, *arguments: AbstractValue | int | Sequence[int], **attributes: Any) -> Any:
        """The result of an operation: a value if only its type is known, or an array.

        Raises:
            ProgramError: if there is no such operation, or none of its implementations takes these operands.
        """
        operands = [x if isinstance(x, Value) else np.asarray(x) for x in arguments]
        if kind not in self.table:
            raise ProgramError(kind, "", "Register", f"no such operation; there are {', '.join(self.table)}")
        fitting = [
            (sum(x is CONCRETE for x in pattern), implementation)
            for pattern, implementation in self.table[kind]
            if len(pattern) == len(operands)
            and all(want is ABSTRACT or isinstance(x, CONCRETE) for want, x in zip(pattern, operands, strict=True))
        ]
        if not fitting:
            kinds = (str(x.type) if isinstance(x, Value) else f"array {x.tolist()}" for x in operands)
            described = ", ".join(kinds)
            raise ProgramError(
                kind, "", "Register", f"its result on ({described}) is not known; give arrays where shapes depend on "
                f"them, or an implementation that takes these",
            )  # fmt: skip
        return max(fitting, key=lambda entry: entry[0])[1](builder, *operands, **attributes)
