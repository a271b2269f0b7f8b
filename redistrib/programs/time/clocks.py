"""Clocks: when each operation runs, and the live bytes of devices at each moment.

Operations are taken in the order of the program. A computation runs on each device of its place as soon as the device
is free; a move starts when all devices that take part are free, and blocks them. Devices that take part in the same
operations have equal histories and share a clock. With several streams a device has a clock for each, and an operation
also waits for its operands. Bytes are then live from the start of their maker until all operations of the device up to
their last reader have ended on all its streams. Where moves are issued in order, a move also waits for the computations
before it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from redistrib.programs.ir.data import (
    Call,
    Loop,
    Move,
    Op,
    ProgramData,
    held_by,
    made_by,
    name_of,
    stored_by,
    used_by,
)
from redistrib.programs.ir.live import Change, Context, Liveness, devices_running, renames, steps_of
from redistrib.programs.ir.value import Value
from redistrib.programs.time.machine import Machine
from redistrib.programs.time.prices import MovePrices, PricedStage, height_of, priced_stages
from redistrib.programs.time.sharing import shared_clocks
from redistrib.programs.time.timeline import Event as Event
from redistrib.programs.time.timeline import Run as Run
from redistrib.programs.time.timeline import by_time

StreamOf: TypeAlias = Callable[[Op], str]  # the name of the stream that an operation runs on
Ready: TypeAlias = dict[str, dict[int, float]]  # of every value, when each clock has it


def run(
    program: ProgramData,
    machine: Machine,
    streams: StreamOf | None = None,
    *,
    shared: bool = True,
    record: bool = True,
    cache: SimulationCache | None = None,
    in_order: bool = False,
) -> Run:
    """Simulate a program.

    Args:
        program: a checked program.
        machine: the rates of devices and links.
        streams: the stream of every operation; all on one unless given.
        shared: whether devices with equal histories share a clock.
        record: whether to keep the events.
        cache: results for called programs, from earlier simulations with the same options.
        in_order: whether a move waits for the computations that the program has before it; these have the stream `""`.
    """
    clock_of = shared_clocks(program) if shared else {device: device for device in program.devices}
    simulator = _Simulator(machine, streams, clock_of, record, cache or SimulationCache(), in_order)
    result = Run(clock_of)
    for value in program.inputs:
        for clock in simulator.clocks(value.place.devices):
            result.live[clock] += value.tile_bytes
            result.changes[clock].append((0.0, value.tile_bytes))
    for clock in simulator.clocks(program.devices):
        result.peak[clock] = result.live[clock]
    start = {value.name: dict.fromkeys(simulator.clocks(value.place.devices), 0.0) for value in program.inputs}
    simulator.run(program, start, result)
    if streams is not None:
        by_time(result)
    return result


class _ReadyOp(NamedTuple):
    """An operation made ready: everything about it that does not depend on when it runs.

    Attributes:
        alias: whether it only gives bytes another name, which takes no time.
        context: of a call.
        born, died: bytes by clock that it takes, and that end with it.
        ended: where moves are issued in order, for every value that ends with it the bytes by clock, and numbers of the
            operations that make it or read it.
    """

    op: Op
    alias: bool
    context: Context | None
    name: str
    stream: str
    clocks: tuple[int, ...]
    stages: tuple[PricedStage, ...]
    seconds: float
    reads: tuple[str, ...]
    makes: tuple[tuple[str, tuple[int, ...]], ...]
    born: tuple[tuple[int, int], ...]
    scratch: int
    died: tuple[tuple[int, int], ...]
    height: int
    ended: tuple[tuple[tuple[tuple[int, int], ...], tuple[int, ...]], ...] = ()


class _Prepared(NamedTuple):
    """The operations of a program, and the bytes by clock that end when the last is done."""

    items: list[_ReadyOp]
    at_return: tuple[tuple[int, int], ...]


@dataclass
class SimulationCache:
    """Results for called programs, for later calls in the same context.

    Attributes:
        prepared: their operations, by the program, the context and the clocks of its devices.
        called: the result of a call on devices of a single clock.
        liveness: when their values end.
        prices: of moves.
    """

    prepared: dict[tuple[object, ...], _Prepared] = field(default_factory=dict)
    called: dict[tuple[object, ...], Run] = field(default_factory=dict)
    liveness: Liveness = field(default_factory=Liveness)
    prices: MovePrices = field(default_factory=dict)


class _Simulator:
    def __init__(
        self,
        machine: Machine,
        streams: StreamOf | None,
        clock_of: dict[int, int],
        record: bool,
        cache: SimulationCache,
        in_order: bool = False,
    ) -> None:
        self.machine, self.streams, self.clock_of, self.record, self.cache = machine, streams, clock_of, record, cache
        self.in_order = in_order
        self._clocks: dict[tuple[int, ...], tuple[int, ...]] = {}

    def clocks(self, devices: tuple[int, ...]) -> tuple[int, ...]:
        """The clocks of devices, ascending."""
        if devices not in self._clocks:
            self._clocks[devices] = tuple(sorted({self.clock_of[device] for device in devices}))
        return self._clocks[devices]

    def run(self, program: ProgramData, ready: Ready, to: Run, context: Context | None = None) -> None:
        """Meet every operation of a program in order; `ready` and `to` are brought up to date.

        For a called program, `context` says which values the caller still reads.
        """
        prepared = self._prepared(program, context)
        ends: list[dict[int, float]] = []
        for item in prepared.items:
            op = item.op
            if isinstance(op, Call):
                self._call(item, op, ready, to)
            elif isinstance(op, Loop):
                self._loop(item, op, ready, to)
            elif isinstance(op, Move) and item.alias:
                ready[op.out.name] = ready.get(op.value, {})
            else:
                self._meet(item, ready, to)
            is_timed = self.in_order and not item.alias
            ends.append({clock: to.now[clock, item.stream] for clock in item.clocks} if is_timed else {})
            for sizes, users in item.ended or ((item.died, ()),):
                self._give_up(sizes, to, [ends[k] for k in users])
        self._give_up(prepared.at_return, to)

    def _give_up(self, died: tuple[tuple[int, int], ...], to: Run, ends: Sequence[Mapping[int, float]] = ()) -> None:
        """Bytes end when all that the device was given to do is done, or where it is known who uses them, these."""
        for clock, size in died:
            to.live[clock] -= size
            if self.streams is not None:
                latest = max((end[clock] for end in ends if clock in end), default=to.latest[clock])
                to.changes[clock].append((latest, -size))

    def _meet(self, item: _ReadyOp, ready: Ready, to: Run) -> None:
        starts = {}
        for clock in item.clocks:
            start = to.now[clock, item.stream]
            if self.streams is not None:
                start = max([start, *(ready[name].get(clock, 0.0) for name in item.reads)])
            if self.in_order and isinstance(item.op, Move):
                start = max(start, to.now[clock, ""])
            starts[clock] = start
        if isinstance(item.op, Move):  # all who take part begin together
            starts = dict.fromkeys(starts, max(starts.values(), default=0.0))
        for clock, size in item.born:
            to.live[clock] += size
        gone = dict(item.died)
        for clock, start in starts.items():
            end = start + item.seconds
            to.now[clock, item.stream] = end
            to.busy[clock, item.stream] += item.seconds
            during = to.live[clock] + item.scratch
            to.peak[clock] = max(to.peak[clock], during)
            if self.record and (item.seconds or item.stages):
                kind = "move" if isinstance(item.op, Move) else "compute"
                after = to.live[clock] - gone.get(clock, 0)
                to.events.append(Event(item.name, kind, clock, item.stream, start, end, item.stages, during, after))
        if self.streams is not None:
            for name, clocks in item.makes:
                ready[name] = {clock: starts[clock] + item.seconds for clock in clocks}
            for clock, size in item.born:
                to.changes[clock].append((starts[clock], size))
            for clock, start in starts.items():
                end = start + item.seconds
                to.latest[clock] = max(to.latest[clock], end)
                to.changes[clock] += [(start, item.scratch), (end, -item.scratch)] if item.scratch else []
        to.height = max(to.height, item.height)
        to.met += len(item.clocks)

    def _call(self, item: _ReadyOp, op: Call, ready: Ready, to: Run) -> None:
        if len(item.clocks) == 1 and self.streams is None:
            self._call_again(op.program, item.clocks[0], item.context, to)
        else:
            inner = {value.name: ready.get(name, {}) for value, name in zip(op.program.inputs, op.ins, strict=True)}
            self.run(op.program, inner, to, item.context)
            if self.streams is not None:
                for output, out in zip(op.program.outputs, op.outs, strict=True):
                    ready[out.name] = inner[output]

    def _loop(self, item: _ReadyOp, op: Loop, ready: Ready, to: Run) -> None:
        """A loop: all its devices begin together, and every step takes as long as one alone."""
        step, scratch = Run(self.clock_of), item.scratch
        for inner in op.programs:
            self.run(inner, {value.name: {} for value in inner.inputs}, step)
        if self.streams is not None:
            scratch = max(scratch, *(self._in_flight(inner, op) for inner in steps_of(op)))
        start = max((to.now[clock, stream] for clock, stream in [*to.now] if clock in item.clocks), default=0.0)
        seconds = op.steps * max(step.now.values(), default=0.0)
        for clock, size in item.born:
            to.live[clock] += size
        gone = dict(item.died)
        for clock in item.clocks:
            during, after = to.live[clock] + scratch, to.live[clock] + scratch - gone.get(clock, 0)
            to.peak[clock] = max(to.peak[clock], during)
            for stream in {item.stream, *(stream for other_clock, stream in step.now if other_clock == clock)}:
                to.now[clock, stream] = start + seconds
                to.busy[clock, stream] += op.steps * step.busy[clock, stream]
            if self.record and seconds:
                to.events.append(
                    Event(item.name, "loop", clock, item.stream, start, start + seconds, (), during, after)
                )
            if self.streams is not None:
                to.latest[clock] = max(to.latest[clock], start + seconds)
                to.changes[clock] += [(start, scratch), (start + seconds, -scratch)] if scratch else []
        if self.streams is not None:
            for name, clocks in item.makes:
                ready[name] = dict.fromkeys(clocks, start + seconds)
            for clock, size in item.born:
                to.changes[clock].append((start, size))
        to.height, to.met = max(to.height, step.height), to.met + step.met

    def _in_flight(self, step: ProgramData, op: Loop) -> int:
        """Bytes that a step needs besides its constants and carried values, counted by time."""
        run = Run(self.clock_of)
        for value in step.inputs:
            for clock in self.clocks(value.place.devices):
                run.changes[clock].append((0.0, value.tile_bytes))
        self.run(step, {value.name: {} for value in step.inputs}, run)
        by_time(run)
        outside = sum(value.tile_bytes for value in step.inputs[: op.form.held])
        return max(run.peak.values(), default=0) - outside

    def _call_again(self, program: ProgramData, clock: int, context: Context | None, to: Run) -> None:
        """A call on devices of one clock takes as long, and holds as much, whenever it comes."""
        key = (id(program), context, clock)
        if key not in self.cache.called:
            alone = Run(self.clock_of)
            self.run(program, {}, alone, context)
            self.cache.called[key] = alone
        alone = self.cache.called[key]
        began, live = to.now[clock, ""], to.live[clock]
        to.now[clock, ""] = began + alone.now[clock, ""]
        to.busy[clock, ""] += alone.busy[clock, ""]
        to.live[clock] += alone.live[clock]
        to.peak[clock] = max(to.peak[clock], live + alone.peak[clock])
        to.height = max(to.height, alone.height)
        to.met += 1
        for event in alone.events:
            to.events.append(
                event._replace(
                    start=began + event.start,
                    end=began + event.end,
                    during=live + event.during,
                    after=live + event.after,
                )
            )

    def _prepared(self, program: ProgramData, context: Context | None) -> _Prepared:
        key = (id(program), context, *(self.clock_of[device] for device in program.devices))
        if key not in self.cache.prepared:
            liveness = self.cache.liveness
            lives = liveness.lifetimes(program) if context is None else liveness.called(program, context)
            ops = enumerate(zip(program.ops, lives.changes, strict=True))
            items = [self._item(op, change, lives.contexts.get(k), program) for k, (op, change) in ops]
            if self.in_order and context is None and not any(isinstance(op, Call) for op in program.ops):
                users = self._users(program)
                for k, change in enumerate(lives.changes):
                    ended = ((self._held((value,)), (*users[value.name], k)) for value in change.died)
                    items[k] = items[k]._replace(ended=tuple(ended))
            self.cache.prepared[key] = _Prepared(items, self._held(lives.at_return))
        return self.cache.prepared[key]

    def _users(self, program: ProgramData) -> dict[str, list[int]]:
        """For the bytes of every value, by their first name, the operations that make or read them."""
        first, users = self.cache.liveness.aliases(program), defaultdict[str, list[int]](list)
        for k, op in enumerate(program.ops):
            names = (*held_by(op), *(value.name for value in stored_by(op)))
            for name in dict.fromkeys(first[name] for name in names):
                users[name].append(k)
        return users

    def _item(self, op: Op, change: Change, context: Context | None, program: ProgramData) -> _ReadyOp:
        alias = isinstance(op, Move) and renames(op, program)
        stages = priced_stages(op, program, self.machine, self.cache.prices)
        height = height_of(op, program, stages) if isinstance(op, Move) and not alias else 0
        return _ReadyOp(
            op,
            alias,
            context,
            name_of(op),
            "" if self.streams is None else self.streams(op),
            self.clocks(devices_running(op, program)),
            stages,
            sum(stage.seconds for stage in stages),
            tuple(used_by(op)) if self.streams is not None else (),
            tuple((value.name, self.clocks(value.place.devices)) for value in made_by(op) if self.streams is not None),
            self._held(change.born),
            change.scratch,
            self._held(change.died),
            height,
        )

    def _held(self, values: Collection[Value]) -> tuple[tuple[int, int], ...]:
        if not values:
            return ()
        places = {id(value.place): value.place for value in values}
        total: dict[int, int] = defaultdict(int)
        for number, place in places.items():
            size = sum(value.tile_bytes for value in values if id(value.place) == number)
            for clock in self.clocks(place.devices):
                total[clock] += size
        return tuple(total.items())
