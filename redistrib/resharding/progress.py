"""A progress bar of bytes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import jax

LONG = 256 * 2**20  # bytes above which a bar is shown, on a terminal


def shows_bar(total: int, show: bool | None) -> bool:
    """Whether a bar is shown: as the caller wishes, or else for many bytes, on a terminal, in the first process."""
    return total > LONG and sys.stderr.isatty() and jax.process_index() == 0 if show is None else show


@contextmanager
def bytes_bar(title: str, total: int, show: bool | None) -> Iterator[Callable[[int], None]]:
    """A function that advances a bar on stderr by so many bytes, or one that does nothing.

    Args:
        title: the text before the bar.
        total: bytes in all.
        show: whether there is a bar; see `shows_bar`.
    """
    if not shows_bar(total, show):
        yield lambda size: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (
        TextColumn(title), BarColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn(), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(file=sys.stderr)) as bar:
        task = bar.add_task(title, total=total)
        yield lambda size: bar.advance(task, size)
