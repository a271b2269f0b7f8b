"""`rd.torch.redistribute` on 8 ranks."""

from __future__ import annotations

import pytest
from ranks import Ranks


@pytest.mark.parametrize("seed", [1, 2])
def test_random_moves(ranks: Ranks, seed: int) -> None:
    assert sum(ranks.run("dtensors.random_moves", seed, 72)) > 8


def test_random_sums(ranks: Ranks) -> None:
    ranks.run("dtensors.random_sums", 1, 60)


def test_gradients_equal_those_of_one_process(ranks: Ranks) -> None:
    ranks.run("dtensors.gradients", 1, 16)


def test_shard_orders(ranks: Ranks) -> None:
    said = ranks.run("dtensors.orders")
    assert all(one == said[0] for one in said)
    for text, word in zip(
        said[0],
        ("the shard order", "2 placements for the mesh", "a tensor of rank 2 does not have", "is a target where",
         "is sharding after 3 other shards", "are no boxes of the tensor", "MemoryLimitError", "Tensor is no DTensor"),
        strict=True,
    ):  # fmt: skip
        assert word in text


def test_other_calls_are_errors_on_every_rank(ranks: Ranks) -> None:
    said = ranks.run("dtensors.other_calls")
    assert all(one == said[0] for one in said)
    for text, word in zip(
        said[0],
        ("rank 2 makes another call than rank 0", "rank 4 makes another call", "rank 3: the local"),
        strict=True,
    ):
        assert word in text
