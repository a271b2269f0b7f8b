"""What is the same in all variants of a search problem: facts about a graph on a machine, each computed once."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property

from redistrib.programs.ir.graph import Graph
from redistrib.programs.schedule.propagate import Propagation
from redistrib.programs.search.candidates import Option, of_decided, summed
from redistrib.programs.search.constants import HEAVY
from redistrib.programs.search.folding import Folded
from redistrib.programs.search.isomorphism import isomorphism_classes
from redistrib.programs.search.moves import Moves
from redistrib.programs.time.kernels.attention import attentions
from redistrib.programs.time.kernels.fusion import INSIDE, Kernel, kernels_in, kernels_on, mark
from redistrib.programs.time.kernels.prices import seconds_of
from redistrib.programs.time.machine import Machine


@dataclass(frozen=True)
class Facts:
    """A graph on a machine, and what follows from these alone, whatever is given or how prices are weighted.

    Attributes:
        graph: the operations.
        machine: the machine that runs the program.
        moves: prices of moves; they know the mesh.
        folded: the whole graph, where repeated layers were taken out of this one.
        whole: the facts of the whole graph, where there is one.
        options: those of operations that were asked for along some axes.
        decided_options: those of operations that were decided, by kind and cuts.
    """

    graph: Graph
    machine: Machine
    moves: Moves
    folded: Folded | None = None
    whole: Facts | None = None
    options: dict[tuple[object, ...], list[Option]] = field(default_factory=dict, init=False, compare=False, repr=False)
    decided_options: dict[tuple[object, ...], Option] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )

    @cached_property
    def copies(self) -> tuple[int, ...]:
        """For every operation the layers that it stands for."""
        return self.folded.times if self.folded is not None else (1,) * len(self.graph.operations)

    @cached_property
    def times(self) -> tuple[int, ...]:
        """For every operation how often it runs in a call: in each layer that it stands for, at each step of loops."""
        return tuple(copies * self.graph.times(k) for k, copies in enumerate(self.copies))

    def with_halos(self, number: int, option: Option, weights: tuple[float, float]) -> Option:
        """An option at the price of its halos too: of one that several operations may share, a part for each.

        Args:
            number: of the operation.
            option: without halos.
            weights: of moves, as in `Weights`.
        """
        if not option.windows:
            return option
        arrays, operation, price = self.graph.arrays, self.graph.operations[number], option.seconds
        reads = zip(operation.ins, option.ins, option.windows, self.sharing[number], strict=False)
        for name, form, windows, readers in reads:
            if windows:
                weight = weights[name not in self.unhurried]
                price += weight * self.moves.halo(form, windows, arrays[name].dtype).cost / readers
        return replace(option, seconds=price)

    @cached_property
    def sharing(self) -> dict[int, tuple[int, ...]]:
        """For operations that read windows, by number, how many operations read windows of each of their arrays."""
        operations = enumerate(self.graph.operations)
        windowed = {k: operation for k, operation in operations for read in operation.nest.reads if read.windows}
        count = Counter(
            name
            for operation in windowed.values()
            for access, name in zip(operation.nest.reads, operation.ins, strict=True)
            if access.windows
        )
        return {k: tuple(max(1, count[name]) for name in operation.ins) for k, operation in windowed.items()}

    def moves_of(self, name: str, readers: Iterable[int]) -> int:
        """How often a value is moved for operations in a call; values from outside a loop are moved before it."""
        copies = max((self.copies[k] for k in readers if k < len(self.copies)), default=1)
        return copies * self.graph.times_of(name)

    @cached_property
    def unhurried(self) -> set[str]:
        """Values whose moves wait for no product, or no product for them: weights, and gradients on their way out."""
        graph, hurried, count = self.graph, list(self.heavy), -1
        while count != sum(hurried):  # more than once where a loop hands on to its next step
            count = sum(hurried)
            for k in range(len(graph.operations) - 1, -1, -1):
                readers = (r for array in graph.operations[k].outs for r, _ in graph.readers.get(array.name, ()))
                hurried[k] = hurried[k] or any(hurried[r] for r in readers)
        behind = (name for name in graph.makers if not any(hurried[k] for k, _ in graph.readers.get(name, ())))
        entries = (one.entry for loop in graph.loops for one in loop.entries)
        return {*(array.name for array in graph.inputs), *entries, *behind}

    @cached_property
    def sums(self) -> set[str]:
        """The values that may be made as summands."""
        return summed(self.graph)

    @cached_property
    def marks(self) -> list[tuple[object, ...]]:
        """For every operation a key, equal for those that do the same: summands that it reads, overridden rates."""
        rated, sums, sharing, kernels = self.machine.operations, self.sums, self.sharing, self.kernels
        marks: list[tuple[object, ...]] = [
            (
                tuple([name in sums for name in operation.ins]),
                operation.name if rated and operation.name in rated else "",
                *sharing.get(k, ()),
                *(self._place(k) if self.graph.bodies else ()),
            )
            for k, operation in enumerate(self.graph.operations)
        ]
        if kernels is not None:
            arrays, inside = self.graph.arrays, mark(INSIDE, {})
            of_kernels = (inside if kernel is INSIDE else mark(kernel, arrays) for kernel in kernels)
            marks = [(*marked, of_kernel) for marked, of_kernel in zip(marks, of_kernels, strict=True)]
        return marks

    def _place(self, number: int) -> tuple[object, ...]:
        """The part of an operation's key that the loop around it gives."""
        scope, edge = self.graph.scopes[number], self.graph.operations[number].edge
        if scope is None:
            return ()
        return (self.graph.steps_of(scope), edge, edge.carries and number in self.graph.accumulators)

    @cached_property
    def kernels(self) -> list[Kernel] | None:
        """For every operation its compiled kernel; None where each operation is a kernel."""
        if not self.machine.fuses:
            return None
        if self.folded is None or self.whole is None or self.whole.kernels is None:
            return kernels_on(self.machine, self.graph)
        return kernels_in(self.graph, [self.whole.kernels[k] for k in self.folded.kept])

    @cached_property
    def pass_ends(self) -> dict[int, int]:
        """For operations of flash kernels, by number, the last operation of their pass, whose operands are all held."""
        if not self.machine.flash:
            return {}
        passes = (numbers for attention in attentions(self.graph) for numbers in attention.passes)
        computed = ([k for k in numbers if (kernel := self.kernel(k)) and kernel.runs] for numbers in passes)
        return {k: max(numbers) for numbers in computed for k in numbers}

    @cached_property
    def unstored(self) -> frozenset[str]:
        """Values that stay inside a kernel."""
        pairs = zip(self.kernels or (), self.graph.operations, strict=False)
        return frozenset(array.name for kernel, op in pairs if not kernel.stores for array in op.outs)

    def kernel(self, number: int) -> Kernel | None:
        """The compiled kernel of an operation."""
        return None if self.kernels is None else self.kernels[number]

    def decided(self, propagation: Propagation, number: int) -> Option:
        """An operation as it is cut; operations of a kind that are cut alike are priced once.

        Raises:
            ProgramError: if it cannot be cut so.
        """
        options = self.decided_options
        cuts, carries = propagation.cuts[number], propagation.carries[number]
        key = (self.kinds[number], tuple(sorted(cuts.items())), tuple(sorted(carries.items())) if carries else ())
        option = options.get(key)
        if option is None:
            timed = self.moves.objective == "seconds" or self.machine.rates is not None
            option = of_decided(propagation, number, self.machine if timed else None, self.kernel(number))
            ins, outs = (tuple(map(self.moves.shared, side)) for side in (option.ins, option.outs))
            option = options[key] = replace(option, ins=ins, outs=outs)
        return option

    @cached_property
    def kinds(self) -> tuple[int, ...]:
        """For every operation a number, the same for those that have the same options."""
        return isomorphism_classes(self.graph, marks=dict(enumerate(self.marks)), near=0).operations

    @cached_property
    def heavy(self) -> list[bool]:
        """Whether an operation has some of the work: where only bytes count, nothing else would have axes cut it."""
        operations = enumerate(self.graph.operations)
        work = [operation.nest.work * self.graph.times(k) for k, operation in operations]
        most = max(work, default=0)
        return [flops * HEAVY >= most > 0 for flops in work]

    @cached_property
    def floor(self) -> float:
        """Lower bound on the seconds of every schedule: each operation, shared out evenly; of bytes, 0."""
        if self.moves.objective == "bytes":
            return 0.0
        total, arrays, devices = 0.0, self.graph.arrays, self.moves.mesh.size
        for number, (operation, times) in enumerate(zip(self.graph.operations, self.times, strict=True)):
            kernel = self.kernel(number)
            if not operation.edge.computes:
                continue
            names = dict.fromkeys((*operation.ins, *(array.name for array in operation.outs)))
            whole = (self.machine.bytes_of(math.prod(arrays[name].shape), arrays[name].dtype) for name in names)
            size, flops = sum(whole) // devices, operation.nest.work
            if kernel is not None:
                size, flops = kernel.share(devices), kernel.flops(flops)
            ins = [arrays[name] for name in operation.ins]
            held = lambda k, ins=ins: self.machine.bytes_of(math.prod(ins[k].shape), ins[k].dtype) // devices  # noqa: E731
            dtypes = (array.dtype for array in ins)
            total += times * seconds_of(self.machine, operation, kernel, dtypes, size, flops // devices, held)
        return total
