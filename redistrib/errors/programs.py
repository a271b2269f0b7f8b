"""Errors of programs: nests, cuts of their iteration spaces, and what follows from them."""

from __future__ import annotations

from collections.abc import Sequence

from redistrib.errors.base import RedistribError, cut, listed, shown

_LONG, _LONGER = 200, 4000  # characters of a name, and of a message


class ProgramError(RedistribError):
    """A program, or an operation of one, that breaks a rule.

    >>> import redistrib as rd
    >>> rd.nest("ij,jk->ik", (64, 64))
    Traceback (most recent call last):
        ...
    redistrib.errors.ProgramError: operation 'ij,jk->ik': sizes (64, 64) are given for the iteration dimensions i, j, \
k (rule Nest)

    Attributes:
        operation: name of the operation at fault; empty where the fault is in none.
        array: name of the array or value at fault; empty where the fault is in none.
        rule: the rule that is broken, by its name in docs/programs.md.
        source: where the operation comes from, `file:line`; empty where it comes from no file.
    """

    source = ""

    def __init__(self, operation: str, array: str, rule: str, message: str) -> None:
        self.operation, self.array, self.rule = operation, array, rule
        names = (("operation", operation), ("array", array))
        where = ", ".join(f"{what} {shown(name, _LONG)}" for what, name in names if name)
        message = cut(message, _LONGER)
        super().__init__(f"{where}: {message} (rule {rule})" if where else f"{message} (rule {rule})")

    def at(self, source: str) -> ProgramError:
        """The error, saying where the operation comes from."""
        if source and not self.source:
            self.source = source
            self.args = (f"{source}: {self.args[0]}",)
        return self


class CutError(ProgramError):
    """A grid or a cut that an iteration space cannot take: missing, of another rank, or not dividing it.

    >>> import redistrib as rd
    >>> rd.partition(rd.nest("ij,jk->ik", (64, 64, 64)), {"matmul": {"j": 5}})
    Traceback (most recent call last):
        ...
    redistrib.errors.CutError: operation 'matmul': 5 parts do not divide the 64 points of 'j'; take a divisor, or \
pad=True, which pads the dimension to 65 (rule Schedule)
    """


class CutInnerFactorError(ProgramError):
    """A cut of a minor factor of an array dimension below a major one that is not fully cut.

    Attributes:
        factors: the factors of the dimension, major to minor, as iteration dimensions.
        shape: the shape that has each factor as a dimension of its own.
    """

    def __init__(
        self, operation: str, array: str, dim: int, factors: Sequence[str], cut: str, whole: str, shape: Sequence[int]
    ) -> None:
        self.factors, self.shape = tuple(factors), tuple(shape)
        super().__init__(
            operation,
            array,
            "Dim",
            f"dimension {dim} is made of {listed(self.factors)}, major to minor, and {cut!r} is cut while {whole!r} "
            f"above it is not cut into single elements, so what a device works on is no tile; "
            f"reshape to ({', '.join(map(str, self.shape))})",
        )


class NoCombinerError(ProgramError):
    """A cut of an iteration dimension that is not written, and whose results nothing says how to combine."""


class InconsistentGroupError(ProgramError):
    """Two accesses to one array, inside a group that may not communicate, that need different tiles.

    Attributes:
        nests: the two nests.
        types: the type that each of them needs.
    """

    def __init__(self, group: str, array: str, nests: tuple[str, str], types: tuple[str, str], why: str) -> None:
        self.nests, self.types = nests, types
        super().__init__(
            group,
            array,
            "Group",
            f"nest {nests[0]!r} has {array!r} as {types[0]} and nest {nests[1]!r} needs {types[1]}, {why}; a group may "
            f"not communicate inside, so cut both alike, or take the nests out of the group",
        )
