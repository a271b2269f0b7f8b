"""The table of `print(program)`: the cut, the computation, the received bytes and the cost of each operation."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from redistrib.programs.ir.data import Call, Compute, Loop, Move, Op, ProgramData
from redistrib.programs.ir.inline import inlined
from redistrib.programs.ir.live import highest_peak_bytes, renames
from redistrib.programs.ir.pullback import ScheduledNest
from redistrib.report import counted, rendered, seconds_text

COLUMNS = ("operation", "line", "cut", "flops", "received", "plan", "cost")


def render(program: ProgramData) -> str:
    """The table as plain text.

    Flops are those of one device, bytes received those of all devices together, costs in the unit of the plans' cost
    model. A move is shown before the operation that it is made for.

    >>> from redistrib.programs.run.partition import partition
    >>> from redistrib.programs.ir.spec import nest
    >>> print(partition(nest("ij,jk->ik", (8, 8, 8)), {"matmul": {"j": 4}}))  # doctest: +NORMALIZE_WHITESPACE
    main on 4 devices
    operation   line       cut   flops   received         plan   cost
    -----------------------------------------------------------------
    matmul             j by r1     256
      out.1             [8, 8]              1,536   all_reduce    384
    -----------------------------------------------------------------
    total                          256      1,536                 384
    1 operation, 1 move, 0 operations run whole by every device; at most 896 bytes on a device
    """
    flat = inlined(program)
    rows = list(_rows(flat))
    moves = [(op, times) for op, within, times in _with_times(flat) if isinstance(op, Move) and not renames(op, within)]
    work = [op for op, _, _ in _with_times(flat) if isinstance(op, Compute)]
    uncut = sum(1 for op in work if op.flops and not any(part.cut.axes for part in op.parts))
    prices = [op.plan.cost * times for op, times in moves if op.plan is not None and op.plan.cost is not None]
    units = {op.plan.unit for op, _ in moves if op.plan is not None}
    total = [
        "total",
        "",
        "",
        f"{flat.flops:,}",
        f"{flat.received_bytes:,}",
        "",
        _price(sum(prices), units.pop()) if prices and len(units) == 1 else "",
    ]
    peak = highest_peak_bytes(program)
    title = f"{program.name} on {counted(len(program.devices), 'device', 'devices')}"
    return (
        f"{rendered(title, COLUMNS, rows, foot=total)}\n"
        f"{counted(len(work), 'operation', 'operations')}, {counted(len(moves), 'move', 'moves')}, "
        f"{counted(uncut, 'operation', 'operations')} run whole by every device; at most {peak:,} bytes on a device"
    )


def _with_times(program: ProgramData, times: int = 1) -> Iterator[tuple[Op, ProgramData, int]]:
    """Every operation, those in the steps of loops included, with its program and how often it runs."""
    for op in program.ops:
        yield op, program, times
        if isinstance(op, Loop):
            for inner in op.programs:
                yield from _with_times(inner, times * op.steps)


def _rows(program: ProgramData, indent: str = "") -> Iterator[Sequence[str]]:
    """A row for each operation. The row of a loop has the figures of all its steps, the rows below it those of one."""
    for op in program.ops:
        match op:
            case Compute():
                cut = "; ".join(filter(None, (cut_text(part) for part in op.parts)))
                yield [indent + op.name, line_of(op), cut, f"{op.flops:,}" if op.flops else "", "", "", ""]
            case Move() if not renames(op, program):
                price = "" if op.plan is None or op.plan.cost is None else _price(op.plan.cost, op.plan.unit)
                received_bytes = f"{program.received_bytes_of(op):,}"
                yield [f"{indent}  {op.out.name}", "", op.out.form, "", received_bytes, word_of(op), price]
            case Loop():
                flops, received = (op.steps * sum(figure) for figure in _figures(op))
                shown = f"{received:,}" if received else ""
                yield [f"{indent}{label_of(op)}", line_of(op), "", f"{flops:,}" if flops else "", shown, "", ""]
                for inner in reversed(op.programs):  # the condition first
                    yield from _rows(inner, f"{indent}| ")
            case Move() | Call():
                pass


def _figures(op: Loop) -> tuple[list[int], list[int]]:
    """FLOPs of a device, and bytes received, of a step and of its condition."""
    return [inner.flops for inner in op.programs], [inner.received_bytes for inner in op.programs]


def label_of(op: Loop) -> str:
    """A loop and its steps: `scan, loop x 24`; those of a `while` are those that it is counted with."""
    return f"{op.name}, {'loop' if op.condition is None else 'while'} x {op.steps:,}"


def cut_text(part: ScheduledNest) -> str:
    """Which axes cut which iteration dimensions: `b by d, h by t`."""
    dims = zip(part.nest.position, part.cut.dims, strict=True)
    return ", ".join(f"{name} by {','.join(reversed(dim.axes))}" for name, dim in dims if dim.axes)


def line_of(op: Compute | Loop) -> str:
    """The source line without its folder."""
    return os.path.basename(op.source)


def word_of(op: Move) -> str:
    """The kind of a move, in one word where there is one."""
    if op.plan is None:
        return "halo" if op.out.has_halos else "direct"
    kinds = list(dict.fromkeys(step.kind for step in op.plan.steps))
    return " + ".join(kinds) or "nothing"


def _price(price: float, unit: str) -> str:
    return seconds_text(price) if unit == "seconds" else f"{price:,.0f}"
