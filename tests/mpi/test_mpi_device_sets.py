"""Plans between ranks that differ: ranks without data pass None."""

from __future__ import annotations

import pytest

pytest.importorskip("mpi4py")

from launch import launch, mpiexec

pytestmark = pytest.mark.skipif(mpiexec() is None, reason="no mpiexec: install the extra redistrib[mpi]")


def test_ranks_without_data_pass_none():
    found = launch(8, "device_sets", timeout=250).figures()
    assert found["plans"] > 30
    assert {name.split()[0] for name in found["ran"]} == {"shared", "packed", "datatypes"}
    assert {name.split()[1] for name in found["ran"]} >= {"allgather", "alltoall", "exchange"}
    assert found["messages"] == [
        "rank 0: the array is None where this rank's tile has shape [4, 4]; pass it",
        "rank 4: an array is given where this rank holds nothing; pass None",
    ]
