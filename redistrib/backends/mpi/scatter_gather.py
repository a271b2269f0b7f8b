"""From one rank's array to tiles, and back: two MPI calls each; to gather summands, one more for each but the first."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from redistrib.backends.mpi.arrays import dtype_of, flat, tile_of
from redistrib.backends.mpi.consistency import require_root
from redistrib.backends.mpi.datatypes import run_type, strided_type
from redistrib.errors import CommunicatorError, RedistribError, TilesError
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.plans.dtypes import default_accumulation, require_reduction
from redistrib.plans.reduction import Accumulator, identity
from redistrib.plans.strided import Bytes, runs_in
from redistrib.theory.boxes import Box
from redistrib.theory.placement import Placement, placement_of


def scatter(
    array: Any, dist_type: DistType | str, mesh: Any, comm: MPI.Intracomm, *, dtype: Any = None, root: int = 0
) -> npt.NDArray[Any] | None:
    """Distribute a global array that one rank holds; collective, two MPI calls.

    Where tiles are summands, every tile of the array becomes the first summand of its kind, on all ranks that have
    coordinate 0 along the partial axes, and all other ranks get what changes no sum, maximum or minimum: zeros, or the
    lowest or highest value of the type. They are sent nothing.

    Args:
        array: on the root the global array, of shape `dist_type.global_shape`; ignored elsewhere.
        dist_type: the type it is to have, or its notation.
        mesh: a mesh over the ranks; rank r is device number r, and the highest is in it.
        comm: the communicator.
        dtype: the element type; None to be told by the root.
        root: the rank that holds the array.

    Returns:
        This rank's tile; None on a rank that the mesh leaves out.

    Raises:
        CommunicatorError: if there is not one rank per device, or no such root.
        TilesError: on every rank, with one message, if the root's array does not fit.
        ReductionError: on every rank, if its elements cannot be summands of that kind.
    """
    placement = _placed(dist_type, mesh, comm, root)
    whole, line = None, ""
    if comm.rank == root:
        whole, line = _described(array, "the global array", placement.shape, dtype, whole=True)
    note = _note(line)
    comm.Bcast(note, root)
    told = dtype_of(_line(note, root))
    _require_reduction(placement, told)
    tile = None if placement.nowhere[comm.rank] else np.empty(placement.box(comm.rank).size, told)
    if tile is not None and placement.label[comm.rank]:
        tile[...] = identity(placement.reduction or "sum", told)
    if placement.tile_size * told.itemsize:
        given, types = placement.holders[placement.label[placement.holders] == 0].tolist(), _Types()
        if whole is not None:
            types.out = _boxes(placement, told.itemsize, given)
        if tile is not None and tile.nbytes and comm.rank in given:
            types.into = {root: run_type(tile.nbytes)}
        _move(comm, whole, tile, types)
    return tile


def gather(
    tile: Any, dist_type: DistType | str, mesh: Any, comm: MPI.Intracomm, *, root: int = 0
) -> npt.NDArray[Any] | None:
    """Collect a distributed array on one rank; collective, two MPI calls.

    Where several ranks hold the same tile, the lowest sends it. Where tiles are summands, the root adds them up, or
    takes the maximum or minimum: one call for each summand, which is added before the next one comes. The order is that
    of the summands, bfloat16 and float16 are added in float32 and rounded once, integers wrap around: the result has
    the bits of a plan with `order="fixed"`. The root then holds the result and one summand of the whole array, and for
    bfloat16 and float16 both in float32 too.

    Args:
        tile: this rank's tile, of shape `dist_type.local_shape`; smaller where tiles are of unequal size. None on a
            rank that the mesh leaves out.
        dist_type, mesh, comm, root: as for `scatter`.

    Returns:
        The global array on the root, None elsewhere.

    Raises:
        CommunicatorError: if there is not one rank per device, or no such root.
        TilesError: on every rank, with one message, if any tile does not fit.
        ReductionError: on every rank, if elements of that type have no such reduction.
    """
    placement = _placed(dist_type, mesh, comm, root)
    mine, line = _held(tile, placement, comm.rank)
    notes = np.empty((comm.size, _NOTE), np.uint8)
    comm.Allgather(_note(line), notes)
    lines = [_line(note, rank) for rank, note in enumerate(notes)]
    first = int(placement.holders[0])
    told = dtype_of(lines[first])
    for rank in placement.holders.tolist():
        if (dtype := dtype_of(lines[rank])) != told:
            raise TilesError(f"rank {rank}: the tile has dtype {dtype} where that of rank {first} has {told}")
    _require_reduction(placement, told)
    part = np.empty(placement.shape, told) if comm.rank == root else None
    if placement.summands == 1:
        _collect(comm, mine, part, placement, 0, root)
        return part
    kind = placement.reduction or "sum"
    total = None if part is None else Accumulator(part.shape, told, kind, default_accumulation(kind, told.name))
    for summand in range(placement.summands):
        _collect(comm, mine, part, placement, summand, root)
        if total is not None and part is not None:
            total.add([0] * part.ndim, part)
    return None if total is None else total.result()


def _collect(
    comm: MPI.Intracomm,
    tile: npt.NDArray[Any] | None,
    whole: npt.NDArray[Any] | None,
    placement: Placement,
    summand: int,
    root: int,
) -> None:
    """One summand of the whole array on the root, which alone has memory for it."""
    if not placement.tile_size:
        return
    first, types = _first_holders(placement, summand), _Types()
    if tile is not None and tile.nbytes and comm.rank in first:
        types.out = {root: run_type(tile.nbytes)}
    if whole is not None:
        types.into = _boxes(placement, whole.itemsize, first)
    _move(comm, tile, whole, types)


class _Types:
    """MPI datatypes by rank: of what goes out to it, and of what comes in from it."""

    def __init__(self) -> None:
        self.out: dict[int, MPI.Datatype] = {}
        self.into: dict[int, MPI.Datatype] = {}


def _move(comm: MPI.Intracomm, source: npt.NDArray[Any] | None, target: npt.NDArray[Any] | None, types: _Types) -> None:
    """One `Alltoallw`, of which only the root's row or column has anything in it."""
    zeros, ranks = [0] * comm.size, range(comm.size)
    out, into = (None if array is None else flat(array) for array in (source, target))
    comm.Alltoallw(
        [out, ([int(r in types.out) for r in ranks], zeros), [types.out.get(r, MPI.BYTE) for r in ranks]],
        [into, ([int(r in types.into) for r in ranks], zeros), [types.into.get(r, MPI.BYTE) for r in ranks]],
    )
    for datatype in [*types.out.values(), *types.into.values()]:
        datatype.Free()


def _boxes(placement: Placement, itemsize: int, ranks: Collection[int]) -> dict[int, MPI.Datatype]:
    """The tiles of some ranks inside the global array, those without elements left out."""
    whole = Box((0,) * placement.rank, placement.shape)
    boxes = {rank: placement.box(rank) for rank in ranks}
    return {rank: strided_type([runs_in(box, whole, itemsize)]) for rank, box in boxes.items() if box.volume}


def _first_holders(placement: Placement, summand: int) -> set[int]:
    """For every tile the lowest rank that holds a summand of it."""
    ranks = placement.holders[placement.label[placement.holders] == summand]
    return set(ranks[np.unique(placement.number[ranks], return_index=True)[1]].tolist())


def _require_reduction(placement: Placement, dtype: np.dtype[Any]) -> None:
    if placement.reduction is not None:
        require_reduction(placement.reduction, dtype.name)


# Everyone learns in one message of fixed size what the array is, or what is wrong with it.
_NOTE = 512


def _described(
    value: Any, what: str, shape: tuple[int, ...], dtype: Any, *, whole: bool = False
) -> tuple[npt.NDArray[Any] | None, str]:
    """An array and a line that says its dtype, or None and a line that says what is wrong."""
    try:
        if value is None:
            raise TilesError(f"{what} is None; pass an array of shape {list(shape)}")
        told = np.asarray(value).dtype if dtype is None else dtype_of(str(dtype))
        name = told.name if told.kind == "V" else told.str
        if told.hasobject or dtype_of(name) != told:
            raise TilesError(f"{what} has dtype {told}, which has no name to send; view it as bytes")
        return tile_of(value, what, shape, told, writable=False, whole=whole), f"+{name}"
    except RedistribError as error:
        return None, f"-{error}"


def _held(tile: Any, placement: Placement, rank: int) -> tuple[npt.NDArray[Any] | None, str]:
    """This rank's tile and a line that says its dtype, of nothing on a rank that is to hold nothing."""
    if not placement.nowhere[rank]:
        return _described(tile, "the tile", placement.box(rank).size, None)
    if tile is not None:
        return None, "-a tile is given where the mesh leaves this rank out; pass None"
    return None, "+"


def _note(line: str) -> Bytes:
    note = np.zeros(_NOTE, np.uint8)
    text = np.frombuffer(line.encode()[:_NOTE], np.uint8)
    note[: len(text)] = text
    return note


def _line(note: Bytes, rank: int) -> str:
    """The dtype that a note names.

    Raises:
        TilesError: with the error that it tells instead.
    """
    line = note.tobytes().rstrip(b"\0").decode(errors="replace")
    if line.startswith("-"):
        raise TilesError(f"rank {rank}: {line[1:]}")
    return line[1:]


def _placed(dist_type: DistType | str, mesh: Any, comm: MPI.Intracomm, root: int) -> Placement:
    if not isinstance(comm, MPI.Intracomm) or comm == MPI.COMM_NULL:
        raise CommunicatorError(f"{comm!r} is no intra-communicator of mpi4py; pass one such as MPI.COMM_WORLD")
    placement = placement_of(DistType.of(dist_type), Mesh.of(mesh))
    if comm.size != placement.devices:
        raise CommunicatorError(
            f"the mesh has {placement.devices} devices and the communicator has {comm.size} ranks; give it one rank "
            f"per device, for example with comm.Split"
        )
    require_root(comm, root)
    return placement
