"""The result of a simulation: seconds and bytes, by device, as a value, a table, a trace and a picture."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

from redistrib.errors import ProgramError
from redistrib.plans.plan import Plan
from redistrib.plans.table import step_name
from redistrib.programs.ir.program import Move, Place, Program, Value
from redistrib.programs.time.clocks import Event, Run
from redistrib.programs.time.machine import Machine
from redistrib.programs.time.picture import draw
from redistrib.programs.time.stages import timed_stages
from redistrib.programs.time.trace import chrome
from redistrib.report import ShownInNotebooks, counted, in_ranges, rendered, seconds_text

_MOST_SIZES = 5  # different sizes of rounds in a row of a table


@dataclass(frozen=True)
class Simulation(ShownInNotebooks):
    """A program on a machine.

    Attributes:
        program: the simulated program.
        machine: the simulated machine.
        run: the clocks, as they stand at the end.

    >>> from redistrib import simulate, synthesize
    >>> simulated = simulate(synthesize("[4{x}8]", "[8]", "x=2"), "gpu")
    >>> simulated.received_bytes, simulated.peak_bytes
    ({0: 16, 1: 16}, {0: 48, 1: 48})
    """

    program: Program
    machine: Machine
    run: Run = field(repr=False)

    @property
    def seconds(self) -> float:
        """When the last device is done."""
        return max(self.run.now.values(), default=0.0)

    @cached_property
    def busy(self) -> dict[int, float]:
        """Seconds in which the busiest stream of each device works, by its number in the machine."""
        most: dict[int, float] = defaultdict(float)
        for (clock, _), seconds in self.run.busy.items():
            most[clock] = max(most[clock], seconds)
        return {device: most[clock] for device, clock in self.run.clock_of.items()}

    @cached_property
    def peak_bytes(self) -> dict[int, int]:
        """The most bytes that each device holds at once."""
        return {device: self.run.peak[clock] for device, clock in self.run.clock_of.items()}

    @property
    def received_bytes(self) -> dict[int, int]:
        """Bytes that each device receives from others."""
        return self.program.received_by_device

    @property
    def height(self) -> int:
        """Elements of the largest tile of anything that moves; that of a plan is its height."""
        return self.run.height

    @property
    def events(self) -> tuple[Event, ...]:
        """The operations with their times, in program order; devices that share a clock are named by the lowest."""
        return tuple(self.run.events)

    @property
    def fits(self) -> bool:
        """Whether no device holds more than its memory; True where the machine does not say how much it has."""
        return self.machine.memory is None or max(self.peak_bytes.values(), default=0) <= self.machine.memory

    def chrome(self) -> dict[str, Any]:
        """The trace as Chrome and Perfetto read it; see `redistrib.programs.time.trace`."""
        return chrome(self.run, self.program.name, self.machine.name)

    def to_chrome(self, path: str | Path) -> None:
        """Write the trace, for https://ui.perfetto.dev or chrome://tracing."""
        Path(path).write_text(json.dumps(self.chrome()))

    def draw(self, path: str | Path) -> None:
        """Draw the timeline, and the bytes held, into a picture file. Needs matplotlib."""
        draw(self.run, f"{self.program.name} on {self.machine.name}", Path(path))

    def _text(self) -> str:
        """A table of devices, those with equal histories in one row, and one of operations, or of a plan's steps."""
        if not self.run.events:
            return self._devices()
        (first, *others) = self.program.ops
        is_plan = not others and isinstance(first, Move) and first.plan is not None and bool(first.plan.steps)
        return "\n".join([self._devices(), self._steps() if is_plan else self._operations()])

    def _devices(self) -> str:
        clocks: dict[tuple[int, int], list[int]] = defaultdict(list)
        for device, clock in self.run.clock_of.items():
            clocks[clock, self.received_bytes.get(device, 0)].append(device)
        rows = [
            [
                in_ranges(devices, ", "),
                f"{self.busy[clock] * 1e3:,.3f}",
                f"{100 * self.busy[clock] / self.seconds:.0f}%" if self.seconds else "",
                f"{self.peak_bytes[clock]:,}",
                f"{received:,}",
            ]
            for (clock, received), devices in clocks.items()
        ]
        title = f"{self.program.name} on {self.machine.name}: {seconds_text(self.seconds)}"
        return rendered(title, ["devices", "busy ms", "of the time", "peak bytes", "received bytes"], rows)

    def _operations(self) -> str:
        total: dict[tuple[str, str], list[float]] = defaultdict(list)
        for event in self.run.events:
            total[event.kind, event.name].append(event.end - event.start)
        rows = [
            [f"{kind} {name}" if kind == "compute" else name, f"{len(each):,}", f"{sum(each) * 1e3:,.3f}"]
            for (kind, name), each in sorted(total.items(), key=lambda entry: -sum(entry[1]))
        ]
        title = f"operations, on {counted(len(set(self.run.clock_of.values())), 'clock', 'clocks')}"
        return rendered(title, ["operation", "times", "ms"], rows)

    def _steps(self) -> str:
        """The steps of the plan that is the whole program; columns that are empty are left out.

        Bytes are those of the largest share of each round of an exchange, and those of the device that receives most.
        """
        names = ["step", "groups or boxes", "links", "bytes by round", "bytes received", "ms"]
        rows = []
        for k, timed in enumerate(timed_stages(self.run.events[0]), 1):
            stage = timed.stage
            assert stage.step is not None
            rows.append(
                [
                    f"{k} {step_name(stage.step)}",
                    stage.step.participants,
                    timed.links,
                    _sizes([round(share * stage.itemsize) for share in timed.rounds]),
                    f"{stage.received:,}",
                    f"{timed.seconds * 1e3:,.3f}",
                ]
            )
        filled = [column for column, cells in enumerate(zip(*rows, strict=True)) if any(cells)]
        chosen = [[row[column] for column in filled] for row in rows]
        return rendered("steps, one after the other", [names[column] for column in filled], chosen)


def _sizes(sizes: list[int]) -> str:
    """Sizes in their order, equal ones that follow each other counted; the last ones left out where there are many.

    >>> _sizes([16, 16, 8]), _sizes([4]), _sizes([])
    ('2 x 16, 8', '4', '')
    >>> _sizes([9, 8, 7, 6, 5, 4, 3])
    '9, 8, 7, 6, 5, ... (7 rounds)'
    """
    runs = [(size, len([*equal])) for size, equal in groupby(sizes)]
    shown = [f"{size:,}" if count == 1 else f"{count} x {size:,}" for size, count in runs[:_MOST_SIZES]]
    return ", ".join(shown) + (f", ... ({len(sizes)} rounds)" if len(runs) > _MOST_SIZES else "")


def as_program(plan: Plan) -> Program:
    """The program whose one move is carried out by a plan.

    Raises:
        ProgramError: if some device holds nothing at one of its ends.
    """
    if plan.leaves_devices_out:
        raise ProgramError(
            "", "", "Move", "a plan moves data between the same devices here; simulate a Move without a plan"
        )
    source = Value("source", plan.source, Place(plan.source_mesh), plan.dtype)
    target = Value("target", plan.target, Place(plan.target_mesh), plan.dtype)
    return Program((source,), (Move("source", target, plan),), ("target",), "plan")
