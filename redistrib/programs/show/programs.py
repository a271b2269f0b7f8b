"""Programs as data of a page: operations by source line, the timeline of their streams, and the arrays at the peak."""

from __future__ import annotations

from collections import Counter, defaultdict

from redistrib.plans.dtypes import itemsize_of
from redistrib.programs.ir.data import Compute, Move, ProgramData
from redistrib.programs.ir.inline import inlined
from redistrib.programs.ir.live import Liveness, devices_of, moments, renames
from redistrib.programs.ir.program import Program
from redistrib.programs.ir.table import cut_text, line_of, word_of
from redistrib.programs.ir.value import Value
from redistrib.programs.show.content import (
    Cell,
    Content,
    Table,
    Timeline,
    TimelineBlock,
    megabytes,
    microseconds,
    number,
)
from redistrib.programs.show.plans import plan_data
from redistrib.programs.time.clocks import Event
from redistrib.programs.time.entry import simulate
from redistrib.programs.time.machine import Machine
from redistrib.programs.time.result import Simulation
from redistrib.report import counted

MOST_PLANS = 24  # different plans of a program whose tiles are drawn
MOST_BLOCKS = 60_000
COLUMNS = ("#", "operation", "line", "cut or layout", "flops", "received bytes", "plan", "µs")


def program_content(program: Program, machine: Machine | str = "tpu") -> Content:
    """The page of a program, timed on a machine."""
    return simulation_content(simulate(program, machine))


def simulation_content(simulation: Simulation) -> Content:
    """The page of a simulation."""
    program = simulation.program
    flat = inlined(program)
    seconds: dict[str, float] = defaultdict(float)
    for event in simulation.events:
        seconds[event.name] = max(seconds[event.name], event.end - event.start)
    rows = operations(flat, seconds)
    plans = [op.plan for op in flat.ops if isinstance(op, Move) and op.plan is not None and op.plan.steps]
    alive, device = alive_at_peak(flat)
    peak = max(simulation.peak_bytes.values(), default=0)
    lines = [
        f"{counted(len(program.devices), 'device', 'devices')} of {simulation.machine.name}; "
        f"{simulation.seconds * 1e3:,.3f} ms as simulated",
        f"{megabytes(flat.received_bytes)} received by all devices; at most {megabytes(peak)} on a device",
    ]
    return Content(
        program.name,
        lines,
        [
            Table("Operations", COLUMNS, rows),
            Table(f"Alive on device {device} at the peak", ("array", "type", "bytes"), alive),
        ],
        [plan_data(plan) for plan in list(dict.fromkeys(plans))[:MOST_PLANS]],
        timeline(simulation),
    )


def operations(program: ProgramData, seconds: dict[str, float]) -> list[list[Cell]]:
    """A row for each operation and each move of a program without calls."""
    times = Counter(op.name for op in program.ops if isinstance(op, Compute))
    rows: list[list[Cell]] = []
    for op in program.ops:
        place = number(len(rows) + 1, f"{len(rows) + 1:,}")
        match op:
            case Compute():
                cut = "; ".join(filter(None, (cut_text(part) for part in op.parts)))
                took = microseconds(seconds.get(op.name, 0.0)) if times[op.name] else ""
                rows.append([place, op.name, line_of(op), cut, number(op.flops), number(0), "", took])
            case Move() if not renames(op, program):
                received = sum(program.received(op).values()) * itemsize_of(op.out.dtype)
                took = microseconds(seconds.get(f"move {op.value}", 0.0))
                rows.append(
                    [place, f"move {op.value}", "", op.out.form, number(0), number(received), word_of(op), took]
                )
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
            if change.scratch and device in devices_of(op, program):
                rows.append([f"scratch of {op.out.name if isinstance(op, Move) else ''}", "", number(change.scratch)])
            break
        for value in change.died:
            alive.pop(value.name, None)
    rows += [
        [value.name, value.form, number(value.tile_bytes)] for value in alive.values() if device in value.place.devices
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
        note = f"{(event.end - event.start) * 1e6:,.1f} µs, {megabytes(event.during)} held"
        blocks.append(TimelineBlock(row, event.name, event.kind, event.start, event.end - event.start, note))
        blocks += _steps(event, row)
        memory[event.clock] += [(event.start, event.during), (event.end, event.after)]
    names = {clock: _name(simulation, clock) for clock in dict.fromkeys(simulation.run.clock_of.values())}
    held = {names[clock]: sorted(samples, key=lambda sample: sample[0]) for clock, samples in memory.items()}
    every = [sample for samples in held.values() for sample in samples]
    peak = max(every, key=lambda sample: sample[1], default=None)
    return Timeline(
        [names[clock] + (f", {stream}" if stream else "") for clock, stream in rows], blocks[:MOST_BLOCKS], held, peak
    )


def _steps(event: Event, row: int) -> list[TimelineBlock]:
    if event.kind != "move":
        return []
    blocks, at = [], event.start
    for stage in event.stages:
        length = max(0.0, min(stage.seconds, event.end - at))
        note = f"{length * 1e6:,.1f} µs, largest tile {stage.tile:,} elements"
        blocks.append(TimelineBlock(row, stage.name, "step", at, length, note))
        at += length
    return blocks


def _name(simulation: Simulation, clock: int) -> str:
    same = [device for device, clock_of_device in simulation.run.clock_of.items() if clock_of_device == clock]
    return f"device {clock}" if len(same) == 1 else f"{len(same)} devices from {clock}"
