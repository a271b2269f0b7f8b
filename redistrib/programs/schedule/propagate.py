"""Propagation: the cuts of a few arrays or operations are carried through the operations that touch them.

An axis of the mesh cuts each operation along one iteration dimension or none. Forward, an operation takes the cut of
its operands. Backward, it takes the cut on which all readers of its results agree. Decisions of earlier tactics stay.
Where two operands ask for different cuts, the one that moves fewer bytes wins, and a note says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from heapq import heappop, heappush
from typing import Self

from redistrib.errors import CutError, ProgramError
from redistrib.plans.dtypes import packed_bytes
from redistrib.programs.ir.graph import Operation, Pinned
from redistrib.programs.ir.pullback import ScheduledNest, may_combine, uncut_above, windows_of
from redistrib.programs.ir.windows import Reach, Stencil, refusal
from redistrib.programs.schedule.graph_cuts import AlongAxis, ArrayDim, Choice, GraphCuts, position_of


class Propagation(GraphCuts):
    """The cuts of a graph over a mesh, and how they spread.

    Attributes:
        settled: for axes what was decided along them when they were spread last.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self.settled: dict[str, AlongAxis] = {}
        for k, operation in enumerate(self.graph.operations):
            if operation.pinned is not None:
                self._hold_pin(k, operation, operation.pinned)

    def _hold_pin(self, number: int, operation: Operation, pinned: Pinned) -> None:
        """Cut an operation as its constraint says; its axes may cut factors of one dimension, in any order."""
        for axis, size, _ in pinned.axes:
            if axis not in self.mesh.names or self.mesh.axis(axis).size != (size or self.mesh.axis(axis).size):
                of = f" of {size}" if size else ""
                why = f"its sharding is over an axis {axis!r}{of}, and the mesh is {self.mesh}; name its axes"
                raise CutError(operation.name, "", "Schedule", why).at(operation.source)
        asked = {axis: dim for axis, _, dim in pinned.cut}
        for axis, size, dim in pinned.cut:
            self.cuts[number] = {other: at for other, at in asked.items() if other != axis}
            if not size and self._tile(number, dim) % self.mesh.axis(axis).size:
                into, elements = self.mesh.axis(axis).size, self._tile(number, dim)
                why = (
                    f"axis {axis!r} is to cut {elements} elements into {into} parts, which do not divide them, and "
                    f"tiles of unequal size are not for searches, loops and dimensions of one element; cut another "
                    f"dimension, or pad the array"
                )
                raise CutError(operation.name, "", "Schedule", why).at(operation.source)
            self._cut_operation(number, axis, dim)

    def copy(self) -> Self:
        """The same decisions of the same graph, to be changed."""
        other = super().copy()
        other.settled = {**self.settled}
        return other

    # ------------------------------------------------------------------------------------- tactics

    def cut_array(self, name: str, axis: str, dim: int | None) -> None:
        """Cut an input, or ask for a cut of an output or of any other value, along an axis.

        Raises:
            CutError: if the dimension is not there, or the axis does not divide it.
        """
        array = self.arrays[name]
        size = self.mesh.axis(axis).size
        if dim is not None:
            if not -len(array.shape) <= dim < len(array.shape):
                raise CutError("", name, "Schedule", f"there is no dimension {dim}; its shape is {list(array.shape)}")
            dim %= len(array.shape)
            if (tiles := self.uneven.get(ArrayDim(name, dim))) is not None:
                for number, point in tiles:
                    if self.cuts[number].get(axis) != point:
                        self._cut_operation(number, axis, point)
                return
        into = self.wants if name in self.maker else self.pins
        dims = into.setdefault(name, {})
        if dim is not None:
            parts = size * math.prod(self.mesh.axis(a).size for a, d in dims.items() if d == dim and a != axis)
            if array.shape[dim] % parts:
                raise CutError("", name, "Schedule", self.unequal(axis, name, dim, parts))
        dims[axis] = dim
        self._seen(axis)

    def cut_operation(self, number: int, axis: str, dim: str) -> None:
        """Cut the work of an operation along an axis.

        Raises:
            CutError: if it has no such dimension, or the dimension cannot be cut so.
        """
        self.names_operations = True
        self._cut_operation(number, axis, dim)

    def _cut_operation(self, number: int, axis: str, dim: str) -> None:
        operation = self.graph.operations[number]
        if dim not in operation.nest.position:
            has = ", ".join(operation.nest.position) or "none"
            why = (
                f"{operation.opaque}, so every device runs all of it; give a rule, or leave it whole"
                if (operation.opaque)
                else f"no iteration dimension {dim!r}; it has {has}"
            )
            error = CutError(operation.name, "", "Opaque" if operation.opaque else "Schedule", why)
            raise error.at(operation.source)
        self._seen(axis)
        if not self.may_cut(number, axis, dim):
            raise self._refusal(number, axis, dim)
        self.cuts[number][axis] = dim
        self._moves(number)

    def _moves(self, number: int) -> None:
        """Note that recomputing the results of an operation, or anything that depends on them, now has a cost."""
        for array in self.graph.operations[number].outs:
            if self.constants.pop(array.name, None) is not None:
                self.settled.clear()
                for k, _ in self.readers.get(array.name, ()):
                    self._moves(k)

    def _refusal(self, number: int, axis: str, dim: str) -> ProgramError:
        """The error of a cut that an operation may not have: of the rule of derivation that it breaks, if any."""
        operation, cuts = self.graph.operations[number], self.cuts[number]
        why = "more devices along the axis could not cut it either"
        if axis in cuts:
            why = f"it cuts {cuts[axis]!r}"
        elif not self._agrees_with_pin(operation, axis, dim):
            why = "a sharding constraint has it otherwise"
        elif (points := self._tile(number, dim)) % (parts := self.mesh.axis(axis).size):
            why = f"{points} points make no {parts} equal parts, as it needs; cut another, or pad the arrays"
        else:
            cuts[axis] = dim
            try:
                ScheduledNest(operation.nest, self.cut(number)).signature(self.mesh)
            except ProgramError as error:
                return error.at(operation.source)
            finally:
                del cuts[axis]
        refused = CutError(operation.name, "", "Schedule", f"axis {axis!r} cannot cut dimension {dim!r}: {why}")
        return refused.at(operation.source)

    def _seen(self, axis: str) -> None:
        self.mesh.axis(axis)
        if axis not in self.order:
            self.order.append(axis)

    def spread(self, axis: str) -> None:
        """Propagate the cuts along an axis as far as they go.

        Only what changed since it was spread last is looked at: all other operations come out as they did.
        """
        operations, changed = self.graph.operations, True
        while changed:
            before, now = self.settled.get(axis), self.along(axis)
            self.settled[axis] = now
            numbers, names = now.changed(before)
            if not numbers and not names:
                return
            results = (array.name for k in numbers for array in operations[k].outs)
            forward = self._sweep(
                {*numbers, *self._readers_of([*names, *results])},
                lambda k: self._forward(k, axis),
                lambda k: self._readers_of(array.name for array in operations[k].outs),
            )
            numbers += forward
            operands = (name for k in numbers for name in operations[k].ins)
            backward = self._sweep(
                {*numbers, *self._makers_of([*names, *operands])},
                lambda k: self._backward(k, axis),
                lambda k: self._makers_of(operations[k].ins),
                -1,
            )
            changed = bool(forward or backward)
            changed = changed or sum(self._accumulate(k, axis) for k in self.graph.accumulators) > 0

    def _sweep(
        self, numbers: set[int], visit: Callable[[int], bool], neighbours: Callable[[int], set[int]], sign: int = 1
    ) -> list[int]:
        """Visit operations in order, or from the last with sign -1, and neighbours further on of those that change.

        Returns:
            Those that changed.
        """
        waiting = sorted(sign * k for k in numbers)
        queued, changed = {*waiting}, list[int]()
        while waiting:
            place = heappop(waiting)
            if not visit(sign * place):
                continue
            changed.append(sign * place)
            for k in {sign * k for k in neighbours(sign * place)} - queued:
                if k > place:
                    queued.add(k)
                    heappush(waiting, k)
        return changed

    def _readers_of(self, names: Iterable[str]) -> set[int]:
        return {k for name in names for k, _ in self.readers.get(name, ())}

    def _makers_of(self, names: Iterable[str]) -> set[int]:
        return {self.maker[name][0] for name in names if name in self.maker}

    # ------------------------------------------------------------------------------------- queries

    def may_cut(self, number: int, axis: str, dim: str) -> bool:
        """Whether an axis may cut a dimension of an operation beside the cuts that are decided."""
        operation, cuts = self.graph.operations[number], self.cuts[number]
        nest = operation.nest
        if axis in cuts or dim in nest.whole or not self._agrees_with_pin(operation, axis, dim):
            return False
        if self._tile(number, dim) % self.mesh.axis(axis).size or not self._can_reach(number, axis, dim):
            return False
        for access in (*nest.reads, *nest.writes):
            for names in access.dims:
                if dim in names[1:] and uncut_above(names, dim, lambda name: self._tile(number, name)) is not None:
                    return False
        return all(may_combine(nest, write, (*cuts.values(), dim)) for write in range(len(nest.writes)))

    def _agrees_with_pin(self, operation: Operation, axis: str, dim: str) -> bool:
        """Whether the sharding constraint of an operation, if it is one, leaves a cut free or asks for it."""
        pinned = operation.pinned
        if not pinned or (axis, dim) in ((a, d) for a, _, d in pinned.cut):
            return True
        return dim in pinned.free and axis not in pinned.whole

    def _can_reach(self, number: int, axis: str, dim: str) -> bool:
        """Whether parts of a dimension can read their windows, if an axis cuts it too; partial sums have no halos."""
        nest, carried = self.graph.operations[number].nest, self.carries[number].values()
        points = self._tile(number, dim) // self.mesh.axis(axis).size
        for read, access in enumerate(nest.reads):
            if not access.windows:
                continue
            stencils = [w for w, names in zip(access.windows, access.dims, strict=False) if dim in names and w != 1]
            for stencil in stencils:
                if isinstance(stencil, Stencil) and refusal(stencil, points, nest.size(dim)):
                    return False
            if stencils and any(read in nest.linear[group] for group in carried):
                return False
        return True

    def _dim_of(self, number: int, names: Sequence[str], axis: str, allowed: Collection[str] = ()) -> str | None:
        """The factor of an array dimension that an axis would cut; those in `allowed` it may cut."""
        for name in names:
            if self._tile(number, name) > 1:
                return name if name in allowed or self.may_cut(number, axis, name) else None
        return None

    # ------------------------------------------------------------------------------------- two directions

    def _forward(self, number: int, axis: str) -> bool:
        if axis in self.cuts[number] or axis in self.carries[number]:
            return False
        operation = self.graph.operations[number]
        requests: dict[str, list[str]] = {}
        for access, name in zip(operation.nest.reads, operation.ins, strict=True):
            at = self.where(name, axis)
            if at is None or name in self.constants:
                continue
            dim = self._dim_of(number, access.dims[at], axis, requests)
            if dim is not None:
                requests.setdefault(dim, []).append(name)
        if not requests:
            return self._carry(number, axis)
        taken = next(iter(requests))
        if len(requests) > 1:
            price = {dim: self.to_move(operation, axis, dim) for dim in requests}
            taken = min(requests, key=lambda dim: price[dim])
            prices_text = "; ".join(
                f"{dim!r} for {', '.join(map(repr, names))} (about {price[dim]:,} bytes to move)"
                for dim, names in requests.items()
            )
            self.choices.append(Choice(operation.name, axis, taken, f"{prices_text}; the least was taken"))
        self.cuts[number][axis] = taken
        return True

    def to_move(self, operation: Operation, axis: str, dim: str) -> int:
        """Bytes that all devices together have to receive, roughly, if an axis cuts this dimension."""
        n, total = self.mesh.axis(axis).size, 0
        for access, name in zip(operation.nest.reads, operation.ins, strict=True):
            at, needed = self.where(name, axis), position_of(access, dim)
            if at is not None and at != needed and name not in self.constants:
                moved = self._bytes(name) * (n - 1) // (n if needed is not None else 1)
                total += moved * self.graph.times_of(name)
        for access, array in zip(operation.nest.writes, operation.outs, strict=True):
            if dim not in access.names:
                total += 2 * self._bytes(array.name) * (n - 1) * self.graph.times_of(array.name)
        return total

    def _bytes(self, name: str) -> int:
        array = self.arrays[name]
        return packed_bytes(math.prod(array.shape), array.dtype)

    def _backward(self, number: int, axis: str) -> bool:
        if axis in self.cuts[number] or axis in self.carries[number]:
            return False
        operation = self.graph.operations[number]
        for access, array in zip(operation.nest.writes, operation.outs, strict=True):
            at = self.asked(array.name, axis)
            if at is None:
                continue
            dim = self._dim_of(number, access.dims[at], axis)
            if dim is not None:
                self.cuts[number][axis] = dim
                return True
        return False

    # ------------------------------------------------------------------------------------- summands

    def _carry(self, number: int, axis: str) -> bool:
        """Let summands pass through an operation and be added up after it, where there is no more to add up then.

        All reads of a linear group must be summands along the axis, and all that read them linear in them.
        """
        operation = self.graph.operations[number]
        if operation.edge.stacks:  # they are added, or scattered, in the step that makes them
            return False
        groups = [
            group for group in operation.nest.linear if any(self.is_summed(operation.ins[r], axis) for r in group)
        ]
        if len(groups) != 1:
            return False
        names = [operation.ins[r] for r in groups[0]]
        kinds = {operation.nest.combiner[dim] for dim in self.cuts[number].values() if dim in operation.nest.combiner}
        if kinds - {"sum"} or not all(
            self._may_be_summed(name, axis) and self._is_carried_by_all(name) for name in names
        ):
            return False
        if any(self._has_halo(number, read) for read in groups[0]):
            return False
        self.carries[number][axis] = operation.nest.linear.index(groups[0])
        return True

    def _may_be_summed(self, name: str, axis: str) -> bool:
        """Whether a value is summands beside others that are."""
        return self.is_summed(name, axis)

    def _has_halo(self, number: int, read: int) -> bool:
        """Whether devices read an array beyond their tiles."""
        nest = self.graph.operations[number].nest
        access = nest.reads[read]
        return bool(access.windows) and any(
            isinstance(window, Reach) for window in windows_of(nest, access, self.cut(number))
        )

    def _accumulate(self, number: int, axis: str) -> bool:
        """Let a loop carry summands, if the carried value is then summands at the end of a step too.

        The result of a step is summands only if its operand is: it is tried, and undone where it fails.
        """
        if axis in self.cuts[number] or axis in self.carries[number]:
            return False
        operation, loop = self.graph.operations[number], self.graph.loops[self.graph.scopes[number] or 0]
        inside = [k for k in range(loop.first, loop.stop) if axis not in self.cuts[k] and axis not in self.carries[k]]
        choices = len(self.choices)
        self.carries[number][axis] = 0
        while sum(self._forward(k, axis) for k in inside):
            pass
        at_end, reads = operation.ins[1], [k for k, _ in self.readers.get(operation.outs[0].name, ())]
        is_closed = self.is_summed(at_end, axis) and self._is_carried_by_all(at_end)
        if is_closed and all(axis in self.carries[k] for k in reads) and self._adds_summands(number, inside, axis):
            return True
        for k in inside:
            self.cuts[k].pop(axis, None)
            self.carries[k].pop(axis, None)
        del self.choices[choices:]
        return False

    def _adds_summands(self, number: int, inside: Sequence[int], axis: str) -> bool:
        """Whether a carried value has summands of others: of its start, or of operations that are cut in the loop."""
        carried = {number, *(k for k in inside if axis in self.carries[k])}
        sources = [self.graph.operations[number].ins[0]]
        for k in carried - {number}:
            operation = self.graph.operations[k]
            sources += [operation.ins[r] for r in operation.nest.linear[self.carries[k][axis]]]
        return any(self.is_summed(name, axis) and self.maker[name][0] not in carried for name in sources)

    def is_summed(self, name: str, axis: str) -> bool:
        """Whether a value is made as summands along an axis that a sum makes whole."""
        if name not in self.maker:
            return False
        k, w = self.maker[name]
        nest, dim = self.graph.operations[k].nest, self.cuts[k].get(axis)
        if dim is None:
            return axis in self.carries[k]
        return nest.is_summed(w, dim)

    def _is_carried_by_all(self, name: str) -> bool:
        """Whether all readers of a value are linear in it, and their results are no larger."""
        reading = [(self.graph.operations[k], r) for k, r in self.readers.get(name, ())]
        is_linear = all(any(r in group for group in operation.nest.linear) for operation, r in reading)
        if name in self.graph.outputs or not is_linear:
            return False
        outs = (array for operation, _ in reading for array in operation.outs[: operation.edge.present])
        result_bytes = sum(self._bytes(array.name) * self.graph.times_of(array.name) for array in outs)
        return result_bytes <= self._bytes(name) * self.graph.times_of(name)
