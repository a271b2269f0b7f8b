"""The walk over a graph whose cuts are decided: the layout versions that operations read, and the moves between them.

Programs of a schedule (`emit`) and of grids (`gridded`) are made by it, and searches price schedules by it. They
differ in what a layout is, and in what they note of a step.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from redistrib.lang.types import DistType
from redistrib.programs.ir.graph import Array, Graph
from redistrib.programs.ir.windows import Held
from redistrib.programs.lower.halos import Shared, shared_halos
from redistrib.programs.lower.versions import ReadAt, Versions
from redistrib.programs.schedule.propagate import Propagation


@dataclass(eq=False)
class Version:
    """An array in one type.

    Attributes:
        form: the type.
        born: number of the operation that makes it, or for which it is moved; -1 for an input.
        used: of the last until which a reader keeps it.
        tested: whether it was moved for the condition of a loop, so that no step has it.
        windows: the halos beside its tiles.
    """

    form: DistType
    born: int
    used: int
    tested: bool = False
    windows: tuple[Held, ...] = ()


F_co = TypeVar("F_co", covariant=True)


class OperandForms(Protocol[F_co]):
    """An operation as it is cut: the forms of its operands, and for each read the halos; empty where none has any."""

    @property
    def ins(self) -> tuple[F_co, ...]: ...

    @property
    def windows(self) -> tuple[tuple[Held, ...], ...]: ...


A = TypeVar("A")
F = TypeVar("F")
C = TypeVar("C", bound=OperandForms[Any])


class GraphWalk(Versions[str, A, F], Generic[A, F, C]):
    """A walk over all operations of a graph, in order.

    An array that is needed in another layout is moved once for all its readers.

    Attributes:
        ends_at_once: whether results end as soon as they are there: they may be held as summands, which are larger.
        number: of the operation that is looked at.
    """

    ends_at_once: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self.number = -1

    @property
    @abstractmethod
    def graph(self) -> Graph:
        """The operations."""

    # ------------------------------------------------------------------------------- what is noted, step by step

    @abstractmethod
    def cut(self, number: int) -> C:
        """An operation as it is cut; raises `ProgramError` if it cannot be."""

    @abstractmethod
    def begin(self, array: Array) -> A:
        """An input of the graph."""

    @abstractmethod
    def compute(self, number: int, cut: C, read: Sequence[A]) -> list[A]:
        """An operation on versions of its operands; the first versions of its results."""

    @abstractmethod
    def end_form(self, output: int, name: str) -> tuple[F, tuple[Held, ...]]:
        """The form in which an output ends, and its halos."""

    @abstractmethod
    def end(self, output: int, version: A) -> None:
        """An output of the graph."""

    @abstractmethod
    def form_of(self, version: A) -> F:
        """The form of a version, without its halos."""

    @abstractmethod
    def hand_on(self, carry: int, version: A) -> None:
        """The value of a `CARRY` at the end of a step."""

    def close(self, loop: int) -> None:  # a price needs no notice
        """A loop, whose operations are all done."""

    # ------------------------------------------------------------------------------------------------- the walk

    def run(self) -> None:
        """Walk over all operations."""
        graph, outputs = self.graph, defaultdict[str, list[int]](list)
        for array in graph.inputs:
            self.versions[array.name] = [self.begin(array)]
        for number, name in enumerate(graph.outputs):
            outputs[name].append(number)
        for k, operation in enumerate(graph.operations):
            self.number = k
            cut = self.cut(k)
            made = self.compute(k, cut, self.operands(k, cut))
            for array, version in zip(operation.outs, made, strict=True):
                self.versions[array.name] = [version]
                if array.name in outputs and self.ends_at_once and not operation.edge.leaves:
                    self._end((array,), outputs, k)
            if k in graph.closing or k in graph.ending:
                self._end_step(k, outputs)
        rest = graph.inputs if self.ends_at_once else [graph.arrays[name] for name in graph.outputs]
        self._end(rest, outputs, len(graph.operations))

    def _end_step(self, number: int, outputs: dict[str, list[int]]) -> None:
        """What follows the last operation of a step, and of the loops that end with it."""
        graph = self.graph
        carries, ending = graph.closing.get(number, ()), graph.ending.get(number, ())
        for loop in ending:
            self._hand_on((carry for carry in carries if graph.scopes[carry] == loop), number)
            self.close(loop)
            self._end((graph.arrays[name] for name in graph.loops[loop].outs), outputs, number)
        self._hand_on((carry for carry in carries if graph.scopes[carry] not in ending), number)

    def _end(self, arrays: Iterable[Array], outputs: dict[str, list[int]], at: int) -> None:
        for array in arrays:
            for output in outputs.pop(array.name, ()):
                form, windows = self.end_form(output, array.name)
                self.end(output, self.read(array.name, form, windows, ReadAt(at, len(self.graph.operations))))

    def _hand_on(self, carries: Iterable[int], at: int) -> None:
        for carry in carries:
            operation = self.graph.operations[carry]
            form = self.form_of(self.versions[operation.outs[0].name][0])
            self.hand_on(carry, self.read(operation.ins[1], form, (), ReadAt(at, at)))

    def operands(self, number: int, cut: C) -> list[A]:
        """The operands of an operation that are there before it, moved if they must be."""
        graph, operation = self.graph, self.graph.operations[number]
        operands: list[A] = []
        for read, name in enumerate(operation.ins[: operation.edge.present]):
            reading = ReadAt(graph.begins_at(name, number), graph.held_until(number, read), number)
            windows = cut.windows[read] if cut.windows else ()
            operands.append(self.read(name, cut.ins[read], windows, reading))
        return operands


V = TypeVar("V", bound=Version)
L = TypeVar("L", bound=OperandForms[DistType])


@dataclass
class Lowering(GraphWalk[V, DistType, L], Generic[V, L]):
    """A walk over the operations of a schedule, all on one place.

    Attributes:
        propagation: the schedule.
    """

    propagation: Propagation

    def __post_init__(self) -> None:
        super().__init__()

    @property
    def graph(self) -> Graph:
        """The operations."""
        return self.propagation.graph

    @cached_property
    def halos(self) -> Shared:
        """The halos that operations share."""
        return shared_halos(self.propagation)

    def means(self, version: V, form: DistType, windows: tuple[Held, ...]) -> bool:
        """Whether a version has the tiles of a type, with halos."""
        return version.form == form and version.windows == windows

    def form_of(self, version: V) -> DistType:
        """The type."""
        return version.form

    def operands(self, number: int, cut: L) -> list[V]:
        if cut.windows or self.graph.scopes[number] is not None:
            return super().operands(number, cut)
        read = list[V]()
        for name, form in zip(self.graph.operations[number].ins, cut.ins, strict=True):
            version = self.versions[name][0]
            if version.form is form and not version.windows:  # as most are, at once
                version.used = max(version.used, number)
            else:
                version = self.read(name, form, (), ReadAt(number, number, number))
            read.append(version)
        return read

    def end_form(self, output: int, name: str) -> tuple[DistType, tuple[Held, ...]]:
        return self.propagation.end_type(output, self.versions[name][0].form), ()

    def origin(self, key: str, form: DistType, usable: Sequence[V], reading: ReadAt) -> V:
        source = (self.propagation.sources or {}).get((key, form))
        return usable[0] if source is None or source == form else self.read(key, source, (), reading.of_source)

    def shared(self, key: str, form: DistType, windows: tuple[Held, ...]) -> tuple[Held, ...]:
        return self.halos.get((key, form), windows)

    def usable(self, key: str, reading: ReadAt) -> list[V]:
        versions = self.versions[key]
        if len(versions) == 1:
            return versions
        tested, keep = self.is_tested(key, reading.reader), self.propagation.keep
        usable = (v for v in versions[1:] if v.tested == tested and (keep is None or reading.at - v.used <= keep))
        return [versions[0], *usable]

    def note_use(self, version: V, until: int) -> None:
        version.used = max(version.used, until)

    def is_tested(self, name: str, reader: int) -> bool:
        """Whether an array is read for the condition of a loop: a step does not see moves made for it."""
        return reader >= 0 and self.graph.tests_with(name, reader)
