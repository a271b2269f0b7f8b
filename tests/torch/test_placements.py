"""Placements, strides and local tensors beside the usual ones, on 8 ranks."""

from __future__ import annotations

import pytest
from ranks import Ranks


@pytest.mark.parametrize("what", ["ordered", "by_dtensor", "strides", "meta"])
def test_what_dtensor_has(ranks: Ranks, what: str) -> None:
    ranks.run(f"placements.{what}")


def test_a_local_tensor_that_does_not_fit_is_refused_everywhere(ranks: Ranks) -> None:
    said = ranks.run("placements.misfits")
    assert all(one == said[0] for one in said)
    assert all("the local tensor has shape" in text for case in said[0] for text in case)
