"""What ranks are given, looked at before it is used."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("mpi4py")

from redistrib.backends.mpi.arrays import absent_tile, tile_of
from redistrib.errors import TilesError
from tests.messages import exactly


@pytest.mark.parametrize("dtype", ["int16", "float64", "complex64"])
def test_a_rank_that_holds_nothing_has_no_elements_of_the_type(dtype: str) -> None:
    found = absent_tile(None, "the tile", np.dtype(dtype))
    assert (found.size, found.dtype) == (0, np.dtype(dtype))
    with pytest.raises(TilesError, match=exactly("the tile is given where this rank holds nothing; pass None")):
        absent_tile(np.zeros(0), "the tile", np.dtype(dtype))


def test_a_mask_is_not_left_behind() -> None:
    masked = np.ma.masked_array(np.ones(4), [True, False, True, False])
    why = exactly("the tile is a masked array, whose mask MPI would not send; give .filled(), and .mask beside it")
    with pytest.raises(TilesError, match=why):
        tile_of(masked, "the tile", (4,), np.dtype(np.float64), writable=False)
