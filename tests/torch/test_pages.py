"""What the page and the examples say holds."""

from __future__ import annotations

from ranks import Ranks


def test_the_page(ranks: Ranks) -> None:
    assert ranks.run("pages.page", "torch.md") == [8] * 8


def test_fsdp_to_tensor_parallel(ranks: Ranks) -> None:
    assert "equal" in ranks.run("pages.example", "torch_fsdp_to_tp.py")[0]


def test_trainers_to_samplers(ranks: Ranks) -> None:
    assert "equal" in ranks.run("pages.example", "torch_trainers_to_samplers.py")[7]
