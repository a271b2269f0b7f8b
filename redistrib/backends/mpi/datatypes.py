"""MPI datatypes for strided memory.

Counts beyond 31 bits are mpi4py's affair, which calls MPI-4's large-count functions. Boxes are nested `Create_hvector`s
and no `Create_subarray`, because MPICH 5 moves them in 0.2 to 0.4 of the time, in 0.7 where tiles are small: medians of
paired ratios over 21 pairs of one `Alltoallw` each, on 4 ranks of one host (docs/mpi.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from mpi4py import MPI

from redistrib.plans.strided import Strided, runs_in
from redistrib.theory.boxes import Box

Placed: TypeAlias = tuple[int, MPI.Datatype]  # where it lies in a buffer, in bytes

# The largest displacement that an MPI-3 library takes.
_LARGEST = 2**31 - 1


class TypeOwner:
    """The base of what makes MPI datatypes, and gives them back when it is freed."""

    def __init__(self) -> None:
        self._types: list[MPI.Datatype] = []

    def free(self) -> None:
        """Release MPI datatypes; communicators are released by who made them."""
        for datatype in self._types:
            datatype.Free()
        self._types.clear()

    def _typed(self, datatype: MPI.Datatype) -> MPI.Datatype:
        self._types.append(datatype)
        return datatype

    def _placed(self, boxes: Sequence[Box], tile: Box, itemsize: int) -> Placed:
        """Boxes of a tile, as a datatype at a displacement in the tile's buffer."""
        at, datatype = placed_type([runs_in(box, tile, itemsize) for box in boxes])
        return at, self._typed(datatype)


def run_type(nbytes: int) -> MPI.Datatype:
    """A committed type of this many contiguous bytes."""
    return MPI.BYTE.Create_contiguous(nbytes).Commit()


def placed_type(parts: list[Strided]) -> tuple[int, MPI.Datatype]:
    """A displacement and a committed type at it, of the runs of several boxes of one buffer.

    One box is described without its offset where that is small enough to be a displacement: MPI libraries move a plain
    contiguous type without packing it.
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
    """The runs of one box, from its first byte on."""
    if part.contiguous:
        return MPI.BYTE.Create_contiguous(part.nbytes)
    piece = MPI.BYTE.Create_contiguous(part.run)
    for count, stride in zip(reversed(part.shape), reversed(part.strides), strict=True):
        inner, piece = piece, piece.Create_hvector(count, 1, stride)
        inner.Free()
    return piece
