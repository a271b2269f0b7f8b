"""Uses of a number of devices: meshes of every shape, and replicas, tensor parts, stages and microbatches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from redistrib.errors import ProgramError
from redistrib.programs.ir.program import Program
from redistrib.programs.run.prepared import Prepared
from redistrib.programs.search.moves import Objective
from redistrib.programs.search.timed import Timed
from redistrib.programs.stages.entry import FunctionInStages, devices_of, in_stages, unrolled_up_to
from redistrib.programs.stages.grid import Layouts, layouts_of
from redistrib.programs.stages.layout import Layout
from redistrib.programs.stages.roles import BatchedProgram
from redistrib.programs.stages.stages import crossing, forward_of
from redistrib.programs.stages.transform import spread_over
from redistrib.programs.time.machine import Machine


@dataclass
class Staged(Timed):
    """A function spread over replicas, tensor parts, stages and microbatches, with its time and memory.

    Attributes:
        layout: how it is spread.
        program: the program of every device.
        machine: the simulated machine.
        function: the function in stages that it was made of.
        objective: the figure by which candidates are ordered.

    >>> import jax.numpy as jnp
    >>> import redistrib as rd
    >>> args = jnp.ones((64, 8)), jnp.ones((8, 8))
    >>> options = {"devices": 2, "pipeline": True, "batch": {"x": 0}, "progress": False}
    >>> found = rd.search(lambda x, w: x @ w, args, **options)
    >>> {type(one).__name__ for one in found} == {"Candidate", "Staged"}
    True
    """

    layout: Layout
    program: Program = field(repr=False)
    machine: Machine = field(repr=False)
    function: FunctionInStages = field(repr=False)
    objective: Objective = "seconds"

    @property
    def prepared(self) -> Prepared:  # type: ignore[override]
        """The function as it was traced."""
        return self.function.prepared

    @property
    def name(self) -> str:
        """Replicas, tensor parts, groups of devices, microbatches."""
        return self.layout.in_words

    @cached_property
    def distributed(self) -> Any:
        """The function, run by the program that was simulated; it needs as many devices as the layout takes."""
        return self.function.pipelined(self.program, self.layout, devices_of(None, self.layout))

    @property
    def rank(self) -> tuple[float, str]:
        """The figure by which candidates are ordered."""
        return (self.seconds if self.objective == "seconds" else self.received_bytes, self.name)

    def _text(self) -> str:
        return self.summary()


def staged(
    prepared: Prepared,
    batch: Mapping[str, int],
    devices: int,
    microbatches: tuple[int, int],
    machine: Machine,
    objective: Objective,
    family: Layouts,
) -> Iterator[Staged]:
    """Every layout of a family. A stage takes a run of the layers that are scanned.

    Other stages are as even as dynamic programming makes them where the layout does not name them.

    Args:
        prepared: the function, its loops not opened and none of them unrolled.

    Raises:
        ProgramError: if the function cannot be run in microbatches.
    """
    functions = _Functions(prepared, batch)
    for layout in layouts_of(family, devices, functions.examples, microbatches[1]):
        if layout.pipeline > 1 and layout.microbatches < microbatches[0]:
            continue
        for function in functions.of(layout):
            placed = function.placed(layout)
            chosen = replace(placed, starts=placed.starts or starts_of(function.seen, placed, machine))
            try:
                program = spread_over(function.seen, chosen, machine.links)
            except ProgramError:  # more stages than operations, parts that do not divide
                continue
            yield Staged(chosen, program, machine, function, objective)
            break


class _Functions:
    """A function in stages, for the layouts of a search: traced once for each length of scans that are unrolled."""

    def __init__(self, prepared: Prepared, batch: Mapping[str, int]) -> None:
        self.prepared, self.batch = prepared, batch
        self._has_scans = any(operation.kind == "scan" for operation in prepared.traced.graph.operations)
        self._traced: dict[int, Prepared] = {0: prepared}
        self._functions: dict[tuple[int, int], FunctionInStages | ProgramError] = {}

    @cached_property
    def examples(self) -> int:
        """Examples of the batch.

        Raises:
            ProgramError: if the function cannot be run in microbatches, whether its loops are unrolled or not.
        """
        refused: list[ProgramError] = []
        for steps in unrolled_up_to(Layout()):
            function = self._function(1, steps, str(refused[0]) if refused else "")
            if isinstance(function, FunctionInStages):
                return function.seen.size
            refused.append(function)
        raise refused[0]

    def of(self, layout: Layout) -> Iterator[FunctionInStages]:
        """The function in as many stages as a layout has; with its scans unrolled next, where it may be refused so."""
        why, last = "", list[FunctionInStages]()
        for steps in unrolled_up_to(layout)[: None if self._has_scans else 1]:
            function = self._function(layout.pipeline * layout.chunks, steps, why)
            if isinstance(function, ProgramError):
                why = str(function)
                continue
            try:
                function.require_parts(layout)
            except ProgramError as error:
                why = str(error)
                last.append(function)
            else:
                yield function
                why = "it cannot be spread so as a loop"
        yield from last

    def _function(self, stages: int, steps: int, why: str) -> FunctionInStages | ProgramError:
        steps = steps if self._has_scans else 0
        if steps not in self._traced:
            options = replace(self.prepared.options, unrolled_up_to=steps)
            self._traced[steps] = self.prepared.again(options)
        if (stages, steps) not in self._functions:
            try:
                self._functions[stages, steps] = in_stages(self._traced[steps], self.batch, stages, why)
            except ProgramError as error:
                self._functions[stages, steps] = error
        return self._functions[stages, steps]


def starts_of(seen: BatchedProgram, layout: Layout, machine: Machine) -> tuple[str, ...]:
    """The values at which stages begin: contiguous stages, the longest of them, with its sends, as short as can be."""
    forward, count = forward_of(seen), layout.pipeline * layout.chunks
    if count == 1 or len(forward) < count:
        return ()
    parts = layout.data * layout.tensor * layout.microbatches
    done = [0.0]
    for number in forward:
        step = seen.steps[number]
        names = (*step.reads.values(), *(value.name for _, value in step.op.outs))
        size = sum(seen.values[name].tile_bytes for name in dict.fromkeys(names))
        dtypes = (seen.values[name].dtype for name in step.reads.values())
        done.append(done[-1] + machine.seconds_of(step.op.name, dtypes, size // parts, step.flops // parts))
    element = max(machine.itemsize_of(value.dtype) for value in seen.inputs)
    speed = float(getattr(machine.links, "bandwidth", float("inf")))
    sent = np.array([size * element / parts / speed for size in crossing(seen, forward)][: len(forward) + 1])
    cuts = even(np.array(done), sent, count)
    return tuple(seen.steps[forward[cut]].op.outs[0][1].name for cut in cuts)


def even(
    done: np.ndarray[Any, np.dtype[np.float64]], sent: np.ndarray[Any, np.dtype[np.float64]], count: int
) -> list[int]:
    """Where to cut a sequence so that the longest of so many stretches is as short as can be.

    Args:
        done: seconds of all before each place, from none of it to all.
        sent: seconds that a cut at each place costs the stretch before it.
        count: stretches, none of them empty.

    >>> even(np.array([0, 4, 5, 6, 7, 11.0]), np.zeros(6), 3)
    [1, 4]
    """
    places = len(done)
    length = done[None, :] - done[:, None] + sent[None, :places]
    length[np.tril_indices(places)] = np.inf
    best, last = length[0], []
    for _ in range(count - 1):
        longest = np.maximum(best[:, None], length)
        last.append(longest.argmin(0))
        best = longest.min(0)
    cuts, at = [], places - 1
    for before in reversed(last):
        at = int(before[at])
        cuts.append(at)
    return cuts[::-1]
