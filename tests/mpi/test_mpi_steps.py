"""Every kind of step, in every realisation, on 2 to 24 ranks, bit for bit and byte for byte."""

from __future__ import annotations

import pytest

pytest.importorskip("mpi4py")

from launch import launch, mpiexec

pytestmark = pytest.mark.skipif(mpiexec() is None, reason="no mpiexec: install the extra redistrib[mpi]")

KINDS = {"dynslice", "allgather", "alltoall", "allpermute", "exchange"}
CALLS = {"Allgather", "Alltoall", "Alltoallw", "Isend", "Irecv", "Neighbor_alltoallw", "put"}


@pytest.mark.parametrize(("ranks", "plans"), [(2, 16), (4, 24), (6, 14), (8, 12), (12, 4), (24, 2)])
def test_results_and_bytes_equal_the_reference(ranks, plans):
    found = launch(ranks, "steps", str(plans)).figures()
    assert found["plans"] == plans
    if ranks in (4, 6, 8):  # small draws need not meet every kind
        assert {name.split()[0] for name in found["ran"]} == KINDS
        assert set(found["calls"]) == CALLS
        assert found["straight"] > 0  # gathers and permutes into the caller's memory go past shared memory
    if ranks in (6, 8):
        assert found["odd_groups"] > 0


@pytest.mark.parametrize(("ranks", "plans"), [(4, 14), (6, 8), (8, 4)])
def test_tiles_between_source_and_target_lie_in_the_target_under_a_tight_limit(ranks, plans):
    found = launch(ranks, "tight", str(plans)).figures()
    assert found["plans"] == plans
    assert found["impossible"] == 0
    assert found["ran"]["alltoall replacing"] > plans
    assert found["ran"]["allpermute replacing"] > 0


def test_counts_beyond_what_mpi_takes_are_split():
    assert launch(4, "steps", "8").figures()["largest_count"] > 3
    assert launch(4, "steps", "8", "3").figures()["largest_count"] == 3
