"""Plans in parts under MPI: right, nothing sent twice, and begun without waiting."""

from __future__ import annotations

import pytest

pytest.importorskip("mpi4py")

from launch import launch, mpiexec

pytestmark = pytest.mark.skipif(mpiexec() is None, reason="no mpiexec: install the extra redistrib[mpi]")


def test_parts_travel_at_once_and_bring_what_the_whole_does():
    found = launch(4, "parts").figures()
    assert found["plans"] > 10
    kinds = {"dynslice", "allgather", "alltoall", "allpermute", "exchange"}
    assert {name.split()[0] for name in found["ran"]} == kinds
    assert {"Iallgather", "Ialltoallw", "Ineighbor_alltoallw", "Isend"} <= set(found["calls"])
