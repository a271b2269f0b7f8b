"""Errors of files of weights."""

from __future__ import annotations

from redistrib.errors.base import RedistribError, cut, shown


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
        place = cut(path, 1000)
        super().__init__(f"{place}: tensor {shown(tensor, 200)}: {reason}" if tensor else f"{place}: {reason}")


class ThroughError(RedistribError):
    """A function that arrays cannot go through on their way.

    >>> import jax
    >>> import redistrib as rd
    >>> x = jax.numpy.ones((2, 2))
    >>> try:
    ...     rd.reshard(x, x.sharding, through=lambda x: x @ x)
    ... except rd.errors.ThroughError as error:
    ...     print(error.primitive)
    dot_general

    Attributes:
        primitive: the name of the JAX primitive; empty if none is to blame.
    """

    def __init__(self, primitive: str, reason: str) -> None:
        self.primitive = primitive
        super().__init__(reason)
