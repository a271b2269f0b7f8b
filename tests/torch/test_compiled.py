"""`rd.torch.redistribute` inside `torch.compile`, on 2 ranks."""

from __future__ import annotations

from ranks import Ranks


def test_moves_in_compiled_functions() -> None:
    with Ranks(2) as launched:
        assert launched.run("compiled.functions", longest=115.0)[0] == ["cast", "method", "elsewhere"]
