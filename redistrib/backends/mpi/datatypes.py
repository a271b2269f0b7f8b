"""MPI datatypes for strided memory.

For counts beyond 31 bits mpi4py calls the large-count functions of MPI-4. Boxes are nested `Create_hvector`s and not
`Create_subarray`s, because MPICH 5 then needs 0.2 to 0.4 of the time, or 0.7 for small tiles: medians of paired ratios
over 21 pairs of one `Alltoallw` each, on 4 ranks of one host.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from mpi4py import MPI

from redistrib.plans.strided import Strided, runs_in
from redistrib.theory.boxes import Box

Placed: TypeAlias = tuple[int, MPI.Datatype]  # a displacement in bytes, and the datatype at it

# The largest displacement of an MPI-3 library.
_LARGEST = 2**31 - 1


class TypeOwner:
    """An owner of MPI datatypes, which it frees when it is freed."""

    def __init__(self) -> None:
        self._types: list[MPI.Datatype] = []

    def free(self) -> None:
        """Free the datatypes; communicators belong to `Groups`."""
        for datatype in self._types:
            datatype.Free()
        self._types.clear()

    def _typed(self, datatype: MPI.Datatype) -> MPI.Datatype:
        self._types.append(datatype)
        return datatype

    def _placed(self, boxes: Sequence[Box], tile: Box, itemsize: int) -> Placed:
        """Boxes of a tile as a datatype, and its displacement in the tile's buffer."""
        at, datatype = placed_type([runs_in(box, tile, itemsize) for box in boxes])
        return at, self._typed(datatype)


def run_type(nbytes: int) -> MPI.Datatype:
    """A committed type of so many contiguous bytes."""
    return MPI.BYTE.Create_contiguous(nbytes).Commit()


def placed_type(parts: list[Strided]) -> tuple[int, MPI.Datatype]:
    """The runs of several boxes of one buffer, as a displacement and a committed type at it.

    The offset of a single box becomes the displacement, if it is small enough, because MPI libraries do not pack a
    plain contiguous type.
    """
    if len(parts) == 1 and parts[0].offset <= _LARGEST:
        return parts[0].offset, _runs(parts[0]).Commit()
    return 0, strided_type(parts)


def strided_type(parts: list[Strided]) -> MPI.Datatype:
    """A committed type of the runs of several boxes of one buffer, in order."""
    pieces = [_runs(part) for part in parts]
    whole = MPI.Datatype.Create_struct([1] * len(pieces), [part.offset for part in parts], pieces)
    for piece in pieces:
        piece.Free()
    return whole.Commit()


def _runs(part: Strided) -> MPI.Datatype:
    """The runs of one box, from its first byte."""
    if part.contiguous:
        return MPI.BYTE.Create_contiguous(part.nbytes)
    piece = MPI.BYTE.Create_contiguous(part.run)
    for count, stride in zip(reversed(part.shape), reversed(part.strides), strict=True):
        inner, piece = piece, piece.Create_hvector(count, 1, stride)
        inner.Free()
    return piece
