"""Every layout of powers of two on so many devices, simulated: DistIR's search over D, T, P and K."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import NamedTuple, TypeAlias

from redistrib.errors import ProgramError
from redistrib.errors.base import shown
from redistrib.programs.ir.program import Program
from redistrib.programs.stages.cuts import Cutter
from redistrib.programs.stages.examples import batch_of
from redistrib.programs.stages.layout import Layout
from redistrib.programs.stages.orders import ORDERS
from redistrib.programs.stages.registry import Registry
from redistrib.programs.stages.staging import Staging, cutter_of
from redistrib.programs.stages.transform import spread_over
from redistrib.programs.time.clocks import SimulationCache
from redistrib.programs.time.entry import simulated_with
from redistrib.programs.time.machine import Machine


class SimulatedLayout(NamedTuple):
    """A layout and its simulation.

    Attributes:
        layout: the layout.
        seconds: of one step.
        peak_bytes: the most that any device holds.
    """

    layout: Layout
    seconds: float
    peak_bytes: int


MOST_MICROBATCHES = 128  # microbatches of a layout

Layouts: TypeAlias = Callable[[int, int, int], Iterable[Layout]]

LAYOUTS: Registry[Layouts] = Registry("family of layouts", "a function of devices, examples and most microbatches")


def register_layouts(name: str) -> Callable[[Layouts], Layouts]:
    """A decorator that gives a family of layouts a name, which `ir.grid`, `rd.search` and its command accept.

    A family is a function of the number of devices, of examples, and of the most microbatches. It returns the layouts
    to simulate.

    Args:
        name: of the family.

    Raises:
        ChoiceError: if the name is empty, or belongs to another family.

    >>> from redistrib import Layout
    >>> @register_layouts("replicas")
    ... def replicas(devices, examples, most):
    ...     return [Layout(data=devices)]
    >>> [layout.in_words for layout in LAYOUTS.of("replicas")(4, 64, 1)]
    ['data 4']
    """
    return LAYOUTS.register(name)


@register_layouts("powers of two")
def layouts(devices: int, examples: int, most: int = MOST_MICROBATCHES) -> Iterator[Layout]:
    """Powers of two D, T and P whose product is `devices`, with 2 to `most` microbatches where P > 1, else 1.

    Left out are those that leave a replica less than an example of a microbatch.

    >>> len(list(layouts(16, 2048))), len(list(layouts(16, 128)))
    (75, 65)
    """
    powers = [1 << k for k in range(devices.bit_length())]
    for d, t, p in product(powers, repeat=3):
        if d * t * p == devices:
            for k in [1] if p == 1 else (1 << n for n in range(1, most.bit_length())):
                if examples >= d * k:
                    yield Layout(d, t, p, k)


def family_of(entry: Layouts | str) -> Layouts:
    """The family of a name or a function; the name of an order is the powers of two in that order.

    Raises:
        ChoiceError: if nothing has the name, or it is neither a name nor a function.

    >>> [str(layout) for layout in family_of("gpipe")(2, 8, 2)]
    ['1/1/2/2 gpipe', '1/2/1/1 gpipe', '2/1/1/1 gpipe']
    """
    if isinstance(entry, str) and entry in ORDERS and entry not in LAYOUTS:
        return lambda devices, examples, most: (
            replace(layout, order=entry) for layout in layouts(devices, examples, most)
        )
    return LAYOUTS.of(entry, also=ORDERS)


def layouts_of(family: Layouts, devices: int, examples: int, most: int) -> Iterator[Layout]:
    """The layouts of a family, each checked.

    Raises:
        ProgramError: if one is no `Layout`, or takes another number of devices.
    """
    for layout in family(devices, examples, most):
        if not isinstance(layout, Layout) or layout.devices != devices:
            has = (
                f"{layout.in_words}, which takes {layout.devices} devices"
                if isinstance(layout, Layout)
                else shown(layout)
            )
            raise ProgramError(
                "", "", "Layout", f"the family for {devices} devices has {has}; give rd.Layout of {devices} devices"
            )
        yield layout


def grid(
    program: Program,
    batch: Mapping[str, int],
    machine: Machine,
    devices: int = 16,
    family: Layouts | str = layouts,
    most: int = MOST_MICROBATCHES,
) -> list[SimulatedLayout]:
    """All layouts of a family for a program, the fastest first; none is left out for its memory.

    Args:
        program: on one device.
        batch: of every input with examples the dimension that runs over them.
        machine: the simulated machine.
        devices: how many; a power of two for the family `"powers of two"`.
        family: of layouts, a function or its name, see `register_layouts`; by default `"powers of two"`. The name of
            an order is the powers of two in that order.
        most: microbatches of a layout.

    Raises:
        ProgramError: as `redistrib.programs.stages.spreading.spread` does.
        ChoiceError: if no family has the name.

    >>> from redistrib.programs.stages.models import mlp
    >>> from redistrib.programs.time.constants import machine
    >>> found = grid(mlp(2, 256, 512), {"x": 0, "y": 0}, machine("v100"), devices=2, most=2)
    >>> [candidate.layout.in_words for candidate in found]
    ['tensor 2', 'data 2', 'pipeline 2, microbatches 2']
    """
    seen = batch_of(program, batch)
    simulated = [
        _candidate(layout, spread_over(seen, layout, "exact"), machine)
        for layout in layouts_of(family_of(family), devices, seen.size, most)
    ]
    return sorted(simulated, key=lambda candidate: candidate.seconds)


def of_microbatches(
    program: Program, batch: Mapping[str, int], machine: Machine, sizes: Collection[int], devices: int = 16
) -> dict[int, list[SimulatedLayout]]:
    """For batches of so many examples the layouts whose microbatches are as large as a program's batch.

    They have the same cuts and stages, and their tasks the same programs, which are built and timed once. All sizes of
    microbatches together give the result of `grid` for each batch.

    Args:
        program: on one device, of one microbatch; no operation may ask for the number of an example.
        batch: of every input with examples the dimension that runs over them.
        machine: the simulated machine.
        sizes: of the batches.
        devices: how many, a power of two.

    Raises:
        ProgramError: as `redistrib.programs.stages.spreading.spread` does.
    """
    seen = batch_of(program, batch)
    simulated: dict[int, list[SimulatedLayout]] = {}
    same_stages: dict[tuple[int, int, int], list[tuple[int, Layout]]] = {}
    for size in sizes:
        for layout in layouts(devices, size, MOST_MICROBATCHES):
            if size == seen.size * layout.microbatches:
                same_stages.setdefault((layout.data, layout.tensor, layout.pipeline), []).append((size, layout))
    cutters: dict[tuple[int, int], Cutter] = {}
    for (data, tensor, _), several in same_stages.items():
        if (data, tensor) not in cutters:
            cutters[data, tensor] = cutter_of(seen, several[0][1], 1)
        staging, cache = Staging(cutters[data, tensor], several[0][1], "exact"), SimulationCache()
        if staging.indexed:
            raise ProgramError("", "", "Batch", "an operation asks for the number of an example; simulate each layout")
        for size, layout in several:
            program_of_layout = spread_over(seen, layout, "exact", staging)
            simulated.setdefault(size, []).append(_candidate(layout, program_of_layout, machine, cache))
    return simulated


def _candidate(
    layout: Layout, program: Program, machine: Machine, cache: SimulationCache | None = None
) -> SimulatedLayout:
    simulated = simulated_with(None, program, machine, cache)
    return SimulatedLayout(layout, simulated.seconds, max(simulated.peak_bytes.values()))
