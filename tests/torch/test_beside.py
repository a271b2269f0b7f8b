"""What `DTensor.redistribute` gives for the same call, with gradients and options, on 8 ranks."""

from __future__ import annotations

import pytest
from ranks import Ranks


@pytest.mark.parametrize("what", ["gradients", "unchanged", "options", "kinds", "under_way"])
def test_what_dtensor_gives(ranks: Ranks, what: str) -> None:
    ranks.run(f"beside.{what}")


def test_a_partial_gradient_is_scattered(ranks: Ranks) -> None:
    """The gradient of a product is a partial sum, which goes to shards at once: DTensor all-reduces nothing."""
    ours, theirs = ranks.run("beside.collectives")[0]
    assert not any("all_reduce" in name for name in ours), ours
    assert any("reduce_scatter" in name for name in theirs), theirs


def test_ranks_that_do_not_ascend(ranks: Ranks) -> None:
    """When PyTorch gathers in the order of the mesh, `docs/torch.md` no longer says that it does not."""
    assert ranks.run("beside.turned") == [(True, False)] * 8
