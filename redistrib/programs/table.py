"""The table that `print(program)` shows: what each operation cuts, computes and receives, and what that costs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from redistrib.plans.dtypes import itemsize_of
from redistrib.plans.plan import Plan
from redistrib.programs.data import Call, Compute, Move, ProgramData
from redistrib.programs.inline import inlined
from redistrib.programs.live import peak_bytes, renames
from redistrib.programs.pullback import Part
from redistrib.report import counted, rendered

COLUMNS = ("operation", "line", "cut", "flops", "received", "plan", "price")


def render(program: ProgramData) -> str:
    """The table as plain text.

    Flops are those of one device, bytes received those of all devices together, prices in the unit of the plans' cost
    model. A move is shown before the operation that it is made for.

    >>> from redistrib.partitioning.entry import partition
    >>> from redistrib.programs.spec import nest
    >>> print(partition(nest("ij,jk->ik", (8, 8, 8)), {"matmul": {"j": 4}}))  # doctest: +NORMALIZE_WHITESPACE
    main on 4 devices
    operation   line       cut   flops   received         plan   price
    ------------------------------------------------------------------
    matmul             j by r1     256
      out.1             [8, 8]              1,536   all_reduce     384
    total                          256      1,536                  384
    1 operation, 1 move, 0 operations run whole by every device; at most 896 bytes on a device
    """
    flat = inlined(program)
    rows = list(_rows(flat))
    moves = [op for op in flat.moves if not renames(op, flat)]
    work = [op for op in flat.ops if isinstance(op, Compute)]
    uncut = sum(1 for op in work if op.flops and not any(part.cut.axes for part in op.parts))
    prices = [op.plan.cost for op in moves if op.plan is not None and op.plan.cost is not None]
    units = {op.plan.unit for op in moves if op.plan is not None}
    total = [
        "total",
        "",
        "",
        f"{sum(op.flops for op in work):,}",
        f"{flat.received_bytes:,}",
        "",
        _price(sum(prices), units.pop()) if prices and len(units) == 1 else "",
    ]
    peak = max(peak_bytes(program).values(), default=0)
    title = f"{program.name} on {counted(len(program.devices), 'device', 'devices')}"
    return (
        f"{rendered(title, COLUMNS, [*rows, total], width=132)}\n"
        f"{counted(len(work), 'operation', 'operations')}, {counted(len(moves), 'move', 'moves')}, "
        f"{counted(uncut, 'operation', 'operations')} run whole by every device; at most {peak:,} bytes on a device"
    )


def _rows(program: ProgramData) -> Iterator[Sequence[str]]:
    for op in program.ops:
        match op:
            case Compute():
                cut = "; ".join(filter(None, (cut_text(part) for part in op.parts)))
                yield [op.name, line_of(op), cut, f"{op.flops:,}" if op.flops else "", "", "", ""]
            case Move() if not renames(op, program):
                received = sum(program.received(op).values()) * itemsize_of(op.out.dtype)
                price = "" if op.plan is None or op.plan.cost is None else _price(op.plan.cost, op.plan.unit)
                yield [f"  {op.out.name}", "", op.out.form, "", f"{received:,}", word_of(op.plan), price]
            case Move() | Call():
                pass


def cut_text(part: Part) -> str:
    """Which axes cut which iteration dimensions: `b by d, h by t`."""
    dims = zip(part.nest.position, part.cut.dims, strict=True)
    return ", ".join(f"{name} by {','.join(reversed(dim.axes))}" for name, dim in dims if dim.axes)


def line_of(op: Compute) -> str:
    """The source line without its folder."""
    return os.path.basename(op.source)


def word_of(plan: Plan | None) -> str:
    """What a plan does, in a word where it can be."""
    if plan is None:
        return "direct"
    kinds = list(dict.fromkeys(step.kind for step in plan.steps))
    return " + ".join(kinds) or "nothing"


def _price(price: float, unit: str) -> str:
    return f"{price * 1e6:,.1f} us" if unit == "seconds" else f"{price:,.0f}"
