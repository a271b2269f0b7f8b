"""Every layout of powers of two on so many devices, simulated: DistIR's search over D, T, P and K."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import NamedTuple

from redistrib.pipelines.layout import Layout
from redistrib.pipelines.roles import batch_of
from redistrib.pipelines.transform import spread_over
from redistrib.programs.program import Program
from redistrib.simulate import simulate
from redistrib.simulate.machine import Machine


class Candidate(NamedTuple):
    """A layout and what simulation says of it.

    Attributes:
        layout: the layout.
        seconds: of one step.
        peak_bytes: the most that any device holds.
    """

    layout: Layout
    seconds: float
    peak_bytes: int


def layouts(devices: int, examples: int, most: int = 128) -> Iterator[Layout]:
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


def grid(program: Program, batch: Mapping[str, int], machine: Machine, devices: int = 16) -> list[Candidate]:
    """All layouts of a program, the fastest first; none is left out for its memory.

    Args:
        program: on one device.
        batch: of every input with examples the dimension that runs over them.
        machine: what is simulated.
        devices: how many, a power of two.

    Raises:
        ProgramError: as `redistrib.pipelines.spread` does.
    """
    seen = batch_of(program, batch)
    found = []
    for layout in layouts(devices, seen.size):
        one = simulate(spread_over(seen, layout, "exact"), machine, record=False)
        found.append(Candidate(layout, one.seconds, max(one.peak_bytes.values())))
    return sorted(found, key=lambda candidate: candidate.seconds)
