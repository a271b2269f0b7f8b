"""Tactics: a mesh axis cuts a few arrays or operations, and propagation derives the other cuts."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from redistrib.arith import as_integer
from redistrib.errors import CutError
from redistrib.errors.base import shown
from redistrib.programs.ir.graph import Array, Graph, Operation
from redistrib.programs.schedule.graph_cuts import ArrayDim, WorkDim
from redistrib.programs.schedule.propagate import Propagation

Dim: TypeAlias = "int | Literal['first'] | Callable[[str, tuple[int, ...]], int | None] | None"


@runtime_checkable
class Tactic(Protocol):
    """What a schedule is made of: the first cuts along one mesh axis, from which propagation derives the others.

    Every object with these three members is a tactic, in `rd.distribute`, `rd.search` and `rd.pipeline`.

    >>> import numpy as np
    >>> from redistrib import distribute
    >>> class Rows:
    ...     axis = "d"
    ...     def begin(self, propagation):
    ...         propagation.cut_array("x", self.axis, 0)
    ...     def uneven(self, graph):
    ...         return []
    >>> f = distribute(lambda x, w: x @ w, (np.ones((8, 4)), np.ones((4, 2))), "d=4", schedule=[Rows()])
    >>> [value.form for value in f.program.inputs]
    ['[2{d}8, 4]', '[4, 2]']
    """

    @property
    def axis(self) -> str:
        """The mesh axis."""

    def begin(self, propagation: Propagation) -> None:
        """Make the first cuts, by `propagation.cut_array` and `propagation.cut_operation`; see `propagation.graph`."""

    def uneven(self, graph: Graph) -> Iterable[ArrayDim | WorkDim]:
        """The dimensions of inputs and operations that the axis need not divide; empty for none.

        `rd.distribute` asks for them before `begin`, which gets a graph where tiles of these dimensions have tails.
        Dimensions that are not there are passed over: `begin` refuses them.
        """


@dataclass(frozen=True)
class Along:
    """Arrays that an axis cuts; see `along`."""

    axis: str
    arrays: tuple[tuple[str, Dim], ...]

    def begin(self, propagation: Propagation) -> None:
        """Cut the arrays.

        Raises:
            CutError: if there is no such array, it cannot be cut so, or the axis cuts another dimension already.
        """
        for pattern, dim in self.arrays:
            for array in matching(pattern, propagation.graph.inputs):
                taken = _dim(dim, array, propagation, self.axis)
                if taken is not None or dim is None:
                    self._require_one_way(array, taken, propagation)
                    propagation.cut_array(array.name, self.axis, taken)

    def uneven(self, graph: Graph) -> Iterator[ArrayDim]:
        """The dimensions that have a number."""
        for pattern, dim in self.arrays:
            if isinstance(dim, int):
                yield from (ArrayDim(array.name, dim) for array in matching(pattern, graph.inputs))

    def _require_one_way(self, array: Array, dim: int | None, propagation: Propagation) -> None:
        other = propagation.pins.get(array.name, {}).get(self.axis)
        if other is not None and dim is not None and (dim - other) % len(array.shape):
            raise CutError(
                "", array.name, "Schedule", f"axis {self.axis!r} is to cut both dimension {other} and dimension {dim}; "
                f"name one of them, or cut the other along another axis",
            )  # fmt: skip


@dataclass(frozen=True)
class Work:
    """Operations that an axis cuts; see `work`."""

    axis: str
    operations: tuple[tuple[str, str], ...]

    def begin(self, propagation: Propagation) -> None:
        """Cut the operations."""
        for pattern, dim in self.operations:
            numbers = operations_of(pattern, propagation.graph.operations)
            if not numbers:
                raise CutError(pattern, "", "Schedule", "there is no such operation, by name or by source line")
            for k in numbers:
                propagation.cut_operation(k, self.axis, dim)

    def uneven(self, graph: Graph) -> Iterator[WorkDim]:
        """All that it cuts."""
        for pattern, dim in self.operations:
            yield from (WorkDim(k, dim) for k in operations_of(pattern, graph.operations))


def along(axis: str, arrays: Mapping[str, Dim]) -> Along:
    """A tactic: a mesh axis cuts some arrays; propagation derives further cuts.

    Tactics are applied in order, and none changes a decision of an earlier one. So `along("d", {"batch": 0})` before
    `along("d", {"params": "first"})` cuts the work by batch and stores the parameters cut, whole only where they are
    read; the other way round the work follows the parameters.

    Args:
        axis: of the mesh.
        arrays: for arguments, by name, the dimension to cut. A name is that of a parameter of the function, which
            stands for all leaves of the argument, the path of a leaf (`params/layers/0/up`), the end of one (`up`), or
            a pattern (`params/*/up`). A dimension is a number, of a dimension that the axis need not divide in
            `rd.distribute`; `"first"`, the first that the axis divides, if any;
            None, never cut along this axis; or a function of path and shape. An axis that cuts an array
            already does not cut another dimension of it: `"first"` keeps the present one, a number is refused.

    >>> along("d", {"batch": 0})
    Along(axis='d', arrays=(('batch', 0),))
    """
    return Along(axis, tuple(arrays.items()))


def work(axis: str, operations: Mapping[str, str]) -> Work:
    """A tactic: a mesh axis cuts the work of some operations; propagation derives further cuts.

    Args:
        axis: of the mesh.
        operations: for operations, by name or pattern (`dot_general_3`, `dot_general*`) or by the end of their source
            line (`model.py:42`), the iteration dimension to cut. Names are in the printed program.

    >>> work("t", {"dot_general*": "n0"})
    Work(axis='t', operations=(('dot_general*', 'n0'),))
    """
    return Work(axis, tuple(operations.items()))


def matching(pattern: str, arrays: Sequence[Array]) -> list[Array]:
    """The arguments that a name or pattern stands for; see `along`.

    Raises:
        CutError: if there are none.
    """

    def stands_for(name: str) -> bool:
        return name == pattern or name.startswith(f"{pattern}/") or name.endswith(f"/{pattern}")

    arguments = [array for array in arrays if stands_for(array.name) or fnmatch.fnmatchcase(array.name, pattern)]
    if not arguments:
        raise CutError("", pattern, "Schedule", f"no argument is called so; there are {_some(arrays)}")
    return arguments


def operations_of(pattern: str, operations: Sequence[Operation]) -> list[int]:
    """The operations that a name, a pattern or a source line stands for, by number; see `work`."""
    return [
        k
        for k, operation in enumerate(operations)
        if fnmatch.fnmatchcase(operation.name, pattern) or operation.source.endswith(pattern)
    ]


def _dim(dim: Dim, array: Array, propagation: Propagation, axis: str) -> int | None:
    if callable(dim):
        dim = dim(array.name, array.shape)
    if dim == "first":
        size = propagation.mesh.axis(axis).size
        taken = propagation.pins.get(array.name, {})
        if taken.get(axis) is not None:
            return taken[axis]
        free = (k for k, n in enumerate(array.shape) if n % size == 0 and n >= size and k not in taken.values())
        return next(free, None)
    number = as_integer(dim)
    if number is None and dim is not None:
        why = f"{shown(dim)} is no dimension for axis {axis!r}; give a number, 'first' or None"
        raise CutError("", array.name, "Schedule", why)
    return number


def _some(arrays: Iterable[Array]) -> str:
    names = [array.name for array in arrays]
    return ", ".join(map(repr, names[:12])) + (f" and {len(names) - 12} more" if len(names) > 12 else "")


def together(schedule: Any) -> tuple[tuple[Tactic, ...], ...]:
    """The tactics of a schedule in order, those that begin together in one tuple.

    Raises:
        CutError: if an entry is no tactic; with what it lacks, if it has a part of one.
    """
    if isinstance(schedule, Tactic) or not isinstance(schedule, Iterable):
        schedule = (schedule,)
    groups = (
        tuple(entry) if isinstance(entry, list | tuple) and not isinstance(entry, Tactic) else (entry,)
        for entry in schedule
    )
    return tuple(tuple(map(_tactic, group)) for group in groups)


def _tactic(entry: Any) -> Tactic:
    lacks = [name for name in ("begin", "uneven") if not callable(getattr(entry, name, None))]
    if not isinstance(getattr(entry, "axis", None), str):
        lacks = ["axis", *lacks]
    if not lacks and not isinstance(entry, type):
        return entry  # type: ignore[no-any-return]
    why = "it is a class" if not lacks else f"it lacks {' and '.join(lacks)}, see ir.Tactic" if len(lacks) < 3 else ""
    why = f"{shown(entry)} is no tactic{': ' if why else ''}{why}"
    raise CutError("", "", "Schedule", f"{why}; write rd.along(axis, {{argument: dimension}})")


def apply(
    schedule: Any, propagation: Propagation, uneven: Mapping[ArrayDim, tuple[WorkDim, ...]] | None = None
) -> None:
    """Apply the tactics of a schedule in order; those of an inner list begin together, before anything spreads.

    Args:
        schedule: tactics.
        propagation: of the graph; shardings that are given have cut their arrays already.
        uneven: for dimensions of inputs that are cut unevenly the operations that cut them.

    Raises:
        CutError: if an entry is no tactic, or a tactic cannot be applied.
    """
    propagation.uneven = uneven or {}
    for tactics in together(schedule):
        for tactic in tactics:
            tactic.begin(propagation)
        for axis in dict.fromkeys(tactic.axis for tactic in tactics):
            propagation.spread(axis)
