"""Opening files of weights: the folder, the index, and the headers, all of one version."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from redistrib.backends.jax.meetings import Meeting
from redistrib.errors import WeightsFileError
from redistrib.errors.base import shown
from redistrib.launches import times
from redistrib.weights.folders import FolderFiles, files_in, is_name, kind_of
from redistrib.weights.headers import (
    DTYPES,
    MOST_HEADER_BYTES,
    TIED,
    StoredTensor,
    WeightFiles,
    bytes_of,
    parsed_object,
    read_header,
    ties_of,
)
from redistrib.weights.names import Rename
from redistrib.weights.notes import packed, unpacked
from redistrib.weights.open_files import LocalFile, Stamp, opened, settled_stamp

ATTEMPTS = 100  # to open the files of a folder while others replace them: two writers without a pause may win ten


class OpenWeights:
    """Files of weights that are open from their headers to their last byte. A context, which closes them.

    Attributes:
        files: what their headers say.
        stamps: of the files, from before their headers were read.
    """

    def __init__(self, files: WeightFiles, stamps: Sequence[Stamp], opened: Sequence[LocalFile]) -> None:
        self.files, self.stamps, self._opened = files, tuple(stamps), tuple(opened)

    def __enter__(self) -> OpenWeights:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files."""
        for file in self._opened:
            file.close()
        self._opened = ()

    def __getitem__(self, number: int) -> LocalFile:
        return self._opened[number]

    def check_unchanged(self, number: int) -> None:
        """Refuse a file that has changed since its header was read.

        Raises:
            WeightsFileError: with both sizes, or if other bytes have been written.
            OSError: if the operating system does not say.
        """
        stamp, before = self._opened[number].stamp(), self.stamps[number]
        if stamp != before:
            sizes = f", from {before.size:,} to {stamp.size:,} bytes" if stamp.size != before.size else ""
            raise WeightsFileError(
                str(self.files.path(number)),
                "",
                f"the file was changed in its place while it was read{sizes}; load it again",
            )

    def to_json(self) -> str:
        """The headers and stamps as text, for other processes."""
        return json.dumps([self.files.to_json(), self.stamps])

    @staticmethod
    def like(folder: Path, text: str) -> OpenWeights:
        """Open the same versions of files as another process, which wrote them by `to_json`.

        Raises:
            WeightsFileError: where a file is missing here, or is another.
        """
        headers, stamps = json.loads(text)
        files = WeightFiles.from_json(folder, headers)
        with ExitStack() as stack:
            descriptors = []
            for number, stamp in enumerate(stamps):
                file = _opened_within(stack, files.path(number))
                descriptors.append(file)
                size, changed = file.stamp()
                if [size, changed] != stamp:
                    other = "another time of change here than"
                    if size != stamp[0]:
                        other = f"{size} bytes here, and {stamp[0]}"
                    reason = f"the file has {other} where its header was read; all processes must see one file"
                    raise WeightsFileError(str(files.path(number)), "", reason)
            stack.pop_all()
            return OpenWeights(files, [Stamp(*stamp) for stamp in stamps], descriptors)


def folder_of(path: Path) -> Path:
    """The folder of the files that a path names: a folder, or the folder of a file."""
    return path if kind_of(path) == "folder" else path.parent


def read_headers(path: Path, rename: Rename = None) -> WeightFiles:
    """Find the files of a path, and read and check their headers; raises as `open_weights` and `renamed` do."""
    with open_weights(path) as weights:
        return weights.files.renamed(rename)


def open_weights(path: Path) -> OpenWeights:
    """Open the files of a path, and read and check their headers.

    Where a folder changes meanwhile, because a save replaces its weights, it is read again.

    Args:
        path: a safetensors file, an index, or a folder that has one of them.

    Raises:
        WeightsFileError: if there is no such file, or a header or an index is malformed.
    """
    if kind_of(path) == "file" and not path.name.endswith(".json"):
        return _opened(path.parent, [path.name], {})

    def attempt(is_last: bool) -> OpenWeights | None:
        before = _listing(path)
        try:
            weights = _opened(*_files_of(path))
        except WeightsFileError:
            if is_last or _listing(path) == before:
                raise
            return None
        if weights.files.unreadable and not is_last and _listing(path) != before:
            weights.close()
            return None
        return weights

    return _settled(attempt)


def open_together(path: Path, meeting: Meeting) -> OpenWeights:
    """Open the files of a path in several processes, all of one version; begin again where they change.

    Raises:
        WeightsFileError: in all processes, as `open_weights` does, and where a process has no such files, or others.
    """

    def first() -> OpenWeights | None:
        if meeting.leads:
            return open_weights(path)
        if not kind_of(path):
            raise WeightsFileError(
                str(path), "", "there is no such file or folder; every process must see the same files"
            )
        return None

    def attempt(is_last: bool) -> OpenWeights | None:
        with ExitStack() as stack:

            def held(weights: OpenWeights | None) -> OpenWeights | None:
                if weights is not None:
                    stack.callback(weights.close)
                return weights

            led, headers = meeting.agreed(
                lambda: held(first()), note=lambda weights: packed(weights.to_json()) if weights else ""
            )
            weights, others = meeting.agreed(
                lambda: led or held(_like(path, unpacked(headers[0]), refuse=is_last)),
                note=lambda weights: "" if weights else "other",
            )
            if any(others):
                return None
            stack.pop_all()
            return weights

    return _settled(attempt)


def _settled(attempt: Callable[[bool], OpenWeights | None]) -> OpenWeights:
    """Open files that others may replace meanwhile.

    Args:
        attempt: is told whether it is the last; None where the files have changed. The last returns files or raises.
    """
    for left in reversed(range(ATTEMPTS)):
        weights = attempt(not left)
        if weights is not None:
            return weights
        time.sleep(times.RETRY_SECONDS)
    raise AssertionError("the last attempt returns or raises")


def _like(path: Path, text: str, *, refuse: bool) -> OpenWeights | None:
    """`OpenWeights.like`; None instead of an error unless it is to refuse."""
    try:
        return OpenWeights.like(folder_of(path), text)
    except WeightsFileError:
        if refuse:
            raise
        return None


def _listing(path: Path) -> FolderFiles | None:
    """What a folder, or the folder of an index, has; None if it has nothing that can be read."""
    try:
        return files_in(folder_of(path))
    except WeightsFileError:
        return None


def _opened_within(stack: ExitStack, path: Path) -> LocalFile:
    file = opened(path)
    stack.callback(file.close)
    return file


def _opened(folder: Path, names: Sequence[str], index: Mapping[str, str]) -> OpenWeights:
    """Open files, each before its header is read.

    What an index names and its folder lacks is an error only for those who ask for it.

    Args:
        folder: where they are.
        names: of the files.
        index: for each tensor of an index its file.
    """
    tensors: dict[str, StoredTensor] = {}
    metadata: dict[str, str] = {}
    tied: dict[str, str] = {}
    reasons: dict[str, str] = {}  # of tensors that cannot be read
    lost: dict[str, str] = {}  # files that the index names, and that cannot be used
    present, stamps, descriptors, headers = [], [], [], []

    @contextlib.contextmanager
    def noting(name: str) -> Iterator[None]:
        try:
            yield
        except WeightsFileError as error:
            if not index:
                raise
            of = f"tensor {shown(error.tensor)}: " if error.tensor else ""
            lost[name] = f"which cannot be used: {of}{error.reason}"

    with ExitStack() as stack:
        for name in names:  # all of them first, so that a save that removes them comes too late
            if index and not _is_file(folder / name):
                lost[name] = "which is no file in its folder; download it, or leave its tensors out"
                continue
            with noting(name):
                file = _opened_within(stack, folder / name)
                stamps.append(settled_stamp(folder / name, file))
                descriptors.append(file)
                present.append(name)
        for number, name in enumerate(present):
            entries, texts = dict[str, Any](), dict[str, str]()
            with noting(name):
                entries, texts = read_header(folder / name, descriptors[number], stamps[number].size)
            headers.append((folder / name, texts))
            for tensor, (start, shape, dtype) in entries.items():
                if tensor in tensors:
                    reasons[tensor] = f"{present[tensors[tensor].file]} and {name} both have it; give one of the files"
                elif dtype not in DTYPES:
                    known = ", ".join(sorted(DTYPES))
                    reasons[tensor] = f"its dtype {shown(dtype)} is none of {known}; convert it first"
                else:
                    tensors[tensor] = StoredTensor(tensor, number, start, shape, DTYPES[dtype])
        for tensor, name in index.items():
            if name in lost:
                reasons[tensor] = f"the index names {shown(name)}, {lost[name]}"
            elif tensor not in reasons and (tensor not in tensors or present[tensors[tensor].file] != name):
                reasons[tensor] = f"the index says that {name} has it, which has not; write the index again"
        for path, texts in headers:
            tied = ties_of(path, texts, {*tensors, *reasons}) | tied
            metadata = {key: text for key, text in texts.items() if key != TIED} | metadata
        stack.pop_all()
    tensors = {name: tensor for name, tensor in tensors.items() if name not in reasons}
    sizes = tuple(stamp.size for stamp in stamps)
    files = WeightFiles(folder, tuple(present), sizes, tensors, tied, reasons, metadata, bool(index))
    return OpenWeights(files, stamps, descriptors)


def _files_of(path: Path) -> tuple[Path, list[str], dict[str, str]]:
    """The folder, the files in it, and for each tensor of the index its file."""
    kind = kind_of(path)
    if not kind:
        raise WeightsFileError(
            str(path),
            "",
            "there is no such file or folder; give the path of a safetensors file, or of a folder of them",
        )
    if kind == "file":
        return path.parent, *_read_index(path)
    files = files_in(path)
    if len(files.indexes) > 1:
        raise WeightsFileError(
            str(path),
            "",
            f"there are {len(files.indexes)} indexes here; give the path of one, such as {files.indexes[0]}",
        )
    if files.indexes:
        return path, *_read_index(path / files.indexes[0])
    names = files.without_index(path)
    if not names:
        raise WeightsFileError(str(path), "", "there is no safetensors file in this folder")
    return path, names, {}


def _read_index(path: Path) -> tuple[list[str], dict[str, str]]:
    weight_map = read_weight_map(path)
    names = sorted(set(weight_map.values()))
    if not names:
        raise WeightsFileError(str(path), "", "the index names no file")
    return names, weight_map


def _is_file(path: Path) -> bool:
    try:
        return kind_of(path) == "file"
    except WeightsFileError:  # its name is too long, or it cannot be asked for
        return False


def read_weight_map(path: Path) -> dict[str, str]:
    """For each tensor of an index the name of its file, which need not exist.

    Raises:
        WeightsFileError: if the index is malformed, or names what is outside its folder.
    """
    with ExitStack() as stack:
        file = _opened_within(stack, path)
        size = file.stamp().size
        if size > MOST_HEADER_BYTES:
            raise WeightsFileError(str(path), "", f"an index has at most {MOST_HEADER_BYTES:,} bytes")
        text = bytes_of(path, file, 0, size)
    parsed = parsed_object(path, text, "the index")
    files = parsed.get("weight_map")
    if not isinstance(files, dict) or not all(isinstance(name, str) for name in files.values()):
        raise WeightsFileError(str(path), "", 'the index has no "weight_map" from tensors to files')
    for name in set(files.values()):
        if not is_name(name) or not name or Path(name).name != name or name == "..":
            raise WeightsFileError(str(path), "", f"the index names {shown(name)}, which is no file in its folder")
    return files
