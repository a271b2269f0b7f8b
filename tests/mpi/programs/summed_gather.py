"""Summands from and to a root on 6 ranks: bits of the reference, and the MPI calls of each."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from counting import column
from mpi4py import MPI

from redistrib.api import synthesize
from redistrib.backends.mpi import gather, scatter, to_mpi
from redistrib.backends.mpi.arrays import dtype_of
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.plans import reference
from redistrib.plans.reduction import identity
from redistrib.theory.placement import placement_of

calls: list[str] = []
received: list[int] = []  # bytes from other ranks, by Alltoallw


class Seen(MPI.Intracomm):
    def Bcast(self, *given: Any) -> None:
        calls.append("Bcast")
        super().Bcast(*given)

    def Allgather(self, *given: Any) -> None:
        calls.append("Allgather")
        super().Allgather(*given)

    def Alltoallw(self, send: Any, receive: Any) -> None:
        calls.append("Alltoallw")
        received.append(column(receive[1][0], receive[2], self.rank))
        super().Alltoallw(send, receive)


comm = Seen(MPI.COMM_WORLD)
rank = comm.rank
MESH = Mesh.of("x=2,y=3")
MESHES = (MESH, Mesh(MESH.axes, (3, 1, 5, 0, 2, 4)))
TYPES = ["[4{x}8, 9] sum{y}", "[8, 3{y}9] max{x}", "[8, 9] sum{x,y}", "[8, 9] min{y}", "[] sum{x,y}", "[0, 4] sum{x}"]
DTYPES = ["float32", "bfloat16", "float16", "int8", ">i4", "uint64", "complex64", "bool"]


def whole_type(form: DistType) -> DistType:
    return DistType.of(str(list(form.global_shape)))


def drawn(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    values = np.random.default_rng(1).normal(0, 90, shape)
    if dtype.kind in "iu":
        return (values * 1e3).astype(np.int64).astype(dtype)  # so that sums of int8 wrap
    if dtype.kind == "b":
        return values > 90
    values = values.astype(dtype)
    if values.size and dtype.kind == "f":
        values.flat[0] = np.nan  # which a maximum keeps
    return values


cases = 0
for text in TYPES:
    for dtype in map(dtype_of, DTYPES):
        form = DistType.of(text)
        if (dtype.kind == "c" and form.reduction != "sum") or (dtype.kind == "b" and form.reduction == "sum"):
            continue
        for mesh, root in zip(MESHES, (0, 4), strict=True):
            where = f"{text} {dtype} {mesh} rank {rank}"
            placement = placement_of(form, mesh)
            stack = drawn((placement.summands, *placement.shape), dtype)
            size = dtype.itemsize * placement.tile_size

            apart = np.full(stack.shape, identity(form.reduction, dtype), dtype)
            apart[0] = stack[0]
            calls.clear()
            received.clear()
            tile = scatter(stack[0, ...] if rank == root else None, form, mesh, comm, root=root)
            want = np.asarray(reference.scatter(apart, placement)[rank], dtype)
            assert (tile.dtype, tile.shape, tile.tobytes()) == (dtype, want.shape, want.tobytes()), where
            assert calls == ["Allgather", *["Alltoallw"] * bool(size)], (where, calls)
            assert sum(received) == (0 if rank == root or placement.label[rank] else size), where
            back = gather(tile, form, mesh, comm, root=root)
            assert (back is None) == (rank != root), where
            assert back is None or back.tobytes() == stack[0, ...].tobytes(), where

            tiles = [np.asarray(tile, dtype) for tile in reference.scatter(stack, placement)]
            calls.clear()
            total = gather(tiles[rank], form, mesh, comm, root=root)
            assert calls == ["Allgather", *["Alltoallw"] * (placement.summands if size else 0)], (where, calls)
            if rank == root:
                plan = synthesize(form, whole_type(form), mesh, dtype=dtype.name, order="fixed", machine="exact")
                assert (total.dtype, total.shape) == (dtype, placement.shape), where
                assert total.tobytes() == np.asarray(reference.run(plan, tiles)[root], dtype).tobytes(), where
            cases += 1

for name in ("bfloat16", "float64"):  # minima that MPI lacks, of 6 parts of 7 elements: each rank finds those of one
    plan = synthesize("[7] min{x}", "[7]", {"x": comm.size}, dtype=name, machine="exact")
    stack = drawn((plan.before.summands, *plan.before.shape), dtype_of(name))
    tiles = [np.asarray(tile, dtype_of(name)) for tile in reference.scatter(stack, plan.before)]
    with to_mpi(plan, MPI.COMM_WORLD, transport="packed") as execute:
        assert [step.kind for step in plan.steps] == ["all_reduce"] and execute.transports == ["packed"]
        assert execute(tiles[rank]).tobytes() == reference.run(plan, tiles)[rank].tobytes(), name
if rank == 0:
    print(json.dumps({"cases": cases}))
