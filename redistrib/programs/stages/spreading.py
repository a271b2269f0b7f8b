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
    """
    seen = batch_of(program, batch)
    return Spread(check(spread_over(seen, layout, cost_model(machine))), seen, layout)
