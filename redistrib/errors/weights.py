"""Errors of files of weights."""

from __future__ import annotations

from redistrib.errors.base import RedistribError


class WeightsFileError(RedistribError):
    """A file of weights that cannot be read or written as asked.

    >>> import redistrib as rd
    >>> rd.load("nowhere.safetensors", {})
    Traceback (most recent call last):
        ...
    redistrib.errors.WeightsFileError: nowhere.safetensors: there is no such file or folder; give the path of a \
safetensors file, or of a folder of them

    Attributes:
        path: of the file or folder.
        tensor: the name of the tensor that is concerned; empty if the whole file is.
        reason: the broken rule and the way out.
    """

    def __init__(self, path: str, tensor: str, reason: str) -> None:
        self.path, self.tensor, self.reason = path, tensor, reason
        super().__init__(f"{path}: tensor {tensor!r}: {reason}" if tensor else f"{path}: {reason}")
