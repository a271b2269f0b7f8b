"""From one rank's array to tiles, and back: at most two MPI calls each."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from redistrib.backends.mpi.arrays import dtype_of, flat, tile_of
from redistrib.backends.mpi.datatypes import run_type, strided_type
from redistrib.errors import ArrayMismatchError, CommunicatorError, RedistribError
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType, require_whole
from redistrib.plans.strided import Bytes, inside
from redistrib.theory.boxes import Box
from redistrib.theory.placement import Placement, placement_of


def scatter(
    array: Any, dist_type: DistType | str, mesh: Any, comm: MPI.Intracomm, *, dtype: Any = None, root: int = 0
) -> npt.NDArray[Any]:
    """Distribute a global array that one rank holds; collective, two MPI calls.

    Args:
        array: on the root the global array, of shape `dist_type.global_shape`; ignored elsewhere.
        dist_type: the type it is to have, or its notation.
        mesh: a mesh with one device per rank; rank r is device number r.
        comm: the communicator.
        dtype: the element type; None to be told by the root.
        root: the rank that holds the array.

    Returns:
        This rank's tile.

    Raises:
        CommunicatorError: if there is not one rank per device, or no such root.
        ArrayMismatchError: on every rank, with one message, if the root's array does not fit.
    """
    placement = _placed(dist_type, mesh, comm, root)
    whole, line = None, ""
    if comm.rank == root:
        whole, line = _described(array, "the global array", placement.shape, dtype)
    note = _note(line)
    comm.Bcast(note, root)
    told = _read(note, root)
    tile = np.empty(placement.box(comm.rank).size, told)
    types = _Types()
    if placement.tile_size * tile.itemsize:
        if whole is not None:
            types.out = _boxes(placement, tile.itemsize, range(placement.devices))
        if tile.nbytes:
            types.into = {root: run_type(tile.nbytes)}
        _move(comm, None if whole is None else flat(whole), flat(tile), types)
    return tile


def gather(
    tile: Any, dist_type: DistType | str, mesh: Any, comm: MPI.Intracomm, *, root: int = 0
) -> npt.NDArray[Any] | None:
    """Collect a distributed array on one rank; collective, two MPI calls.

    Where several ranks hold the same tile, the lowest sends it.

    Args:
        tile: this rank's tile, of shape `dist_type.local_shape`; smaller where tiles are of unequal size.
        dist_type, mesh, comm, root: as for `scatter`.

    Returns:
        The global array on the root, None elsewhere.

    Raises:
        CommunicatorError: if there is not one rank per device, or no such root.
        ArrayMismatchError: on every rank, with one message, if any tile does not fit.
    """
    placement = _placed(dist_type, mesh, comm, root)
    mine, line = _described(tile, "the tile", placement.box(comm.rank).size, None)
    notes = np.empty((comm.size, _NOTE), np.uint8)
    comm.Allgather(_note(line), notes)
    told = [_read(note, rank) for rank, note in enumerate(notes)]
    for rank, dtype in enumerate(told):
        if dtype != told[0]:
            raise ArrayMismatchError(f"rank {rank}: the tile has dtype {dtype} where that of rank 0 has {told[0]}")
    whole = np.empty(placement.shape, told[0]) if comm.rank == root else None
    types = _Types()
    if mine is not None and placement.tile_size * mine.itemsize:
        first = _first_holders(placement)
        if comm.rank in first and mine.nbytes:
            types.out = {root: run_type(mine.nbytes)}
        if whole is not None:
            boxes = _boxes(placement, mine.itemsize, first)
            types.into = boxes
        _move(comm, flat(mine), None if whole is None else flat(whole), types)
    return whole


class _Types:
    """MPI datatypes by rank: of what goes out to it, and of what comes in from it."""

    def __init__(self) -> None:
        self.out: dict[int, MPI.Datatype] = {}
        self.into: dict[int, MPI.Datatype] = {}


def _move(comm: MPI.Intracomm, source: Bytes | None, target: Bytes | None, types: _Types) -> None:
    """One `Alltoallw`, of which only the root's row or column has anything in it."""
    zeros, ranks = [0] * comm.size, range(comm.size)
    comm.Alltoallw(
        [source, ([int(r in types.out) for r in ranks], zeros), [types.out.get(r, MPI.BYTE) for r in ranks]],
        [target, ([int(r in types.into) for r in ranks], zeros), [types.into.get(r, MPI.BYTE) for r in ranks]],
    )
    for datatype in [*types.out.values(), *types.into.values()]:
        datatype.Free()


def _boxes(placement: Placement, itemsize: int, ranks: Collection[int]) -> dict[int, MPI.Datatype]:
    """The tiles of some ranks inside the global array, those without elements left out."""
    whole = Box((0,) * placement.rank, placement.shape)
    boxes = {rank: placement.box(rank) for rank in ranks}
    return {rank: strided_type([inside(box, whole, itemsize)]) for rank, box in boxes.items() if box.volume}


def _first_holders(placement: Placement) -> set[int]:
    """For every tile the lowest rank that holds it."""
    return {int(k) for k in np.unique(placement.number, return_index=True)[1]}


# Everyone learns in one message of fixed size what the array is, or what is wrong with it.
_NOTE = 512


def _described(value: Any, what: str, shape: tuple[int, ...], dtype: Any) -> tuple[npt.NDArray[Any] | None, str]:
    """An array and a line that says its dtype, or None and a line that says what is wrong."""
    try:
        told = np.asarray(value).dtype if dtype is None else dtype_of(str(dtype))
        name = told.name if told.kind == "V" else told.str
        if told.hasobject or dtype_of(name) != told:
            raise ArrayMismatchError(f"{what} has dtype {told}, which has no name to send; view it as bytes")
        return tile_of(value, what, shape, told, writable=False), f"+{name}"
    except RedistribError as error:
        return None, f"-{error}"


def _note(line: str) -> Bytes:
    note = np.zeros(_NOTE, np.uint8)
    text = np.frombuffer(line.encode()[:_NOTE], np.uint8)
    note[: len(text)] = text
    return note


def _read(note: Bytes, rank: int) -> np.dtype[Any]:
    line = note.tobytes().rstrip(b"\0").decode(errors="replace")
    if line.startswith("-"):
        raise ArrayMismatchError(f"rank {rank}: {line[1:]}")
    return dtype_of(line[1:])


def _placed(dist_type: DistType | str, mesh: Any, comm: MPI.Intracomm, root: int) -> Placement:
    if not isinstance(comm, MPI.Intracomm) or comm == MPI.COMM_NULL:
        raise CommunicatorError(f"{comm!r} is no intra-communicator of mpi4py; pass one such as MPI.COMM_WORLD")
    form = DistType.of(dist_type)
    require_whole("MPI's scatter and gather", form)
    placement = placement_of(form, Mesh.of(mesh))
    if comm.size != placement.devices:
        raise CommunicatorError(
            f"the mesh has {placement.devices} devices and the communicator has {comm.size} ranks; give it one rank "
            f"per device, for example with comm.Split"
        )
    if not 0 <= root < comm.size:
        raise CommunicatorError(f"there is no rank {root} among {comm.size}; give a root from 0 to {comm.size - 1}")
    return placement
