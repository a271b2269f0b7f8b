"""MPI datatypes for strided memory, with counts and displacements that never exceed what 32 bits hold.

Offsets live inside the types as addresses, and long repetitions are nested, so the same types serve MPI-3
libraries, whose counts are C ints, and MPI-4 ones.
"""

from __future__ import annotations

from mpi4py import MPI

from redistrib.plans.strided import Strided

# The largest count handed to MPI. Tests make it small, to walk the path of huge arrays without them.
LARGEST_COUNT = 2**31 - 1


def run_type(nbytes: int) -> MPI.Datatype:
    """A committed type of this many contiguous bytes."""
    return _committed(_repeated(MPI.BYTE, nbytes, 1))


def placed_type(parts: list[Strided]) -> tuple[int, MPI.Datatype]:
    """A displacement and a committed type at it, of the runs of several boxes of one buffer.

    One box is described without its offset where that is small enough to be a displacement: MPI libraries move a plain
    contiguous type without packing it.
    """
    if len(parts) == 1 and parts[0].offset <= LARGEST_COUNT:
        return parts[0].offset, _committed(_runs(parts[0]))
    return 0, strided_type(parts)


def strided_type(parts: list[Strided]) -> MPI.Datatype:
    """A committed type of the runs of several boxes of one buffer, in order."""
    pieces = [_runs(part) for part in parts]
    whole = MPI.Datatype.Create_struct([1] * len(pieces), [part.offset for part in parts], pieces)
    for piece in pieces:
        _free(piece)
    return _committed(whole)


def _runs(part: Strided) -> MPI.Datatype:
    """The runs of one box, from its first byte on."""
    if part.contiguous:
        return _repeated(MPI.BYTE, part.nbytes, 1)
    piece = _repeated(MPI.BYTE, part.run, 1)
    for count, stride in zip(reversed(part.shape), reversed(part.strides), strict=True):
        piece = _freed(piece, _repeated(piece, count, stride))
    return piece


def _repeated(base: MPI.Datatype, count: int, stride: int) -> MPI.Datatype:
    """`count` copies of a type, `stride` bytes apart; a new type."""
    if count <= LARGEST_COUNT:
        if base is MPI.BYTE and stride == 1:
            return MPI.BYTE.Create_contiguous(count)
        return base.Create_hvector(count, 1, stride)
    blocks, rest = divmod(count, LARGEST_COUNT)
    block = _repeated(base, LARGEST_COUNT, stride)
    body = _freed(block, _repeated(block, blocks, stride * LARGEST_COUNT))
    if not rest:
        return body
    tail = _repeated(base, rest, stride)
    whole = MPI.Datatype.Create_struct([1, 1], [0, stride * LARGEST_COUNT * blocks], [body, tail])
    _free(body)
    _free(tail)
    return whole


def _freed(old: MPI.Datatype, new: MPI.Datatype) -> MPI.Datatype:
    _free(old)
    return new


def _free(datatype: MPI.Datatype) -> None:
    if not datatype.is_predefined:
        datatype.Free()


def _committed(datatype: MPI.Datatype) -> MPI.Datatype:
    return datatype.Commit()
