"""The buffers of tasks that are laid out: of each value those of the tasks that make and read it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from redistrib.programs.lower.shifts import AHEAD, BEHIND
from redistrib.programs.search.laid_out import LaidOut
from redistrib.programs.search.streams import Item
from redistrib.programs.search.works import WorkBuffer, leaving
from redistrib.programs.time.task_blocks import RepeatedBuffers, TaskBuffer

ItemTasks: TypeAlias = tuple[Item, list[int]]  # an item, and its tasks in the layers that are laid out


def add_buffers(laid: LaidOut) -> None:
    """Add the buffers of values to the block of tasks that are laid out, and to those of its loops."""
    for parts in laid.parts.values():
        for part in parts:
            add_buffers(part)
    _Buffers(laid).add_all()


class _Buffers:
    """The buffers of values, where tasks are laid out."""

    def __init__(self, laid: LaidOut) -> None:
        self.laid, self.buffers = laid, laid.block.buffers
        self._is_plain = not laid.runs and not laid.picks  # each item has one task

    def add_all(self) -> None:
        """The buffers of the tasks; each layer that is laid out has its own."""
        laid, streams, scope = self.laid, self.laid.streams, self.laid.scope
        shifted = [(k, move.shift) for k, move in streams.shifted.items() if streams.works[k].scope == scope]
        ahead, behind = ({k for k, shift in shifted if shift is one} for one in (AHEAD, BEHIND))
        for buffer in streams.buffers_of.get(scope, ()):
            is_first = not buffer.makers  # there when the program, or the step, begins
            if is_first and scope is not None and laid.tests:
                continue
            if self._is_plain and not ahead and not behind:
                makers = laid.first_tasks_of(buffer.makers)
                if makers or (is_first and (buffer.readers or not buffer.edge.slices)):
                    self._add(buffer, makers)
                continue
            if not (is_first or laid.tasks_of(buffer.makers)):
                continue
            for k in ahead.intersection(buffer.readers) if buffer.edge.slices else ():
                self.buffers.append(TaskBuffer(buffer.size, (), (*laid.tasks_by_item.get(k, ()),)))  # of the next step
                buffer = buffer._replace(readers=tuple(reader for reader in buffer.readers if reader != k))
                if not buffer.readers:
                    break
            if buffer.edge.slices and not buffer.readers:
                continue
            late = buffer.readers if ahead.intersection(buffer.makers) else behind.intersection(buffer.readers)
            if late:  # they read that of the step before, which is carried
                self.buffers.append(TaskBuffer(buffer.size, (), self._all(late), is_counted=True))
                buffer = buffer._replace(stays=True)
            if self._is_plain:
                self._add(buffer, laid.first_tasks_of(buffer.makers))
            else:
                self._add_layers(buffer)

    def _add(self, buffer: WorkBuffer, makers: tuple[int, ...]) -> None:
        """A buffer where each item has one task."""
        size, _, _, readers, begins, stays, edge, _ = buffer
        loops = self.laid.first_tasks_of(map(leaving, begins)) if begins else ()
        reads = self.laid.first_tasks_of(readers)
        self.buffers.append(TaskBuffer(size, makers, reads, loops, stays, edge.carries))

    def _add_layers(self, buffer: WorkBuffer) -> None:
        """A buffer, or one for each layer that is laid out."""
        laid = self.laid
        makers, readers = laid.tasks_of(buffer.makers), laid.tasks_of(self._readers(buffer))
        begins = laid.tasks_of(map(leaving, buffer.begins))
        layers = max((len(tasks) for _, tasks in makers), default=1)
        if not makers and buffer.copies > 1:
            self._add_inputs(buffer, readers)
            return
        picks = [k for reader in buffer.readers for k in laid.picks.get(reader, ())] if laid.picks else []
        is_inside = not {item for item, _ in makers}.isdisjoint(item for item, _ in readers)  # made where it is read
        for layer in range(layers):
            layer_makers = tuple(tasks[min(layer, len(tasks) - 1)] for _, tasks in makers)
            users = {*self._users(layer_makers, readers, layer, layers > 1, is_inside), *picks}
            starts = tuple(tasks[min(layer, len(tasks) - 1)] for _, tasks in begins)
            self.buffers.append(
                TaskBuffer(buffer.size, layer_makers, (*users,), starts, buffer.stays, buffer.edge.carries)
            )
        run = next((laid.run(item) for item, tasks in makers if len(tasks) == layers), None) if layers > 1 else None
        if run is not None:
            others = [pair for pair in readers if laid.cell(pair[0]) != run]
            if others or buffer.stays:
                self._add_beyond(buffer.size, laid.times(run) - layers, run, others, buffer.stays)

    def _users(
        self, makers: Sequence[int], readers: Sequence[ItemTasks], layer: int, is_one_of_several: bool, is_inside: bool
    ) -> Iterator[int]:
        """The tasks that read what tasks of one layer make."""
        direct: set[int] = set()
        for task in makers if is_one_of_several or any(len(tasks) > 1 for _, tasks in readers) else ():
            direct.update(self.laid.readers_of(task))
        if is_one_of_several and not is_inside:
            yield from direct
        for _, tasks in readers:
            matched = [k for k in tasks if k in direct] if direct else ()
            if matched:
                yield from matched
            elif not is_one_of_several:
                yield from tasks
            elif len(tasks) > 1:
                yield tasks[min(layer, len(tasks) - 1)]

    def _add_inputs(self, buffer: WorkBuffer, readers: Sequence[ItemTasks]) -> None:
        """An input that stands for those of several layers."""
        last = max(readers, key=lambda pair: pair[1][-1], default=None)
        layers = 1 if last is None else len(last[1])
        if last is None or buffer.stays or layers == 1:
            users = tuple(k for _, tasks in readers for k in tasks)
            self.buffers.append(TaskBuffer(buffer.copies * buffer.size, (), users, stays=buffer.stays))
            return
        run = self.laid.run(last[0])
        for layer in range(layers):
            users = tuple(tasks[layer] for item, tasks in readers if self.laid.run(item) == run and layer < len(tasks))
            self.buffers.append(TaskBuffer(buffer.size, (), users))
        self._add_beyond(buffer.size, buffer.copies - layers, None, [last], False)

    def _add_beyond(self, size: int, times: int, run: int | None, readers: Sequence[ItemTasks], stays: bool) -> None:
        """The buffers of layers that are not laid out."""
        if times <= 0:
            return
        makers, tasks, read = () if run is None else self.laid.computations_of(run), None, None
        if not stays:
            item, tasks = max(readers, key=lambda pair: pair[1][-1])
            read = self.laid.run(item)
            tasks = tasks if read is None else self.laid.computations_of(read)
        self.laid.block.beyond.append(RepeatedBuffers(times * size, makers, tasks, read is not None))

    def _readers(self, buffer: WorkBuffer) -> Sequence[int]:
        """The works that read a buffer, but for loops whose steps read a copy of it in its place."""
        loops, works, unread = self.laid.streams.problem.graph.loops, self.laid.streams.works, self.laid.streams.unread
        if not unread:
            return buffer.readers
        return [
            k
            for k in buffer.readers
            if k not in unread or loops[works[k].scope or 0].parent != self.laid.scope or k not in self.laid.picks
        ]

    def _all(self, works: Iterable[int]) -> tuple[int, ...]:
        return tuple(k for _, tasks in self.laid.tasks_of(works) for k in tasks)
