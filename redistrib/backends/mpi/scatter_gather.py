"""From an array on one rank to tiles, and back: two MPI calls, and one more for each further partial sum gathered."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from redistrib.backends.mpi.arrays import dtype_of, flat, tile_of
from redistrib.backends.mpi.consistency import require_communicator, require_root
from redistrib.backends.mpi.datatypes import run_type, strided_type
from redistrib.digests import digest_of_parts
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

    Where the tiles are partial sums, every tile of the array becomes its first partial sum, on all ranks with
    coordinate 0 along the partial axes. All other ranks get identity elements: zeros, or the lowest or highest value of
    the element type. They receive no message.

    Args:
        array: on the root the global array, of shape `dist_type.global_shape`; ignored elsewhere.
        dist_type: the type of the result, or its notation.
        mesh: a mesh over the ranks; rank r is device number r, and the highest is in it.
        comm: the communicator.
        dtype: the element type; None for that of the root's array.
        root: the rank that holds the array.

    Returns:
        This rank's tile; None on a rank that the mesh leaves out.

    Raises:
        CommunicatorError: on every rank, if the communicator does not have one rank per device or no such root, or the
            ranks give different arguments.
        TilesError: on every rank, with one message, if the root's array does not fit.
        ReductionError: on every rank, if its elements have no such reduction.
    """
    whole = None

    def here(placement: Placement) -> str:
        nonlocal whole
        line = "+"
        if comm.rank == root:
            whole, line = _described(array, "the global array", placement.shape, dtype, whole=True)
        return line

    placement, lines = _agreed("scatter", dist_type, mesh, comm, root, here)
    element_type = dtype_of(lines[root])
    _require_reduction(placement, element_type)
    tile = None if placement.nowhere[comm.rank] else np.empty(placement.box(comm.rank).size, element_type)
    if tile is not None and placement.label[comm.rank]:
        tile[...] = identity(placement.reduction or "sum", element_type)
    if placement.tile_size * element_type.itemsize:
        receivers, types = placement.holders[placement.label[placement.holders] == 0].tolist(), _Types()
        if whole is not None:
            types.out = _boxes(placement, element_type.itemsize, receivers)
        if tile is not None and tile.nbytes and comm.rank in receivers:
            types.into = {root: run_type(tile.nbytes)}
        _move(comm, whole, tile, types)
    return tile


def gather(
    tile: Any, dist_type: DistType | str, mesh: Any, comm: MPI.Intracomm, *, root: int = 0
) -> npt.NDArray[Any] | None:
    """Collect a distributed array on one rank; collective, two MPI calls.

    Where several ranks hold the same tile, the lowest rank sends it. Partial sums are reduced on the root, in ascending
    order: one call for each, and the root reduces it before the next call. bfloat16 and float16 are added in float32
    and rounded once, integers wrap around. So the result has the bits of a plan with `order="fixed"`. The root holds
    the result and one partial sum of the whole array; for bfloat16 and float16, both in float32 too.

    Args:
        tile: this rank's tile, of shape `dist_type.local_shape`; smaller where tiles are of unequal size. None on a
            rank that the mesh leaves out.
        dist_type, mesh, comm, root: as for `scatter`.

    Returns:
        The global array on the root, None elsewhere.

    Raises:
        CommunicatorError: on every rank, if the communicator does not have one rank per device or no such root, or the
            ranks give different arguments.
        TilesError: on every rank, with one message, if any tile does not fit.
        ReductionError: on every rank, if elements of that type have no such reduction.
    """
    local = None

    def here(placement: Placement) -> str:
        nonlocal local
        local, line = _tile_here(tile, placement, comm.rank)
        return line

    placement, lines = _agreed("gather", dist_type, mesh, comm, root, here)
    first = int(placement.holders[0])
    element_type = dtype_of(lines[first])
    for rank in placement.holders.tolist():
        if (dtype := dtype_of(lines[rank])) != element_type:
            raise TilesError(f"rank {rank}: the tile has dtype {dtype} where that of rank {first} has {element_type}")
    _require_reduction(placement, element_type)
    part = np.empty(placement.shape, element_type) if comm.rank == root else None
    if placement.summands == 1:
        _collect(comm, local, part, placement, 0, root)
        return part
    kind = placement.reduction or "sum"
    total = (
        None
        if part is None
        else Accumulator(part.shape, element_type, kind, default_accumulation(kind, element_type.name))
    )
    for summand in range(placement.summands):
        _collect(comm, local, part, placement, summand, root)
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
    """Collect one partial sum of the whole array on the root."""
    if not placement.tile_size:
        return
    first, types = _first_holders(placement, summand), _Types()
    if tile is not None and tile.nbytes and comm.rank in first:
        types.out = {root: run_type(tile.nbytes)}
    if whole is not None:
        types.into = _boxes(placement, whole.itemsize, first)
    _move(comm, tile, whole, types)


class _Types:
    """MPI datatypes by rank: `out` to that rank, and `into` from it."""

    def __init__(self) -> None:
        self.out: dict[int, MPI.Datatype] = {}
        self.into: dict[int, MPI.Datatype] = {}


def _move(comm: MPI.Intracomm, source: npt.NDArray[Any] | None, target: npt.NDArray[Any] | None, types: _Types) -> None:
    """One `Alltoallw`, whose messages all go from the root or all go to the root."""
    zeros, ranks = [0] * comm.size, range(comm.size)
    out, into = (None if array is None else flat(array) for array in (source, target))
    comm.Alltoallw(
        [out, ([int(r in types.out) for r in ranks], zeros), [types.out.get(r, MPI.BYTE) for r in ranks]],
        [into, ([int(r in types.into) for r in ranks], zeros), [types.into.get(r, MPI.BYTE) for r in ranks]],
    )
    for datatype in [*types.out.values(), *types.into.values()]:
        datatype.Free()


def _boxes(placement: Placement, itemsize: int, ranks: Collection[int]) -> dict[int, MPI.Datatype]:
    """Datatypes of the tiles of these ranks inside the global array; none for an empty tile."""
    whole = Box((0,) * placement.rank, placement.shape)
    boxes = {rank: placement.box(rank) for rank in ranks}
    return {rank: strided_type([runs_in(box, whole, itemsize)]) for rank, box in boxes.items() if box.volume}


def _first_holders(placement: Placement, summand: int) -> set[int]:
    """For every tile the lowest rank that holds this partial sum of it."""
    ranks = placement.holders[placement.label[placement.holders] == summand]
    return set(ranks[np.unique(placement.number[ranks], return_index=True)[1]].tolist())


def _require_reduction(placement: Placement, dtype: np.dtype[Any]) -> None:
    if placement.reduction is not None:
        require_reduction(placement.reduction, dtype.name)


# Bytes of the message by which all ranks learn the dtype of an array and the digest of a call, or an error.
_NOTE = 512


def _described(
    value: Any, subject: str, shape: tuple[int, ...], dtype: Any, *, whole: bool = False
) -> tuple[npt.NDArray[Any] | None, str]:
    """An array and a line with its dtype, or None and a line with the error."""
    try:
        if value is None:
            raise TilesError(f"{subject} is None; pass an array of shape {list(shape)}")
        element_type = np.asarray(value).dtype if dtype is None else dtype_of(str(dtype))
        name = element_type.name if element_type.kind == "V" else element_type.str
        if element_type.hasobject or dtype_of(name) != element_type:
            raise TilesError(f"{subject} has dtype {element_type}, which has no name to send; view it as bytes")
        return tile_of(value, subject, shape, element_type, writable=False, whole=whole), f"+{name}"
    except RedistribError as error:
        return None, f"-{error}"


def _tile_here(tile: Any, placement: Placement, rank: int) -> tuple[npt.NDArray[Any] | None, str]:
    """The tile of this rank and a line with its dtype; an empty line on a rank without a tile."""
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


def _agreed(
    function: str,
    dist_type: DistType | str,
    mesh: Any,
    comm: MPI.Intracomm,
    root: int,
    here: Callable[[Placement], str],
) -> tuple[Placement, list[str]]:
    """The placement of a call that all ranks make alike, and the dtypes of their arrays; one `Allgather`.

    Args:
        function: the name of the function that is called.
        dist_type, mesh, comm, root: as for `scatter`.
        here: the line of this rank's array, see `_described`.

    Raises:
        RedistribError: on every rank, if a rank has an error, or their arguments differ.
    """
    require_communicator(comm)
    placement, problem = None, None
    try:
        placement = _placed(dist_type, mesh, comm, root)
        digest = digest_of_parts([function, *_facts(placement), root])
        line = f"{here(placement)}\n{digest}"
    except RedistribError as error:
        problem, line = error, f"!{error}"
    notes = np.empty((comm.size, _NOTE), np.uint8)
    comm.Allgather(_note(line), notes)
    lines = [note.tobytes().rstrip(b"\0").decode(errors="replace") for note in notes]
    if problem is not None and len(set(lines)) == 1:  # of the call, not of a rank
        raise problem
    for rank, text in enumerate(lines):
        if text[0] in "-!":
            kind = TilesError if text[0] == "-" else CommunicatorError
            raise kind(f"rank {rank}: {text[1:].partition(chr(10))[0]}")
    assert placement is not None
    dtypes, digests = zip(*(text[1:].split("\n") for text in lines), strict=True)
    for rank, digest in enumerate(digests):
        if digest != digests[0]:
            raise CommunicatorError(
                f"rank {rank} gives another type, mesh or root than rank 0, or calls scatter where that calls gather; "
                "make the same call on all ranks"
            )
    return placement, list(dtypes)


def _facts(placement: Placement) -> tuple[object, ...]:
    ends = placement.index.tolist(), placement.label.tolist()
    return placement.shape, placement.grid, placement.cuts, placement.reduction, *ends


def _placed(dist_type: DistType | str, mesh: Any, comm: MPI.Intracomm, root: int) -> Placement:
    placement = placement_of(DistType.of(dist_type), Mesh.of(mesh))
    if comm.size != placement.devices:
        raise CommunicatorError(
            f"the mesh has {placement.devices} devices and the communicator has {comm.size} ranks; give it one rank "
            f"per device, for example with comm.Split"
        )
    require_root(comm, root)
    return placement
