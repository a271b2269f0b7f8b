"""Scatter from and gather to a root on 6 ranks; prints the MPI calls of each."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from mpi4py import MPI

from redistrib.backends.mpi import gather, scatter
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.plans.reference import tile_of

calls: list[str] = []


class Seen(MPI.Intracomm):
    """Notes every method called that talks to other ranks."""

    def __getattribute__(self, name: str) -> Any:
        if name[0].isalpha() and not name.startswith("Get_") and callable(getattr(MPI.Intracomm, name, None)):
            calls.append(name)
        return super().__getattribute__(name)


comm = Seen(MPI.COMM_WORLD)
rank = comm.rank
mesh = Mesh.of("x=2,y=3")
turned = Mesh(mesh.axes, (3, 1, 5, 0, 2, 4))
counts = []
names: set[str] = set()
for dtype in ("float64", "bfloat16", "uint8"):
    for text in ("[4{x}8, 3{y}9]", "[8, 3{y}9]", "[8, 9]", "[8, 9]", "[4{x}8, 9]", "[0{y}0, 4]"):
        for where in (mesh, turned):
            for root in (0, 4):
                kind = DistType.of(text)
                whole = np.arange(np.prod(kind.global_shape)).astype("int64").reshape(kind.global_shape)
                if dtype == "bfloat16":
                    import ml_dtypes

                    whole = whole.astype(ml_dtypes.bfloat16)
                else:
                    whole = whole.astype(dtype)
                calls.clear()
                tile = scatter(whole if rank == root else None, kind, where, comm, root=root)
                counts.append(len(calls))
                names.update(calls)
                want = tile_of(whole, kind, where, rank)
                assert tile.dtype == want.dtype, (text, dtype)
                assert tile.shape == want.shape, (text, dtype)
                assert tile.tobytes() == want.tobytes(), (text, dtype, rank)
                calls.clear()
                back = gather(tile, kind, where, comm, root=root)
                counts.append(len(calls))
                names.update(calls)
                if rank == root:
                    assert back is not None
                    assert back.dtype == whole.dtype
                    assert back.tobytes() == whole.tobytes(), (text, dtype)
                else:
                    assert back is None
few = Mesh.of("x=2", (1, 5))  # all other ranks are left out
tile = scatter(np.arange(4) if rank == 0 else None, "[2{x}4]", few, comm)
assert (tile is None) == (rank not in (1, 5)) and (tile is None or tile.tolist() == [[0, 1], [2, 3]][rank // 5])
back = gather(tile, "[2{x}4]", few, comm, root=2)
assert (back is None) == (rank != 2) and (back is None or back.tolist() == [0, 1, 2, 3])
most = MPI.COMM_WORLD.allreduce(max(counts), MPI.MAX)
least = MPI.COMM_WORLD.allreduce(min(counts), MPI.MIN)
if rank == 0:
    print(json.dumps({"most": most, "least": least, "calls": sorted(names)}))
