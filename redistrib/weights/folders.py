"""Paths of weights, and the files of a folder that are its weights.

A folder has an index that names its files, or else files that are each whole. Shards without an index may be a part of
a save that was broken off: nothing tells that they are all there, so they are not read.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from redistrib.errors import WeightsFileError
from redistrib.errors.base import shown

INDEX = "model.safetensors.index.json"
ALONE = "model.safetensors"
_INDEX_SUFFIX = ".safetensors.index.json"
_SHARD = re.compile(r"(.+?)(?:-[0-9a-f]{16})?-\d{5,}-of-\d{5,}\.safetensors", re.DOTALL)
_TAGGED = re.compile(r"model-[0-9a-f]{16}-\d{5,}-of-\d{5,}\.safetensors")


def path_of(path: object) -> Path:
    """The path that a caller gives.

    Raises:
        WeightsFileError: for what is no path: no text, or with a character that no path has.
    """
    if not isinstance(path, str | os.PathLike) or not isinstance(text := os.fspath(path), str):
        raise WeightsFileError(shown(path), "", f"{type(path).__name__} is no path; give a str or a pathlib.Path")
    if not is_name(text):
        raise WeightsFileError(shown(text), "", "no path has NUL or half of a surrogate pair; give another one")
    return Path(text)


def is_name(text: str) -> bool:
    """Whether the operating system can be asked for a name."""
    try:
        return "\0" not in text and bool(os.fsencode(text) or True)
    except UnicodeEncodeError:
        return False


def kind_of(path: Path) -> str:
    """ "file", "folder", or "" if there is neither.

    Raises:
        WeightsFileError: if the operating system does not say.
    """
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        raise WeightsFileError(str(path), "", f"cannot be read: {error.strerror}") from None
    return "folder" if stat.S_ISDIR(mode) else "file"


@dataclass(frozen=True)
class FolderFiles:
    """The safetensors files of a folder and their indexes, by name.

    Attributes:
        indexes: ascending.
        whole: files whose names are not those of shards, ascending.
        shards: files whose names say that they are one of several, ascending.
    """

    indexes: tuple[str, ...]
    whole: tuple[str, ...]
    shards: tuple[str, ...]

    def without_index(self, folder: Path) -> list[str]:
        """The files to read where there is no index: those that are whole.

        Shards beside the file that they would replace belong to a save that has not ended, and are passed over.

        Raises:
            WeightsFileError: for shards without such a file.
        """
        for name in self.shards:
            if f"{_prefix(name)}.safetensors" not in self.whole:
                raise WeightsFileError(
                    str(folder),
                    "",
                    f"{name} is one of several files, and no index says which belong together: a save was broken off, "
                    "or goes on; add the index, or give the path of one file",
                )
        return list(self.whole)

    @property
    def tagged(self) -> set[str]:
        """The shards whose names only a save gives."""
        return {name for name in self.shards if _TAGGED.fullmatch(name)}

    def foreign(self, named: Sequence[str]) -> list[str]:
        """The files that a save does not replace: neither named by the index, nor of the names that a save uses."""
        own = {*named, ALONE, INDEX}
        shards = [name for name in self.shards if _prefix(name) != ALONE.removesuffix(".safetensors")]
        return [name for name in (*self.whole, *shards, *self.indexes) if name not in own]


def files_in(folder: Path) -> FolderFiles:
    """List a folder.

    Raises:
        WeightsFileError: if it cannot be read.
    """
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise WeightsFileError(str(folder), "", f"cannot be read: {error.strerror}") from None
    files = [name for name in names if name.endswith(".safetensors") and not name.startswith(".")]
    return FolderFiles(
        tuple(name for name in names if name.endswith(_INDEX_SUFFIX) and not name.startswith(".")),
        tuple(name for name in files if not _SHARD.fullmatch(name)),
        tuple(name for name in files if _SHARD.fullmatch(name)),
    )


def shard_names(count: int, tag: str) -> list[str]:
    """The names of files that belong together; `tag`, of 16 hexadecimal digits or empty, tells saves apart."""
    prefix = ALONE.removesuffix(".safetensors") + (f"-{tag}" if tag else "")
    return [f"{prefix}-{number + 1:05d}-of-{count:05d}.safetensors" for number in range(count)]


def _prefix(shard: str) -> str:
    match = _SHARD.fullmatch(shard)
    return match[1] if match else shard
