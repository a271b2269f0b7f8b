"""What the links of a torus carry in a compiled program, read off its HLO: one routing rule for all programs.

The rule is that of `redistrib.theory.torus`: messages are cut evenly over all orders of the dimensions. The pairs of a
permute, and all pairs of members of an all-to-all, are messages. In an all-gather each member's operand goes to the
others along a tree, in a reduce-scatter the summands of each part come together along one, and an all-reduce does
both. The order of members in a group says nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from redistrib.backends.jax.measure.inspect import HloCollective, inspect
from redistrib.theory.torus import Loads, Torus


def carried(collective: HloCollective, torus: Torus) -> Loads:
    """`[links]` bytes, times `torus.unit`, that one run of a collective takes over each link."""
    if collective.kind == "collective-permute":
        sender, receiver = np.array(collective.pairs, dtype=np.int64).reshape(-1, 2).T
        return torus.sent(sender, receiver, collective.operand_bytes)
    total = torus.sent(*np.zeros((2, 0), dtype=np.int64))
    for group in collective.groups:
        groups, size = np.array([group], dtype=np.int64), collective.operand_bytes
        match collective.kind:
            case "all-gather":
                total = total + torus.gathered(groups) * size
            case "reduce-scatter":
                total = total + torus.gathered(groups) * (size / len(group))
            case "all-reduce":
                total = total + torus.gathered(groups) * (2 * size / len(group))
            case "all-to-all":
                sender, receiver = (side.reshape(-1) for side in np.meshgrid(groups, groups, indexing="ij"))
                total = total + torus.sent(sender, receiver, size / len(group))
            case _:
                raise ValueError(f"no route is known for {collective.kind}")
    return total


def busiest(compiled: Any, torus: Torus) -> dict[str, Any]:
    """Bytes over the busiest link: of each collective, one after the other, and of the program as a whole."""
    loads = [(each, each.times * carried(each, torus) / torus.unit) for each in inspect(compiled).collectives]
    return {
        "in_turn": sum(float(load.max(initial=0.0)) for _, load in loads),
        "whole": float(sum(load for _, load in loads).max(initial=0.0)) if loads else 0.0,
        "collectives": [
            [each.kind, len(each.pairs) or len(each.groups[0]), each.times, float(load.max(initial=0.0))]
            for each, load in loads
        ],
    }
