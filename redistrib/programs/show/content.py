"""The contents of a page, as plain data: lines, tables, plans with their tiles, a timeline and the bytes held."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import singledispatch
from typing import Any, TypeAlias

from redistrib.errors import ViewError
from redistrib.report import bytes_text, seconds_text

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
        summary: tables before all drawings.
    """

    title: str
    lines: Sequence[str] = ()
    tables: Sequence[Table] = ()
    plans: Sequence[dict[str, Any]] = ()
    timeline: Timeline | None = None
    summary: Sequence[Table] = ()


def number(value: float, text: str | None = None) -> Cell:
    """A cell that is sorted by a number; zero is shown as nothing.

    >>> number(12345), number(0), number(2.5, "2.5 us")
    (('12,345', 12345), ('', 0), ('2.5 us', 2.5))
    """
    return (f"{value:,}" if value else "") if text is None else text, value


def duration(seconds: float) -> Cell:
    """A cell of seconds, sorted by them.

    >>> duration(1.5e-5)
    ('15 us', 1.5e-05)
    """
    return seconds_text(seconds), seconds


def size(count: float) -> Cell:
    """A cell of bytes, sorted by them; zero is shown as nothing.

    >>> size(1536), size(0)
    (('1.5 KiB', 1536), ('', 0))
    """
    return bytes_text(count) if count else "", count


@singledispatch
def content_about(value: Any) -> Content:
    """The contents of the page about a value; a module registers a function for each class that has one.

    Raises:
        ViewError: if there is no page about such values.
    """
    raise ViewError(type(value).__name__)
