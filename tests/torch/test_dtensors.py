"""`rd.torch.redistribute` on 8 ranks."""

from __future__ import annotations

import pytest
from ranks import Ranks

# What the random moves must have been drawn with, on some rank.
DRAWN = {
    *(f"rank {k}" for k in range(6)), "uneven shards", "even shards", "empty shards", "an empty tensor",
    "strided shards", "non-contiguous locals", "another mesh", "one mesh", "torch.float8_e4m3fn", "torch.bfloat16",
    "torch.float16", "torch.float32", "torch.float64", "torch.bool", "torch.complex64", "torch.complex128",
    "torch.int8", "torch.uint8", "torch.int32", "torch.int64",
}  # fmt: skip


@pytest.mark.parametrize("seed", [1, 2])
def test_random_moves(ranks: Ranks, seed: int) -> None:
    answers = ranks.run("dtensors.random_moves", seed, 72)
    assert sum(compared for compared, _ in answers) > 8
    drawn = set().union(*(one for _, one in answers))
    assert drawn >= DRAWN, DRAWN - drawn


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
         "are no boxes of the tensor", "MemoryLimitError", "Tensor is no DTensor"),
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
