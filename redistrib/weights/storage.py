"""The bandwidth of a storage, for profiles."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np

from redistrib.errors import WeightsFileError
from redistrib.weights.open_files import LocalFile

RUN_BYTES = 8 * 2**20
MOST_BYTES = 2**30  # bytes that are read at most


def storage_bandwidth(path: Path) -> float:
    """Bytes per second of reading a file from its beginning, in long runs, as `load` reads.

    The kernel is first asked to drop the file from its cache; a file system in memory does not.

    Raises:
        WeightsFileError: if there is no such file, it is empty, or it cannot be read.
    """
    try:
        size = min(path.stat().st_size, MOST_BYTES)
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
        if not size:
            raise WeightsFileError(str(path), "", "the file is empty; give one of 100 MB or more")
        file, buffer, place = LocalFile(path), np.empty(RUN_BYTES, np.uint8), 0
        start = time.perf_counter()
        try:
            while place < size:
                count = file.read_into(buffer.data[: size - place], place)
                if not count:
                    break
                place += count
        finally:
            file.close()
        return place / (time.perf_counter() - start)
    except OSError as error:
        raise WeightsFileError(str(path), "", f"cannot be read: {error.strerror}") from None
