"""Plain-text tables, rendered by rich without escape codes."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.box import Box


_renderers: list[Callable[[object], str | None]] = []


def render_in_notebooks_with(renderer: Callable[[object], str | None]) -> None:
    """Set the function that makes the HTML of a value in a notebook; the package's `__init__` sets the viewer, which
    lies above."""
    _renderers[:] = [renderer]


class ShownInNotebooks:
    """A value of which a notebook shows tables and drawings, made by the renderer that is set."""

    def _repr_html_(self) -> str | None:
        (renderer,) = _renderers
        return renderer(self)


def rendered(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], width: int = 118) -> str:
    """A table as plain text; the first column is left-aligned, the others are right-aligned."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="", box=ruled(), pad_edge=False)
    for k, column in enumerate(columns):
        table.add_column(column, justify="left" if k == 0 else "right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    out = io.StringIO()
    Console(file=out, width=width, color_system=None, highlight=False, markup=False).print(table)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines() if line.strip())


def ruled() -> Box:
    """A box for rich with lines under the head and above the foot of a table, in ASCII, which every terminal shows."""
    from rich.box import Box

    return Box("    \n    \n -- \n    \n    \n -- \n    \n    \n", ascii=True)


def counted(count: int, singular: str, plural: str) -> str:
    """A count and its noun.

    >>> counted(1, "leaf", "leaves"), counted(1200, "leaf", "leaves")
    ('1 leaf', '1,200 leaves')
    """
    return f"{count:,} {singular if count == 1 else plural}"


@contextmanager
def status_shown(doing: str, progress: bool | None) -> Iterator[Callable[[str], None]]:
    """A function that shows on stderr how far long work is; None shows it on a terminal only."""
    if progress is False or (progress is None and not sys.stderr.isatty()):
        yield lambda line: None
        return
    from rich.console import Console

    with Console(file=sys.stderr).status(doing) as status:
        yield lambda line: status.update(f"{doing}: {line}")


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
