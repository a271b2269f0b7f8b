"""Live bytes of tasks that are laid out: the buffers of values by the tasks that make and read them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from redistrib.autoshard.buffers import Held, changes_of, in_turn, live_bytes
from redistrib.autoshard.laid_out import LaidOut
from redistrib.autoshard.streams import Item
from redistrib.autoshard.walk_tasks import Buffer, leaving
from redistrib.simulator.timeline import levels_of


class Memory:
    """The live bytes of tasks that are laid out.

    Attributes:
        laid: the tasks.
        held: their buffers.
        scratch, in_turn: bytes that every task needs while it runs; of loops by time, and if tasks ran in turn.
        beyond: buffers of layers that are not laid out: their bytes, and when they are held in two ways, see
            `_hold_beyond`.
    """

    def __init__(self, laid: LaidOut) -> None:
        self.laid, self.held = laid, [*laid.held]
        self.beyond: list[tuple[int, tuple[float, float], tuple[float, float]]] = []
        self.scratch, self.in_turn = [*laid.scratch], [*laid.scratch]
        for task, parts in laid.parts.items():
            needs = [Memory(part).needs() for part in parts]
            self.scratch[task], self.in_turn[task] = (max(sizes) for sizes in zip(*needs, strict=True))
        self._hold()

    def needs(self) -> tuple[int, int]:
        """Bytes that a step needs besides the values that the loop holds: by time, and if its tasks ran in turn."""
        alone = max(0, live_bytes(self.held, self.in_turn, in_turn(self.laid.timeline.order)).worst()[0])
        if self.laid.streams.is_apart:
            return alone, alone
        return max(live_bytes(self.held, self.scratch, self.laid.timeline).worst()[0], alone), alone

    def peak(self) -> tuple[int, int]:
        """The most bytes that are live at once, and the operation that runs then, by number."""
        changes = changes_of(self.held, self.scratch, self.laid.timeline)
        most, when = max(levels_of([*changes, *more]).worst() for more in self._beyond())
        begun = [
            k for k in self.laid.timeline.order if not self.laid.tasks[k].moves and self.laid.timeline.start[k] <= when
        ]
        items = [item for k in begun if (item := self.laid.item_of[k][0]) is not None]
        count = len(self.laid.streams.problem.graph.operations)
        return most, min(self.laid.streams.number(items[-1]), max(0, count - 1)) if items else 0

    def _hold(self) -> None:
        """The buffers of the tasks; each layer that is laid out has its own."""
        streams, scope = self.laid.streams, self.laid.scope
        ahead = set(streams.entries.get(scope, ())) if scope is not None else set()
        behind = set(streams.results.get(scope, ())) if scope is not None else set()
        for buffer in streams.buffers_of[scope]:
            is_first = not buffer.makers  # there when the program, or the step, begins
            if (is_first and scope is not None and self.laid.tests) or not (
                is_first or self.laid.tasks_of(buffer.makers)
            ):
                continue
            for k in ahead.intersection(buffer.readers) if buffer.role == "entry" else ():
                self.held.append(Held(buffer.size, (), (*self.laid.made[False, k],)))  # of the next step
                buffer = buffer._replace(readers=tuple(reader for reader in buffer.readers if reader != k))
                if not buffer.readers:
                    break
            if buffer.role == "entry" and not buffer.readers:
                continue
            if ahead.intersection(buffer.makers):  # made for the next step; that for this one is carried
                self.held.append(Held(buffer.size, self._all(buffer.makers), (), stays=True))
                self.held.append(Held(buffer.size, (), self._all(buffer.readers), is_counted=True))
                continue
            if late := behind.intersection(buffer.readers):  # moved in the next step; that of the last one is carried
                self.held.append(Held(buffer.size, (), self._all(late), is_counted=True))
                buffer = buffer._replace(stays=True)
            self._hold_layers(buffer)

    def _hold_layers(self, buffer: Buffer) -> None:
        """A buffer, or one for each layer that is laid out."""
        makers, readers = self.laid.tasks_of(buffer.makers), self.laid.tasks_of(self._readers(buffer))
        begins = self.laid.tasks_of(map(leaving, buffer.begins))
        size, stays, is_counted = buffer.size, buffer.stays, buffer.role == "carry"
        if self.laid.streams.problem.folded is None and not self.laid.picks:
            makes, reads, loops = (tuple(tasks[0] for _, tasks in found) for found in (makers, readers, begins))
            self.held.append(Held(size, makes, reads, loops, stays, is_counted))
            return
        layers = max((len(tasks) for _, tasks in makers), default=1)
        if not makers and buffer.copies > 1:
            self._hold_inputs(buffer, readers)
            return
        is_inside = not {item for item, _ in makers}.isdisjoint(item for item, _ in readers)  # made where it is read
        for layer in range(layers):
            made = tuple(tasks[min(layer, len(tasks) - 1)] for _, tasks in makers)
            users = {k for task in made for k in self.laid.readers_of(task)} if layers > 1 and not is_inside else set()
            for _, tasks in readers:
                matched = [k for k in tasks if k in users or any(read in made for read in self.laid.tasks[k].reads)]
                if layers > 1 and not matched and len(tasks) > 1:
                    matched = [tasks[min(layer, len(tasks) - 1)]]
                users.update(matched if matched or layers > 1 else tasks)
            users.update(k for reader in buffer.readers for k in self.laid.picks.get(reader, ()))
            starts = tuple(tasks[min(layer, len(tasks) - 1)] for _, tasks in begins)
            self.held.append(Held(size, made, (*users,), starts, stays, is_counted))
        run = next((self.laid.run(item) for item, tasks in makers if len(tasks) == layers), None)
        if layers > 1 and run is not None:
            others = [pair for pair in readers if self.laid.cell(pair[0]) != run]
            if others or stays:
                self._hold_beyond(size, self.laid.times(run) - layers, run, others, stays)

    def _hold_inputs(self, buffer: Buffer, readers: Sequence[tuple[Item, list[int]]]) -> None:
        """An input that stands for those of several layers."""
        last = max(readers, key=lambda pair: pair[1][-1], default=None)
        layers = 1 if last is None else len(last[1])
        if buffer.stays or layers == 1:
            users = tuple(k for _, tasks in readers for k in tasks)
            self.held.append(Held(buffer.copies * buffer.size, (), users, stays=buffer.stays))
            return
        assert last is not None
        run = self.laid.run(last[0])
        for layer in range(layers):
            users = tuple(tasks[layer] for item, tasks in readers if self.laid.run(item) == run and layer < len(tasks))
            self.held.append(Held(buffer.size, (), users))
        self._hold_beyond(buffer.size, buffer.copies - layers, None, [last], False)

    def _hold_beyond(
        self, size: int, times: int, run: int | None, readers: Sequence[tuple[Item, list[int]]], stays: bool
    ) -> None:
        """The buffers of layers that are not laid out: as the first of them run, and as the last."""
        if times <= 0:
            return
        begin, end = (0.0, 0.0) if run is None else self.laid.seconds_of(run), (math.inf, math.inf)
        if not stays:
            item, tasks = max(readers, key=lambda pair: pair[1][-1])
            read, done = self.laid.run(item), max(self.laid.timeline.end[k] for k in tasks)
            end = (done, done) if read is None else self.laid.seconds_of(read)
        self.beyond.append((times * size, (begin[1], end[1]), (begin[0], end[0])))

    def _beyond(self) -> Iterator[list[tuple[float, int]]]:
        """When buffers of layers that are not laid out are taken and given up, in two ways."""
        for way in range(2 if self.beyond else 1):
            stretches = ((size, ways[way]) for size, *ways in self.beyond)
            held = [(size, start, end) for size, (start, end) in stretches if start < end]
            yield [(at, change) for size, start, end in held for at, change in ((start, size), (end, -size))]

    def _readers(self, buffer: Buffer) -> list[int]:
        """The works that read a buffer, but for loops whose steps read a copy of it in its place."""
        loops, works = self.laid.streams.problem.graph.loops, self.laid.streams.works
        return [
            k
            for k in buffer.readers
            if k not in self.laid.streams.unread
            or loops[works[k].scope or 0].parent != self.laid.scope
            or k not in self.laid.picks
        ]

    def _all(self, works: Iterable[int]) -> tuple[int, ...]:
        return tuple(k for _, tasks in self.laid.tasks_of(works) for k in tasks)
