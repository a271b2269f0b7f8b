"""Tiles of unequal size under MPI: every transport moves exactly what is lacking."""

from __future__ import annotations

import pytest

pytest.importorskip("mpi4py")

from launch import launch, mpiexec

DTYPES = ("int16", "int32", "int64", "float32", "float64", "longdouble", "complex64", "complex128", "clongdouble")

pytestmark = pytest.mark.skipif(mpiexec() is None, reason="no mpiexec: install the extra redistrib[mpi]")


@pytest.mark.parametrize("ranks", [4, pytest.param(8, marks=pytest.mark.long)])
def test_shares_travel_as_large_as_they_are(ranks):
    found = launch(ranks, "uneven", timeout=250).figures()
    assert found["received"] == found["bound"] > 0
    assert set(found["ran"]) == {"shared", "packed", "datatypes"}
    assert found["messages"] == [
        "rank 1: the array has shape [2] where the tile is [1]; pass this rank's tile, not the whole array",
        "rank 1 gives another plan than rank 0; give the same on all ranks, a plan for example by "
        "comm.bcast(plan.to_json())",
    ]


@pytest.mark.parametrize("ranks", [4, pytest.param(8, marks=pytest.mark.long)])
def test_pencils_turn(ranks):
    """Some of the arrays, grids and alignments of mpi4py-fft's own tests of pencils, our plans in the place of it."""
    found = launch(ranks, "pencils", "few", "float64", timeout=250).figures()
    assert found["wrong"] == 0
    assert found["transfers"] == 4 + 24


@pytest.mark.parametrize(
    ("ranks", "dtypes"),
    [
        pytest.param(4, DTYPES[4:5], marks=pytest.mark.exhaustive),
        pytest.param(4, DTYPES, marks=pytest.mark.exhaustive),
        pytest.param(8, DTYPES, marks=pytest.mark.exhaustive),
    ],
)
def test_all_pencils_turn(ranks, dtypes):
    """All of them: 684 transfers of a dtype, of which all but a few cut into unequal parts, there and back."""
    found = launch(ranks, "pencils", "all", *dtypes, timeout=3000).figures()
    assert found["wrong"] == 0
    assert found["transfers"] == 684 * len(dtypes)
    assert found["uneven"] > 550 * len(dtypes)


@pytest.mark.long
@pytest.mark.parametrize("ranks", [4, pytest.param(8, marks=pytest.mark.exhaustive)])
def test_pencils_of_every_dtype_turn(ranks):
    found = launch(ranks, "pencils", "few", *DTYPES, timeout=600).figures()
    assert found["wrong"] == 0
    assert found["transfers"] == 28 * len(DTYPES)
