"""A program as a picture: operations downwards, what they compute to the left, what moves to the right."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from redistrib.plans.dtypes import itemsize_of
from redistrib.programs.inline import inlined
from redistrib.programs.live import renames
from redistrib.programs.program import Compute, Move, Program
from redistrib.programs.table import line_of, word_of
from redistrib.report import counted

MOST_ROWS = 120


class Row(NamedTuple):
    """A row of the picture: a move, or the operations between two moves.

    Attributes:
        label: what stands beside it.
        flops: of one device.
        received: bytes, of all devices.
        plan: what a move does; empty for operations.
    """

    label: str
    flops: int
    received: int
    plan: str


def rows_of(program: Program) -> list[Row]:
    """The rows of the picture; operations without a move between them share one.

    >>> from redistrib.partition import partition
    >>> from redistrib.programs.spec import nest
    >>> [tuple(row) for row in rows_of(partition(nest("ij,jk->ik", (8, 8, 8)), {"matmul": {"j": 4}}))]
    [('matmul', 256, 0, ''), ('out.1', 0, 1536, 'all_reduce')]
    """
    return list(_rows(inlined(program)))


def _rows(program: Program) -> Iterator[Row]:
    waiting: list[Compute] = []
    for op in program.ops:
        if isinstance(op, Compute):
            waiting.append(op)
        elif isinstance(op, Move) and not renames(op, program):
            if waiting:
                yield _together(waiting)
                waiting = []
            received = sum(program.received(op).values()) * itemsize_of(op.out.dtype)
            yield Row(op.out.name, 0, received, word_of(op.plan))
    if waiting:
        yield _together(waiting)


def _together(ops: list[Compute]) -> Row:
    heaviest = max(ops, key=lambda op: op.flops)
    more = f" and {counted(len(ops) - 1, 'other', 'others')}" if len(ops) > 1 else ""
    line = f"  {line_of(heaviest)}" if heaviest.source else ""
    return Row(f"{heaviest.name}{more}{line}", sum(op.flops for op in ops), 0, "")


def draw_program(program: Program, path: str | Path) -> Path:
    """Draw a program into a file, PNG, PDF or SVG by its ending, and return its path.

    From top to bottom in the order in which devices run it; bars to the left are floating-point operations of a device,
    bars to the right bytes that all devices receive, coloured by what the plan does. Of very long programs the rows
    with the longest bars are drawn.
    """
    import matplotlib
    import matplotlib.patches
    from matplotlib.figure import Figure  # a figure of its own: what the caller has set in pyplot stays as it is

    rows = rows_of(program)
    left_out = len(rows) - MOST_ROWS
    if left_out > 0:
        most_flops, most_bytes = (max(getattr(row, what) for row in rows) or 1 for what in ("flops", "received"))
        weight = [max(row.flops / most_flops, row.received / most_bytes) for row in rows]
        kept = sorted(sorted(range(len(rows)), key=lambda k: -weight[k])[:MOST_ROWS])
        rows = [rows[k] for k in kept]
    figure = Figure(figsize=(13, 1.8 + 0.24 * len(rows)), layout="constrained")
    work, moved = figure.subplots(1, 2, sharey=True)
    kinds = list(dict.fromkeys(row.plan for row in rows if row.plan))
    colours = {kind: matplotlib.colormaps["tab10"](k % 10) for k, kind in enumerate(kinds)}
    for k, row in enumerate(rows):
        if row.plan:
            moved.barh(k, row.received / 1e6, color=colours[row.plan], edgecolor="black", linewidth=0.4)
        else:
            work.barh(k, row.flops / 1e6, color="0.6", edgecolor="black", linewidth=0.4)
    work.set_yticks(range(len(rows)), [row.label for row in rows], fontsize=7)
    work.margins(y=0.01)
    work.invert_yaxis()
    work.set_xlabel("millions of operations of a device")
    moved.set_xlabel("MB received by all devices")
    handles = [matplotlib.patches.Patch(color=colours[kind], label=kind) for kind in kinds]
    if handles:
        moved.legend(handles=handles, fontsize=8, loc="lower right")
    total = f"{program.received_bytes / 1e6:,.3f} MB received in {counted(len(program.moves), 'move', 'moves')}"
    short = f"; {left_out} short rows left out" if left_out > 0 else ""
    figure.suptitle(f"{program.name} on {counted(len(program.devices), 'device', 'devices')}: {total}{short}")
    figure.savefig(path, dpi=110)
    return Path(path)
