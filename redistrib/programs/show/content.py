"""The contents of a page, as plain data: lines, tables, plans with their tiles, a timeline and the bytes held."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

# A text, or a text and the number that a table is sorted by.
Cell: TypeAlias = str | tuple[str, float]


@dataclass(frozen=True)
class Table:
    """Rows of cells under named columns.

    Attributes:
        title: above the table.
        columns: their names.
        rows: cells, one for each column.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]


@dataclass(frozen=True)
class TimelineBlock:
    """A stretch of time on a row of a timeline.

    Attributes:
        row: number of the row.
        name: of the operation.
        kind: `"compute"`, `"move"`, `"step"` or `"round"`; steps lie inside moves, rounds inside steps.
        start, seconds: in seconds.
        note: more, shown under the mouse.
    """

    row: int
    name: str
    kind: str
    start: float
    seconds: float
    note: str = ""


@dataclass(frozen=True)
class Timeline:
    """Blocks on named rows, and the bytes that devices hold.

    Attributes:
        rows: names of the rows.
        blocks: the operations and their times.
        memory: by the name of some devices, (seconds, bytes) in the order of time.
        peak: seconds and bytes of the worst moment; None where nothing is known of it.
    """

    rows: Sequence[str]
    blocks: Sequence[TimelineBlock]
    memory: dict[str, list[tuple[float, int]]] = field(default_factory=dict)
    peak: tuple[float, int] | None = None


@dataclass(frozen=True)
class Content:
    """A page.

    Attributes:
        title: of the page.
        lines: text under the title.
        tables: in order.
        plans: data of plans to draw, see `redistrib.programs.show.plans`.
        timeline: of the operations; None if nothing is timed.
    """

    title: str
    lines: Sequence[str] = ()
    tables: Sequence[Table] = ()
    plans: Sequence[dict[str, Any]] = ()
    timeline: Timeline | None = None


def number(value: float, text: str | None = None) -> Cell:
    """A cell that is sorted by a number; zero is shown as nothing.

    >>> number(12345), number(0), number(2.5, "2.5 us")
    (('12,345', 12345), ('', 0), ('2.5 us', 2.5))
    """
    return (f"{value:,}" if value else "") if text is None else text, value


def microseconds(seconds: float) -> Cell:
    """A cell of seconds, shown in microseconds.

    >>> microseconds(1.5e-5)
    ('15.0', 1.5e-05)
    """
    return f"{seconds * 1e6:,.1f}", seconds


def megabytes(size: float) -> str:
    """Bytes in MB, of 1,000,000 bytes; in bytes where that rounds to nothing.

    >>> megabytes(1_234_567), megabytes(512), megabytes(0)
    ('1.235 MB', '512 B', '0 B')
    """
    return f"{size / 1e6:,.3f} MB" if size >= 1000 else f"{size:,.0f} B"
