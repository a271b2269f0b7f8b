"""The files of a save until they are complete, and how they take the place of earlier ones.

Files are written into a temporary folder beside their places, under a name that no other save has. One `rename` then
makes them the weights of the folder: of the only file, or of the index, when all that it names are there. So a crash at
any point leaves the earlier weights or the new ones. Shards never take the names of earlier shards, which a reader
may have open by their index. What an earlier index names is removed afterwards.

A save holds a lock on its temporary folder, so that the next save knows what a crash has left, and removes it. Saves
into one folder take turns in the last step. Where the file system has no locks, temporary folders stay, and two saves
should not end at once.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from redistrib.errors import WeightsFileError
from redistrib.launches import times
from redistrib.weights.folders import ALONE, INDEX, files_in, shard_names
from redistrib.weights.opening import read_weight_map
from redistrib.weights.writing import NewFile

_TEMPORARY = re.compile(r"\.redistrib-[0-9a-f]{16}\.partial")  # names of temporary folders
_TURN = ".redistrib.lock"  # the file whose lock a save holds while its files take their places
_LOCK = "lock"  # in a temporary folder


def temporary_folder(folder: Path, token: str) -> Path:
    """The temporary folder of a save into a folder."""
    return folder / f".redistrib-{token}.partial"


class NewFiles:
    """The files of a save in their temporary folder. A context, which removes the temporary folder.

    Args:
        folder: in which the files are to be; created if it does not exist.
        files: the files, created at once in full size, so that a full disk does not fail after minutes of writing.
        index_of: the text of an index for files of these names; None if the only file is to be in the folder by its own
            name, whatever else is there.

    Attributes:
        token: 16 hexadecimal digits that no other save has.
    """

    def __init__(
        self, folder: Path, files: Sequence[NewFile], index_of: Callable[[Sequence[str]], bytes] | None
    ) -> None:
        self.token = secrets.token_hex(8)
        self._folder, self._files, self._index_of = folder, files, index_of
        self._temporary = temporary_folder(folder, self.token)
        self._locked: int | None = None

    def __enter__(self) -> NewFiles:
        try:
            with saying_path(self._folder):
                self._folder.mkdir(parents=True, exist_ok=True)
                if self._index_of is not None:
                    _check_replaceable(self._folder)
                _remove_what_crashes_left(self._folder)
                self._lock()
            for file in self._files:
                with saying_path(self._folder / file.name):
                    _write(self._temporary / file.name, file.head, file.size)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        _remove(self._temporary)
        if self._locked is not None:
            _unlock(self._locked)

    def _lock(self) -> None:
        while self._locked is None:
            with contextlib.suppress(FileExistsError):
                os.mkdir(self._temporary)
            with contextlib.suppress(FileNotFoundError):  # another save took it for what a crash has left
                self._locked, _ = _locked(self._temporary / _LOCK, times.SAVE_SECONDS)

    def place(self) -> None:
        """Put the files into their places, over earlier ones."""
        if self._index_of is None:
            self._place_alone()
        else:
            self._place_in_folder(self._index_of)

    def _place_alone(self) -> None:
        (file,) = self._files
        with saying_path(self._folder / file.name):
            os.replace(self._temporary / file.name, self._folder / file.name)
        _sync_placed(self._folder)

    def _place_in_folder(self, index_of: Callable[[Sequence[str]], bytes]) -> None:
        with saying_path(self._folder):
            turn, held = _locked(self._folder / _TURN, times.SAVE_SECONDS)
        try:
            _check_replaceable(self._folder)
            present = files_in(self._folder)
            if len(self._files) == 1 and not present.indexes and not present.shards:
                self._place_alone()
                return
            crashed = present.tagged if held else set()  # no other save is between its shards and its index
            earlier = {*_named_by_index(self._folder), *crashed}
            tag = self.token if present.shards else ""
            names = shard_names(len(self._files), tag)
            self._place_with_index(names, index_of(names))
            self._remove_earlier({*earlier, ALONE} - set(names))
        finally:
            if held:
                with contextlib.suppress(OSError):
                    os.unlink(self._folder / _TURN)
            _unlock(turn)

    def _place_with_index(self, names: Sequence[str], index: bytes) -> None:
        placed: list[Path] = []
        try:
            with saying_path(self._folder / INDEX):
                _write(self._temporary / INDEX, index, len(index), sync=True)
                for file, name in zip(self._files, names, strict=True):
                    placed.append(self._folder / name)
                    os.rename(self._temporary / file.name, placed[-1])
                _sync(self._folder)
                os.replace(self._temporary / INDEX, self._folder / INDEX)
        except BaseException:
            if os.path.lexists(self._temporary / INDEX):  # else the index has its place, and names them
                for path in placed:
                    with contextlib.suppress(OSError):
                        os.unlink(path)
            raise
        _sync_placed(self._folder)  # an error leaves the earlier files: the earlier index may come back

    def _remove_earlier(self, names: set[str]) -> None:
        """Remove files that the index no longer names; other programs would take them for the weights."""
        for name in sorted(names):
            try:
                os.unlink(self._folder / name)
            except FileNotFoundError:
                pass
            except OSError as error:
                reason = f"the new weights are saved, but this earlier file cannot be removed: {error.strerror}"
                raise WeightsFileError(str(self._folder / name), "", f"{reason}; remove it") from None


def _check_replaceable(folder: Path) -> None:
    """Refuse a folder whose files would be read with the new ones, or instead of them.

    Raises:
        WeightsFileError: with one of these files.
    """
    others = files_in(folder).foreign(_named_by_index(folder))
    if others:
        raise WeightsFileError(
            str(folder),
            "",
            f"the folder has other weights ({others[0]}), which would be read with these; give another folder, or "
            "remove them",
        )


def _named_by_index(folder: Path) -> list[str]:
    """The safetensors files that the index of a folder names; none if there is no index."""
    if INDEX not in files_in(folder).indexes:
        return []
    return sorted({name for name in read_weight_map(folder / INDEX).values() if name.endswith(".safetensors")})


def _locked(path: Path, seconds: float) -> tuple[int, bool]:
    """The descriptor of a file, locked until it is closed; and whether the file system has locks.

    Raises:
        OSError: if it cannot be created, or another process holds its lock for so long.
    """
    waits = times.pauses(seconds, times.RETRY_SECONDS, times.RETRY_SECONDS)
    while True:
        descriptor, locks, pause = os.open(path, os.O_RDWR | os.O_CREAT, 0o666), True, times.RETRY_SECONDS
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                pause = next(waits, 0.0)
                if not pause:
                    raise OSError("another save into the folder goes on") from None
            except OSError:
                locks = False
            else:
                if _is_at(path, descriptor):
                    return descriptor, True
            if not locks:
                return descriptor, False
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        time.sleep(pause)


def _unlock(descriptor: int) -> None:
    """Release a lock, though a process that was forked meanwhile has the file open too."""
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def _is_at(path: Path, descriptor: int) -> bool:
    """Whether a file that is open has not been removed or replaced."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _remove_what_crashes_left(folder: Path) -> None:
    """Remove temporary folders whose save has ended: nobody holds their lock."""
    for name in os.listdir(folder):
        if _TEMPORARY.fullmatch(name) and not os.path.islink(folder / name):
            with contextlib.suppress(OSError):
                descriptor, locks = _locked(folder / name / _LOCK, 0)
                try:
                    if locks:
                        _remove(folder / name)
                finally:
                    _unlock(descriptor)


def _remove(temporary: Path) -> None:
    """Remove a temporary folder, its lock last."""
    with contextlib.suppress(OSError):
        for name in sorted(os.listdir(temporary), key=lambda name: name == _LOCK):
            os.unlink(temporary / name)
        os.rmdir(temporary)


def _write(path: Path, head: bytes, size: int, *, sync: bool = False) -> None:
    """Create a file of so many bytes that begins with `head`; `sync` makes them last through a loss of power."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        view = memoryview(head)
        while view:
            view = view[os.write(descriptor, view) :]
        os.posix_fallocate(descriptor, 0, size)
        if sync:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync(folder: Path) -> None:
    """Make the names of a folder last through a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_placed(folder: Path) -> None:
    try:
        _sync(folder)
    except OSError as error:
        reason = f"the new weights are saved, but a loss of power may undo it: {error.strerror or error}"
        raise WeightsFileError(str(folder), "", reason) from None


@contextlib.contextmanager
def saying_path(path: Path) -> Iterator[None]:
    """A context that turns errors of the operating system into errors of this path."""
    try:
        yield
    except OSError as error:
        reason = f"cannot be written: {error.strerror or error}; nothing has been saved"
        raise WeightsFileError(str(path), "", reason) from None
