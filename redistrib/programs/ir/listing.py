"""A picture of a program: operations from top to bottom, FLOPs to the left, received bytes to the right."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from redistrib.extras import need
from redistrib.programs.ir.data import ProgramData
from redistrib.programs.ir.inline import inlined, with_steps
from redistrib.programs.ir.live import renames
from redistrib.programs.ir.program import Compute, Loop, Move, Program
from redistrib.programs.ir.table import line_of, word_of
from redistrib.report import bytes_text, counted

__all__ = ["draw_program"]

MOST_ROWS = 120


class Row(NamedTuple):
    """A row of the picture: a move, or the operations between two moves.

    Attributes:
        label: the text beside the bar.
        flops: floating-point operations of one device.
        received: bytes that all devices together receive.
        plan: the kind of collective of a move; empty for operations.
    """

    label: str
    flops: int
    received: int
    plan: str


def rows_of(program: Program) -> list[Row]:
    """The rows of the picture; operations without a move between them share a row. Those of a loop count all its steps.

    >>> from redistrib.programs.run.partition import partition
    >>> from redistrib.programs.ir.spec import nest
    >>> [tuple(row) for row in rows_of(partition(nest("ij,jk->ik", (8, 8, 8)), {"matmul": {"j": 4}}))]
    [('matmul', 256, 0, ''), ('out.1', 0, 1536, 'all_reduce')]
    """
    return list(_rows(inlined(program)))


def _rows(program: ProgramData) -> Iterator[Row]:
    pending: list[Compute] = []
    for op in program.ops:
        if isinstance(op, Compute):
            pending.append(op)
        elif isinstance(op, Move) and not renames(op, program):
            if pending:
                yield _compute_row(pending)
                pending = []
            yield Row(op.out.name, 0, program.received_bytes_of(op), word_of(op))
        elif isinstance(op, Loop):
            if pending:
                yield _compute_row(pending)
                pending = []
            for row in (row for inner in reversed(op.programs) for row in _rows(inner)):  # the condition first
                yield Row(f"{row.label}, x {op.steps:,}", row.flops * op.steps, row.received * op.steps, row.plan)
    if pending:
        yield _compute_row(pending)


def _compute_row(ops: list[Compute]) -> Row:
    """The row of operations without a move between them, labelled by the operation with the most FLOPs."""
    largest = max(ops, key=lambda op: op.flops)
    others = f" and {counted(len(ops) - 1, 'other', 'others')}" if len(ops) > 1 else ""
    line = f"  {line_of(largest)}" if largest.source else ""
    return Row(f"{largest.name}{others}{line}", sum(op.flops for op in ops), 0, "")


def draw_program(program: Program, path: str | Path) -> Path:
    """Draw a program into a file, and return the path of the file. Its ending, such as `.png`, determines the format.

    Rows follow the order of execution from top to bottom. A bar to the left shows the floating-point operations of one
    device. A bar to the right shows the bytes that all devices together receive; its colour is the kind of collective.
    A program of more than 120 rows is drawn without its shortest bars.

    Raises:
        MissingPackageError: matplotlib is not installed.
        OSError: the file cannot be written.

    >>> import tempfile
    >>> from redistrib import nest, partition
    >>> program = partition(nest("ij,jk->ik", (8, 8, 8)), {"matmul": {"j": 4}})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     print(draw_program(program, f"{folder}/product.png").name)
    product.png
    """
    need("matplotlib")
    import matplotlib
    import matplotlib.patches
    from matplotlib.figure import Figure  # not pyplot, whose state belongs to the caller

    rows = rows_of(program)
    left_out = len(rows) - MOST_ROWS
    if left_out > 0:
        most_flops, most_bytes = (max(getattr(row, field) for row in rows) or 1 for field in ("flops", "received"))
        length = [max(row.flops / most_flops, row.received / most_bytes) for row in rows]
        longest = sorted(range(len(rows)), key=lambda k: -length[k])[:MOST_ROWS]
        rows = [rows[k] for k in sorted(longest)]
    figure = Figure(figsize=(13, 1.8 + 0.24 * len(rows)), layout="constrained")
    flops_panel, bytes_panel = figure.subplots(1, 2, sharey=True)
    kinds = list(dict.fromkeys(row.plan for row in rows if row.plan))
    colours = {kind: matplotlib.colormaps["tab10"](k % 10) for k, kind in enumerate(kinds)}
    for k, row in enumerate(rows):
        if row.plan:
            bytes_panel.barh(k, row.received / 1e6, color=colours[row.plan], edgecolor="black", linewidth=0.4)
        else:
            flops_panel.barh(k, row.flops / 1e6, color="0.6", edgecolor="black", linewidth=0.4)
    flops_panel.set_yticks(range(len(rows)), [row.label for row in rows], fontsize=7)
    flops_panel.margins(y=0.01)
    flops_panel.invert_yaxis()
    flops_panel.set_xlabel("millions of operations of a device")
    bytes_panel.set_xlabel("MB received by all devices")
    handles = [matplotlib.patches.Patch(color=colours[kind], label=kind) for kind in kinds]
    if handles:
        bytes_panel.legend(handles=handles, fontsize=8, loc="lower right")
    moves = sum(len(inner.moves) for inner in with_steps(program))
    total = f"{bytes_text(program.received_bytes)} received in {counted(moves, 'move', 'moves')}"
    omitted = f"; {left_out} short rows left out" if left_out > 0 else ""
    figure.suptitle(f"{program.name} on {counted(len(program.devices), 'device', 'devices')}: {total}{omitted}")
    figure.savefig(path, dpi=110)
    return Path(path)
