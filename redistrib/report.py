"""Plain-text tables, as wide as the terminal, and what prints as such tables."""

from __future__ import annotations

import os
import sys
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from itertools import accumulate, takewhile, zip_longest
from pathlib import Path

WIDTH = 118  # of what is printed elsewhere than on a terminal
LINES = 40  # of a table
_GAP, _INDENT = "   ", 4
_shown: ContextVar[tuple[int | None, str]] = ContextVar("lines of a table, and what shows them all")
_renderers: list[Callable[[object], str | None]] = []


def render_in_notebooks_with(renderer: Callable[[object], str | None]) -> None:
    """Set the function that makes the HTML of a value in a notebook; the package's `__init__` sets the viewer, which
    lies above."""
    _renderers[:] = [renderer]


@contextmanager
def lines_shown(most: int | None, how_to_see_all: str = "`.table()`") -> Iterator[None]:
    """Tables that are made inside have at most so many lines; None for all of them."""
    token = _shown.set((most, how_to_see_all))
    try:
        yield
    finally:
        _shown.reset(token)


class Printed(ABC):
    """A value that prints as text with tables, which `table()` shows with all their lines."""

    @abstractmethod
    def _text(self) -> str:
        """The text, tables included."""

    def __str__(self) -> str:
        return folded(self._text())

    def table(self) -> str:
        """What `print` shows, with every line of its tables."""
        with lines_shown(None):
            return str(self)


class ShownInNotebooks(Printed):
    """A value of which a notebook shows tables and drawings, made by the renderer that is set."""

    def _repr_html_(self) -> str | None:
        (renderer,) = _renderers
        return renderer(self)


def rendered(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    foot: Sequence[str] = (),
    left: Collection[int] = (0,),
    edge: str = " ",
    most: int = LINES,
) -> str:
    """A table as plain text, no wider than the terminal where its longest words allow that.

    Cells are broken between words. Where the columns do not fit side by side, the last of them stand below the first.

    Args:
        title: the line above; empty for none.
        columns, rows: cells, one for each column.
        foot: the cells below all rows.
        left: numbers of the columns that are aligned to the left; the others are to the right.
        edge: what lines begin with.
        most: lines of rows, as far as `lines_shown` says nothing else.

    >>> print(rendered("", ["device", "bytes"], [[str(k), "8"] for k in range(4)], most=2))
     device   bytes
     --------------
     0            8
     1            8
     ... 2 more, `.table()`
    """
    limit, how = _shown.get((most, "`.table()`"))
    limit = None if limit is None else min(limit, most)
    bands = list(_bands([columns, *rows[:limit], *([foot] if foot else [])], left, terminal_width() - len(edge)))
    rule = "-" * max(len(" " * indent + _GAP.join(" " * width for width in widths)) for _, indent, widths in bands)

    def lines_of(row: Sequence[str]) -> list[str]:
        lines = []
        for first, indent, widths in bands:
            cells = [_aligned(row[k], width, k in left) for k, width in enumerate(widths, start=first)]
            blank = [" " * width for width in widths]
            lines += [
                " " * indent + _GAP.join(part or gap for part, gap in zip(parts, blank, strict=True))
                for parts in zip_longest(*cells)
            ]
        return lines

    told = [lines_of(row) for row in rows[:limit]]
    if limit is not None:
        told = told[: sum(1 for _ in takewhile(limit.__ge__, accumulate(map(len, told))))]
    rest = len(rows) - len(told)
    lines = [*lines_of(columns), rule, *(line for row in told for line in row)]
    lines += [f"... {rest:,} more, {how}"] if rest else []
    lines += [rule, *lines_of(foot)] if foot else []
    return "\n".join([*filter(None, [title]), *(line for line in (f"{edge}{line}".rstrip() for line in lines) if line)])


def _bands(table: Sequence[Sequence[str]], left: Collection[int], room: int) -> Iterator[tuple[int, int, list[int]]]:
    """Columns that stand side by side: the first, its indent, and their widths."""
    lines = [[line for cell in column for line in cell.split("\n")] for column in zip(*table, strict=True)]
    natural = [max(map(len, column)) for column in lines]
    least = [max(_longest_word(line) for line in column) for column in lines]
    needed, first = least if _across(least) <= room else natural, 0
    while first < len(natural):
        indent = _INDENT if first else 0
        stop = first + 1
        while stop < len(natural) and _across(needed[first : stop + 1]) <= room - indent:
            stop += 1
        widths = natural[first:stop]
        for texts in (left, range(len(natural))):  # figures keep their units where shorter texts make room
            while _across(widths) > room - indent:
                reducible = [k for k in range(stop - first) if first + k in texts and widths[k] > least[first + k]]
                if not reducible:
                    break
                widths[max(reducible, key=widths.__getitem__)] -= 1
        yield first, indent, widths
        first = stop


def _across(widths: Sequence[int]) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def _longest_word(line: str) -> int:
    return len(line) - len(line.lstrip()) + max(map(len, line.split()), default=0)


def _aligned(cell: str, width: int, is_left: bool) -> list[str]:
    parts = [part for line in cell.split("\n") for part in (_wrapped(line, width, "") or [""])]
    return [part.ljust(width) if is_left else part.rjust(width) for part in parts]


def _wrapped(line: str, width: int, indent: str) -> list[str]:
    """A line broken between words, the rest indented as its beginning is, and by `indent`."""
    if len(line) <= width:
        return [line]
    begins = line[: len(line) - len(line.lstrip())] + indent
    return textwrap.wrap(line, width, subsequent_indent=begins, break_long_words=False, break_on_hyphens=False)


def folded(text: str) -> str:
    """A text whose lines are no longer than the terminal is wide, broken between words."""
    width = terminal_width()
    return "\n".join(part for line in text.split("\n") for part in _wrapped(line, width, "    "))


def terminal_width() -> int:
    """Characters in a line of the terminal that is written to, or `WIDTH` where output goes elsewhere."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or WIDTH
    except (AttributeError, OSError, ValueError):  # no terminal, or no file at all
        return WIDTH


def counted(count: int, singular: str, plural: str) -> str:
    """A count and its noun.

    >>> counted(1, "leaf", "leaves"), counted(1200, "leaf", "leaves")
    ('1 leaf', '1,200 leaves')
    """
    return f"{count:,} {singular if count == 1 else plural}"


def in_ranges(numbers: Sequence[int], between: str = ",") -> str:
    """Ascending numbers as text, runs as their ends.

    >>> in_ranges([0, 1, 2, 3, 8]), in_ranges([0, 1, 2, 5, 8, 9], ", ")
    ('0-3,8', '0-2, 5, 8-9')
    """
    ends: list[list[int]] = []
    for number in numbers:
        if ends and ends[-1][1] == number - 1:
            ends[-1][1] = number
        else:
            ends.append([number, number])
    return between.join(f"{low}" if low == high else f"{low}-{high}" for low, high in ends)


def bytes_text(size: float) -> str:
    """Bytes in the unit that fits.

    >>> bytes_text(512), bytes_text(1536), bytes_text(3 * 2**20)
    ('512 B', '1.5 KiB', '3 MiB')
    """
    units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB"]
    while abs(size) >= 1024 and len(units) > 1:
        size /= 1024
        units.pop(0)
    return f"{size:.1f}".removesuffix(".0") + f" {units[0]}"


def seconds_text(seconds: float) -> str:
    """Seconds in the unit that fits.

    >>> seconds_text(1.5e-5), seconds_text(0.0123), seconds_text(0)
    ('15 us', '12.3 ms', '0 ns')
    """
    for scale, name in ((1, "s"), (1e-3, "ms"), (1e-6, "us")):
        if abs(seconds) >= scale:
            return f"{seconds / scale:.3g} {name}"
    return f"{seconds / 1e-9:.3g} ns"


@contextmanager
def status_shown(doing: str, progress: bool | None, limit: float | None = None) -> Iterator[Callable[[str], None]]:
    """A function that shows on stderr how far long work is, behind the time since it began and the seconds that it may
    take; None shows it on a terminal only."""
    if progress is False or (progress is None and not sys.stderr.isatty()):
        yield lambda line: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    allowed = "" if limit is None else f"of {timedelta(seconds=round(limit))} "
    texts = TextColumn(f"{allowed}{doing}"), TextColumn("{task.description}", markup=False)
    console = Console(file=sys.stderr)
    with Progress(SpinnerColumn(), TimeElapsedColumn(), *texts, console=console, transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda line: bar.update(task, description=line)


@contextmanager
def writing(path: Path | None) -> Iterator[Callable[[str], object]]:
    """A function that writes text into a file, or to standard output if `path` is None.

    A file that cannot be written raises OSError on entry, before minutes of measurement.
    """
    if path is None:
        yield sys.stdout.write
        return
    is_file, is_new = path.is_file(), not path.exists()

    def write(text: str) -> None:
        try:
            path.write_text(text)
        except OSError as error:
            print(text)  # so that the measurement is not lost
            raise OSError(error.errno, error.strerror, str(path)) from None
        print(f"wrote {path}")

    try:
        with path.open("a") as file:
            file.write("" if is_file else "\n")  # only a write fails on a full disk
        yield write
    except BaseException:
        if is_new:
            path.unlink(missing_ok=True)
        raise
