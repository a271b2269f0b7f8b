"""Every kind of step, in every transport, on 2 to 24 ranks, bit for bit and byte for byte."""

from __future__ import annotations

import pytest

pytest.importorskip("mpi4py")

from launch import launch, mpiexec

pytestmark = pytest.mark.skipif(mpiexec() is None, reason="no mpiexec: install the extra redistrib[mpi]")

KINDS = {"dynslice", "allgather", "alltoall", "allpermute", "exchange"}
CALLS = {"Allgather", "Alltoall", "Neighbor_alltoallw", "put"}


@pytest.mark.parametrize(("ranks", "plans"), [(2, 16), (4, 24), (6, 14), (8, 12), (12, 4), (24, 2)])
def test_results_and_bytes_equal_the_reference(ranks, plans):
    found = launch(ranks, "steps", str(plans)).figures()
    assert found["plans"] == plans
    if ranks in (4, 6, 8):  # small draws need not meet every kind
        assert {name.split()[0] for name in found["ran"]} == KINDS
        assert set(found["calls"]) == CALLS
    if ranks in (6, 8):
        assert found["odd_groups"] > 0


@pytest.mark.parametrize(("ranks", "plans"), [(4, 7), (4, 28), (6, 16), (8, 8)])
def test_a_limit_without_room_between_source_and_target_takes_the_direct_exchange(ranks, plans):
    found = launch(ranks, "tight", str(plans)).figures()
    assert found == {"ran": {"direct": plans}, "plans": plans}


def test_datatypes_have_counts_and_offsets_beyond_31_bits():
    from redistrib.backends.mpi.datatypes import placed_type, run_type, strided_type
    from redistrib.plans.strided import Strided

    assert run_type(2**33 + 5).Get_size() == 2**33 + 5
    columns = Strided(2, (2**32, 3), (2**13, 8), 2**35)
    assert strided_type([columns]).Get_size() == 6 * 2**32
    assert placed_type([columns])[0] == 0
    near = Strided(2, (2**32, 3), (2**13, 8), 6)
    at, datatype = placed_type([near])
    assert at == 6
    assert datatype.Get_size() == 6 * 2**32
    assert datatype.Get_extent() == (0, (2**32 - 1) * 2**13 + 2 * 8 + 2)
    assert strided_type([near, columns]).Get_true_extent() == (6, 2**35 - 6 + (2**32 - 1) * 2**13 + 2 * 8 + 2)
