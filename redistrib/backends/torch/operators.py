"""The operators that the library registers with PyTorch."""

from __future__ import annotations

import torch

_LIBRARY = torch.library.Library("redistrib", "DEF")
_LIBRARY.define("on_rank(Tensor(a) x, int rank) -> Tensor(a)")


def _on_rank(x: torch.Tensor, rank: int) -> torch.Tensor:
    return torch.ops.aten.alias(x)


_LIBRARY.impl("on_rank", _on_rank, "CompositeImplicitAutograd")


def on_rank(x: torch.Tensor, rank: int) -> torch.Tensor:
    """The tensor itself, for a compiler: the number stays in the graph that it traces, and nothing is computed.

    A compiled move takes the part of its rank, by a number that is not in the graph of DTensors. PyTorch's caches on
    disk know a program by that graph, and would give a rank the program of another one.
    """
    result: torch.Tensor = torch.ops.redistrib.on_rank(x, rank)
    return result
