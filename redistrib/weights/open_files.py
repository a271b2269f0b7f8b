"""Files that are being read: each is opened once, so that its header and its data are of one version.

A file that is replaced by another stays as it was for those who have it open. A file that is rewritten in its place
shows another stamp.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from redistrib.errors import WeightsFileError

TICK = 20_000_000  # nanoseconds in which two changes of a file may show the same time
_MOST_WAITS = 10  # for a file that changes


class Stamp(NamedTuple):
    """What tells versions of a file apart, in all processes alike: bytes, and nanoseconds of the last change."""

    size: int
    changed: int


class LocalFile:
    """A file of the operating system, which can be read from any place."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe would wait for its writer
        if not stat.S_ISREG(os.fstat(self._descriptor).st_mode):
            os.close(self._descriptor)
            raise OSError(errno.EINVAL, "it is no file of bytes")

    def stamp(self) -> Stamp:
        status = os.fstat(self._descriptor)
        return Stamp(status.st_size, status.st_mtime_ns)

    def read_into(self, buffer: memoryview, start: int) -> int:
        """Read bytes from `start` on into a buffer; returns their number, which may be less, and is 0 at the end."""
        return os.preadv(self._descriptor, [buffer], start)

    def close(self) -> None:
        os.close(self._descriptor)


# Opens a file; tests and benchmarks replace it by one that counts, or that is slow.
open_file: Callable[[Path], LocalFile] = LocalFile


def opened(path: Path) -> LocalFile:
    """Open a file.

    Raises:
        WeightsFileError: if it cannot be opened.
    """
    try:
        return open_file(path)
    except OSError as error:
        raise WeightsFileError(str(path), "", f"cannot be read: {error.strerror or error}") from None


def settled_stamp(path: Path, file: LocalFile) -> Stamp:
    """The stamp of a file, read when the next change will show another time.

    Raises:
        WeightsFileError: if the file goes on to change.
    """
    stamp = file.stamp()
    if abs(time.time_ns() - stamp.changed) >= TICK:
        return stamp
    for _ in range(_MOST_WAITS):
        time.sleep(TICK / 1e9)
        before, stamp = stamp, file.stamp()
        if stamp == before:
            return stamp
    raise WeightsFileError(str(path), "", "another program writes the file; load it when that has ended")


def whole(file: LocalFile, start: int, size: int) -> bytes:
    """Bytes of a file from `start` on; fewer than `size` where the file ends.

    Raises:
        OSError: if they cannot be read.
    """
    buffer, place = bytearray(size), 0
    view = memoryview(buffer)
    while place < size:
        count = file.read_into(view[place:], start + place)
        if count == 0:
            break
        place += count
    view.release()
    return bytes(buffer[:place])
