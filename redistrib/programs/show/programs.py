"""Programs as data of a page: operations by source line, the timeline of their streams, and the arrays at the peak."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from string import digits
from typing import NamedTuple

from redistrib.programs.ir.data import Compute, Loop, Move, Op, ProgramData
from redistrib.programs.ir.inline import inlined
from redistrib.programs.ir.live import Liveness, devices_running, moments, renames
from redistrib.programs.ir.program import Program
from redistrib.programs.ir.table import cut_text, label_of, line_of, word_of
from redistrib.programs.ir.value import Value
from redistrib.programs.show.content import (
    Cell,
    Content,
    Table,
    Timeline,
    TimelineBlock,
    content_about,
    duration,
    number,
    size,
)
from redistrib.programs.show.plans import plan_data
from redistrib.programs.time.entry import simulate
from redistrib.programs.time.machine import Machine
from redistrib.programs.time.result import Simulation
from redistrib.programs.time.stages import timed_stages
from redistrib.programs.time.timeline import Event
from redistrib.programs.time.trace import byte_samples
from redistrib.report import bytes_text, counted, seconds_text

MOST_PLANS = 24  # different plans of a program whose tiles are drawn
MOST_BLOCKS = 60_000
MOVED = "\u21c4 "  # before what moves
MARKS = f"{MOVED}marks what moves"
DIMENSIONS = (
    "b0, m0, n0 and k0 are the batch, rows, columns and contracted dimension of a product; d0, d1, ... the dimensions "
    "of an array; f0, f1, ... the factors of a reshape"
)
COLUMNS = ("#", "operation", "layer", "line", "cut or layout", "flops", "received", "plan", "time")


class OperationTime(NamedTuple):
    """An operation of a program without calls, or of a step of a loop in it.

    Attributes:
        op, program: the operation, and the program that it stands in.
        layer: the loop around it, or the layer of the argument that it or an operation before it reads.
        times: how often it runs.
        seconds: of all its runs.
    """

    op: Op
    program: ProgramData
    layer: str
    times: int
    seconds: float


@content_about.register(Program)
def program_content(program: Program, machine: Machine | str = "tpu") -> Content:
    """The page of a program, timed on a machine."""
    return simulation_content(simulate(program, machine))


@content_about.register(Simulation)
def simulation_content(simulation: Simulation) -> Content:
    """The page of a simulation."""
    program = simulation.program
    flat = inlined(program)
    listed = list(timed_operations(flat, simulation))
    plans = {entry.op.plan: entry.op.value for entry in listed if isinstance(entry.op, Move) and entry.op.plan}
    alive, device = alive_at_peak(flat)
    peak = max(simulation.peak_bytes.values(), default=0)
    lines = [
        f"{counted(len(program.devices), 'device', 'devices')} of {simulation.machine.name}; "
        f"{seconds_text(simulation.seconds)} as simulated",
        f"{bytes_text(flat.received_bytes)} received by all devices; at most {bytes_text(peak)} on a device",
        *([MARKS] if any(isinstance(entry.op, Move) for entry in listed) else []),
        *([DIMENSIONS] if any(isinstance(entry.op, Compute) and entry.op.source for entry in listed) else []),
    ]
    return Content(
        program.name,
        lines,
        [
            Table("Operations", COLUMNS, operations(listed)),
            Table(f"Alive on device {device} at the peak", ("array", "type", "bytes"), alive),
        ],
        [plan_data(plan, name) for plan, name in [*plans.items()][:MOST_PLANS] if plan.steps],
        timeline(simulation),
        [
            _seconds_by("kind of work", listed, _kind, longest_first=True),
            _seconds_by("layer", listed, lambda entry: entry.layer),
        ],
    )


def timed_operations(
    program: ProgramData, simulation: Simulation, loop: str = "", times: int = 1
) -> Iterator[OperationTime]:
    """Every operation and move with its time, those in the steps of loops behind their loop."""
    spans: dict[tuple[str, int], deque[float]] = defaultdict(deque)
    for event in simulation.events:
        spans[event.name, event.clock].append(event.end - event.start)
    layer, layer_of = loop, layers(value.name for value in program.inputs)
    for op in program.ops:
        if isinstance(op, Move):
            layer_of[op.out.name] = layer_of.get(op.value, "")
            if renames(op, program):
                continue
        reads = [op.value] if isinstance(op, Move) else [name for _, name in op.ins] if isinstance(op, Compute) else []
        layer = loop or next((layer_of[name] for name in reads if layer_of.get(name)), layer)
        clocks = {simulation.run.clock_of[device] for device in devices_running(op, program)}
        name = f"move {op.value}" if isinstance(op, Move) else op.name if isinstance(op, Compute | Loop) else ""
        own = [spans[name, clock].popleft() for clock in clocks if spans[name, clock]]
        here = label_of(op) if isinstance(op, Loop) and not loop else layer
        yield OperationTime(op, program, here, times, times * max(own, default=0.0))
        if isinstance(op, Loop):
            for inner in op.programs:
                step = simulate(Program(inner.inputs, inner.ops, inner.outputs, inner.name), simulation.machine)
                yield from timed_operations(inner, step, here, times * op.steps)


def layers(paths: Iterable[str]) -> dict[str, str]:
    """The layer of each path of an argument: its part with a number that has most siblings; or else the path itself,
    where it has several parts.

    >>> layers(["params/layers/0/up", "params/layers/1/up", "params/head/w", "x"])
    {'params/layers/0/up': 'layers/0', 'params/layers/1/up': 'layers/1', 'params/head/w': 'params/head/w'}
    """
    split = {path: path.split("/") for path in paths}
    places = {tuple(parts[: k + 1]) for parts in split.values() for k in range(len(parts))}
    siblings = Counter((*place, part.rstrip(digits)) for *place, part in places)
    found = {}
    for path, parts in split.items():
        numbered = [k for k, part in enumerate(parts) if part[-1:].isdigit()]
        at = max(numbered, key=lambda k: siblings[*parts[:k], parts[k].rstrip(digits)], default=0)
        if numbered:
            found[path] = "/".join(parts[max(0, at - 1) : at + 1]) if parts[at].isdigit() else parts[at]
        elif len(parts) > 1:
            found[path] = path
    return found


def _kind(entry: OperationTime) -> str:
    return f"{MOVED}{word_of(entry.op)}" if isinstance(entry.op, Move) else getattr(entry.op, "kind", "")


def _seconds_by(
    what: str, listed: Sequence[OperationTime], key: Callable[[OperationTime], str], longest_first: bool = False
) -> Table:
    """Seconds and bytes of the operations that have the same key; no rows where all have."""
    parts: dict[str, list[OperationTime]] = defaultdict(list)
    for entry in listed:
        if not isinstance(entry.op, Loop):
            parts[key(entry)].append(entry)
    whole = sum(entry.seconds for entries in parts.values() for entry in entries) or 1.0
    rows: list[list[Cell]] = []
    by_time = sorted(parts.items(), key=lambda part: -sum(entry.seconds for entry in part[1]) * longest_first)
    for name, entries in by_time:
        moves = [entry for entry in entries if isinstance(entry.op, Move)]
        took, moving = (sum(entry.seconds for entry in some) for some in (entries, moves))
        rows.append(
            [
                name or "others",
                number(sum(entry.times for entry in entries)),
                duration(took),
                number(took / whole, f"{100 * took / whole:.1f}%"),
                duration(moving) if moves else "",
                size(sum(map(_received, moves))),
            ]
        )
    columns = [what, "times", "time", "of all", "of it moves", "received"]
    return Table(f"Time by {what}", columns, rows if len(rows) > 1 else ())


def _received(entry: OperationTime) -> int:
    """Bytes that all devices receive in a move, over all its runs."""
    assert isinstance(entry.op, Move)
    return entry.times * entry.program.received_bytes_of(entry.op)


def operations(listed: Sequence[OperationTime]) -> list[list[Cell]]:
    """A row for each operation and each move, those of loops with the figures of all their steps."""
    rows: list[list[Cell]] = []
    for op, program, layer, times, seconds in listed:
        place, took = number(len(rows) + 1, f"{len(rows) + 1:,}"), duration(seconds) if seconds else ""
        match op:
            case Compute():
                cut = "; ".join(filter(None, (cut_text(part) for part in op.parts)))
                rows.append([place, op.name, layer, line_of(op), cut, number(times * op.flops), size(0), "", took])
            case Move():
                received = size(_received(OperationTime(op, program, layer, times, seconds)))
                name = f"{MOVED}{op.value}"
                rows.append([place, name, layer, "", op.out.form, number(0), received, word_of(op), took])
            case Loop():
                rows.append([place, label_of(op), layer, line_of(op), "", number(0), size(0), "", took])
    return rows


def alive_at_peak(program: ProgramData) -> tuple[list[list[Cell]], int]:
    """The arrays that are alive on the fullest device at its worst moment, the largest first; and the device."""
    lives = Liveness().lifetimes(program)
    most: tuple[int, int, int] = (-1, 0, 0)  # bytes, operation, device
    for k, moment in enumerate(moments(program)):
        for device in moment.devices:
            most = max(most, (moment.held[device] + moment.scratch, -k, -device))
    device = -most[2]
    alive: dict[str, Value] = {value.name: value for value in program.inputs}
    rows: list[list[Cell]] = []
    for k, (op, change) in enumerate(zip(program.ops, lives.changes, strict=True)):
        alive |= {value.name: value for value in change.born}
        if k == -most[1]:
            if change.scratch and device in devices_running(op, program):
                rows.append([f"scratch of {op.out.name if isinstance(op, Move) else ''}", "", size(change.scratch)])
            break
        for value in change.died:
            alive.pop(value.name, None)
    rows += [
        [value.name, value.form, size(value.tile_bytes)] for value in alive.values() if device in value.place.devices
    ]
    return sorted(rows, key=lambda row: -row[2][1] if isinstance(row[2], tuple) else 0), device


def timeline(simulation: Simulation) -> Timeline:
    """The blocks of every clock and stream, steps inside moves, and the bytes held."""
    events = simulation.events
    rows = sorted({(event.clock, event.stream) for event in events})
    place = {row: k for k, row in enumerate(rows)}
    blocks: list[TimelineBlock] = []
    memory: dict[int, list[tuple[float, int]]] = defaultdict(list)
    for event in events:
        row = place[event.clock, event.stream]
        note = f"{seconds_text(event.end - event.start)}, {bytes_text(event.during)} held"
        blocks.append(TimelineBlock(row, event.name, event.kind, event.start, event.end - event.start, note))
        blocks += _steps(event, row)
        memory[event.clock] += byte_samples(event)
    run = simulation.run
    held = {run.row(clock): sorted(samples, key=lambda sample: sample[0]) for clock, samples in memory.items()}
    every = [sample for samples in held.values() for sample in samples]
    peak = max(every, key=lambda sample: sample[1], default=None)
    return Timeline([run.row(*row) for row in rows], blocks[:MOST_BLOCKS], held, peak)


def _steps(event: Event, row: int) -> list[TimelineBlock]:
    if event.kind != "move":
        return []
    return [
        TimelineBlock(
            row, timed.stage.name, "step", timed.start, timed.seconds,
            f"{seconds_text(timed.seconds)}, largest tile {timed.stage.tile:,} elements",
        )
        for timed in timed_stages(event)
    ]  # fmt: skip
