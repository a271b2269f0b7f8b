"""Errors of programs: nests, cuts of their iteration spaces, and groups."""

from __future__ import annotations

from collections.abc import Sequence

from redistrib.errors.base import RedistribError, cut, listed, shown

_MOST_NAME, _MOST_MESSAGE = 200, 4000  # characters


class ProgramError(RedistribError):
    """A program, or an operation of a program, that breaks a rule.

    >>> import redistrib as rd
    >>> rd.nest("ij,jk->ik", (64, 64))
    Traceback (most recent call last):
        ...
    redistrib.errors.ProgramError: operation 'ij,jk->ik': sizes (64, 64) are given for the iteration dimensions i, j, \
k

    Attributes:
        operation: name of the wrong operation; empty if the error concerns no single operation.
        array: name of the wrong array or value; empty if the error concerns no single array.
        rule: the name of the broken rule in docs/programs.md.
        source: the source line of the operation, `file:line`; empty if unknown.
    """

    source = ""

    def __init__(self, operation: str, array: str, rule: str, message: str) -> None:
        self.operation, self.array, self.rule = operation, array, rule
        names = (("operation", operation), ("array", array))
        subject = ", ".join(f"{noun} {shown(name, _MOST_NAME)}" for noun, name in names if name)
        message = cut(message, _MOST_MESSAGE)
        super().__init__(f"{subject}: {message}" if subject else f"{message}")

    def at(self, source: str) -> ProgramError:
        """The error with the source line of the operation at the head of its message."""
        if source and not self.source:
            self.source = source
            self.args = (f"{source}: {self.args[0]}",)
        return self


class CutError(ProgramError):
    """A cut that an iteration space cannot have: it is missing, has another rank, or does not divide what it must.

    >>> import redistrib as rd
    >>> rd.partition(rd.nest("ij,jk->ik", (64, 64, 64)), {"matmul": {"l": 4}})
    Traceback (most recent call last):
        ...
    redistrib.errors.CutError: operation 'matmul': the grid {'l': 4} names 'l', and the iteration dimensions are i, j, \
k
    """


class CutInnerFactorError(ProgramError):
    """A cut of a minor factor of an array dimension, while a more major factor is not cut into single elements.

    Attributes:
        factors: the iteration dimensions that are the factors of the array dimension, major to minor.
        shape: the shape of the array after a reshape that makes every factor a dimension.

    >>> import redistrib as rd
    >>> split = rd.nest("(ab)->ab", {"a": 4, "b": 2}, name="split")
    >>> try:
    ...     rd.partition(split, {"split": (1, 2)})
    ... except CutInnerFactorError as error:
    ...     print(error.factors, error.shape)
    ('a', 'b') (4, 2)
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
    """A cut of an iteration dimension that the output lacks, in a nest without a reduction that combines results.

    >>> import redistrib as rd
    >>> last = rd.nest("ij->i", (8, 8), name="last", combine=None, fn=lambda a: a)
    >>> try:
    ...     rd.partition(last, {"last": (1, 2)})
    ... except NoCombinerError as error:
    ...     print(str(error).rpartition("; ")[2])
    leave it whole, or give combine={'j': 'sum'}
    """


class InconsistentGroupError(ProgramError):
    """Two nests of a group that need different types of one array, although a group may not communicate.

    Attributes:
        nests: the names of the two nests.
        types: the type that each nest needs.

    >>> import redistrib as rd
    >>> one = rd.nest("i->i", (8,), name="one", reads=["x"], writes="y")
    >>> two = rd.nest("i->i", (8,), name="two", reads=["y"], writes="z")
    >>> try:
    ...     rd.partition([one, two], {"one": (2,), "two": (4,)}, groups={"both": ["one", "two"]})
    ... except InconsistentGroupError as error:
    ...     print(error.nests, error.types)
    ('one', 'two') ('[4{r01}8]', '[2{r00,r01}8]')
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
