"""A program spread over the devices of a layout, and checked."""

from __future__ import annotations

from collections.abc import Mapping

from redistrib.cost.presets import MachineLike, cost_model
from redistrib.programs.ir.check import check
from redistrib.programs.ir.program import Program
from redistrib.programs.stages.examples import batch_of
from redistrib.programs.stages.layout import Layout, Spread
from redistrib.programs.stages.transform import spread_over
from redistrib.renamed import renamed


@renamed("cost_model", "machine")
def spread(program: Program, batch: Mapping[str, int], layout: Layout, *, machine: MachineLike = "exact") -> Spread:
    """Spread a program over devices; it computes the same.

    Args:
        program: the operations in order: layers, a loss, gradients, an update, or layers alone. Its places and cuts do
            not count.
        batch: of every input with examples the dimension that runs over them, the major one of its factors.
        layout: how many replicas, tensor parts, groups of devices and microbatches, in which order.
        machine: the machine of moves, see `rd.synthesize`.

    Returns:
        The program over devices, checked, and the functions that convert arrays between the two programs.

    Raises:
        ProgramError: if examples meet before the end, numbers do not divide, or the order cannot run.

    >>> from redistrib import Layout
    >>> from redistrib.programs.stages.models import mlp
    >>> made = spread(mlp(2, 8, 16), {"x": 0, "y": 0}, Layout(data=2, microbatches=2))
    >>> [f"{value.name}: {value.form}" for value in made.program.inputs]
    ['w0: [8, 8]', 'w1: [8, 8]', 'x.0: [4{d}8, 8]', 'x.1: [4{d}8, 8]', 'y.0: [4{d}8, 8]', 'y.1: [4{d}8, 8]']
    """
    seen = batch_of(program, batch)
    return Spread(check(spread_over(seen, layout, cost_model(machine))), seen, layout)
