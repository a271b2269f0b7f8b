"""From an array on one rank to tiles, and back: two MPI calls, and one more for each further partial sum gathered."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from redistrib.backends.mpi.arrays import dtype_of, flat, tile_of
from redistrib.backends.mpi.consistency import require_communicator, require_root
from redistrib.backends.mpi.datatypes import run_type, strided_type
from redistrib.backends.ranks.arguments import require_rank_each
from redistrib.digests import digest_of_parts
from redistrib.errors import RedistribError, TilesError
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.launches.agreement import agree
from redistrib.plans.dtypes import default_accumulation, require_reduction
from redistrib.plans.reduction import Accumulator, identity
from redistrib.plans.strided import runs_in
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

    def here(placement: Placement) -> npt.NDArray[Any] | None:
        return _sendable(array, "the global array", placement.shape, dtype, whole=True) if comm.rank == root else None

    placement, whole, dtypes = _agreed("scatter", dist_type, mesh, comm, root, here)
    element_type = dtype_of(dtypes[root])
    _require_reduction(placement, element_type)
    tile = None if placement.nowhere[comm.rank] else np.empty(placement.box(comm.rank).size, element_type)
    if tile is not None and placement.label[comm.rank]:
        tile[...] = identity(placement.reduction or "sum", element_type)
    if placement.tile_size * element_type.itemsize:
        receivers = placement.holders[placement.label[placement.holders] == 0].tolist()
        out = {} if whole is None else _boxes(placement, element_type.itemsize, receivers)
        _move(comm, whole, out, tile, _own_tile(tile, comm.rank in receivers, root))
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

    def here(placement: Placement) -> npt.NDArray[Any] | None:
        if not placement.nowhere[comm.rank]:
            return _sendable(tile, "the tile", placement.box(comm.rank).size, None)
        if tile is not None:
            raise TilesError("a tile is given where the mesh leaves this rank out; pass None")
        return None

    placement, local, dtypes = _agreed("gather", dist_type, mesh, comm, root, here)
    first = int(placement.holders[0])
    element_type = dtype_of(dtypes[first])
    for rank in placement.holders.tolist():
        if (dtype := dtype_of(dtypes[rank])) != element_type:
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
    first = _first_holders(placement, summand)
    into = {} if whole is None else _boxes(placement, whole.itemsize, first)
    _move(comm, tile, _own_tile(tile, comm.rank in first, root), whole, into)


_Datatypes = dict[int, MPI.Datatype]  # by rank


def _move(
    comm: MPI.Intracomm,
    source: npt.NDArray[Any] | None,
    out: _Datatypes,
    target: npt.NDArray[Any] | None,
    into: _Datatypes,
) -> None:
    """One `Alltoallw`, whose messages all go from the root or all go to the root."""
    zeros, ranks = [0] * comm.size, range(comm.size)
    sides = [
        [None if array is None else flat(array), ([int(rank in types) for rank in ranks], zeros),
         [types.get(rank, MPI.BYTE) for rank in ranks]]
        for array, types in ((source, out), (target, into))
    ]  # fmt: skip
    comm.Alltoallw(*sides)
    for datatype in [*out.values(), *into.values()]:
        datatype.Free()


def _own_tile(tile: npt.NDArray[Any] | None, travels: bool, root: int) -> _Datatypes:
    """The datatype of a tile that goes to the root or comes from it; none of an empty tile."""
    return {root: run_type(tile.nbytes)} if tile is not None and tile.nbytes and travels else {}


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


_SHORT = 512  # bytes of a text that all ranks learn by one `Allgather`


def _sendable(value: Any, subject: str, shape: tuple[int, ...], dtype: Any, *, whole: bool = False) -> npt.NDArray[Any]:
    """An array of a dtype that has a name to send."""
    if value is None:
        raise TilesError(f"{subject} is None; pass an array of shape {list(shape)}")
    element_type = np.asarray(value).dtype if dtype is None else dtype_of(str(dtype))
    if element_type.hasobject or dtype_of(_name(element_type)) != element_type:
        raise TilesError(f"{subject} has dtype {element_type}, which has no name to send; view it as bytes")
    return tile_of(value, subject, shape, element_type, writable=False, whole=whole)


def _name(dtype: np.dtype[Any]) -> str:
    return dtype.name if dtype.kind == "V" else dtype.str


def _texts(comm: MPI.Intracomm, text: str) -> list[str]:
    """The texts of all ranks; one `Allgather`, and one more if a text is longer than `_SHORT`."""
    data, longest = text.encode(), _SHORT
    while True:
        mine, rows = np.zeros(8 + longest, np.uint8), np.empty((comm.size, 8 + longest), np.uint8)
        mine[:8] = np.array([len(data)]).view(np.uint8)
        mine[8 : 8 + len(data)] = np.frombuffer(data[:longest], np.uint8)
        comm.Allgather(mine, rows)
        lengths = rows[:, :8].copy().view(np.int64).reshape(-1).tolist()
        if max(lengths) <= longest:
            return [row[8 : 8 + length].tobytes().decode() for row, length in zip(rows, lengths, strict=True)]
        longest = max(lengths)


def _agreed(
    function: str,
    dist_type: DistType | str,
    mesh: Any,
    comm: MPI.Intracomm,
    root: int,
    here: Callable[[Placement], npt.NDArray[Any] | None],
) -> tuple[Placement, npt.NDArray[Any] | None, list[str]]:
    """The placement of a call that all ranks make alike, the array of this rank, and the names of the dtypes of all.

    Args:
        function: the name of the function that is called.
        dist_type, mesh, comm, root: as for `scatter`.
        here: the array of this rank, or None; raises its problem.

    Raises:
        RedistribError: on every rank, if a rank has an error, or their arguments differ.
    """
    require_communicator(comm)
    placement, array, problem, call = None, None, None, dict[str, str]()
    try:
        placement = _placed(dist_type, mesh, comm, root)
        call = {"type, mesh or root": digest_of_parts([*_facts(placement), root])}
        array = here(placement)
    except RedistribError as error:
        problem = error
    dtype = "" if array is None else _name(array.dtype)
    dtypes = agree(partial(_texts, comm), comm.rank, problem, call, words=function, beside=dtype)
    assert placement is not None
    return placement, array, dtypes


def _facts(placement: Placement) -> tuple[object, ...]:
    ends = placement.index.tolist(), placement.label.tolist()
    return placement.shape, placement.grid, placement.cuts, placement.reduction, *ends


def _placed(dist_type: DistType | str, mesh: Any, comm: MPI.Intracomm, root: int) -> Placement:
    placement = placement_of(DistType.of(dist_type), Mesh.of(mesh))
    require_rank_each("the mesh has", placement.devices, "the communicator", comm.size, "comm.Split")
    require_root(comm, root)
    return placement
