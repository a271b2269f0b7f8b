"""Senders chosen so that no two devices of different hosts send to one another.

Every holder of a tile can send it. Two devices that send to one another share one connection, and on some networks one
of the two tiles then waits for the other. No tile waits where devices send around a ring, or where the sender receives
no tile.
"""

from __future__ import annotations

import numpy as np

from redistrib.synthesis import limits
from redistrib.theory.placement import Int64


def without_swaps(pairs: Int64, tiles: Int64, finals: Int64, hosts: Int64) -> Int64:
    """The pairs of a permute, with other senders where that leaves fewer swaps between hosts.

    A sender is replaced by a device of its host, or changes places with the sender of another pair between hosts. So
    every host sends and receives as many tiles as before, and a tile that stayed on its host still does.

    Args:
        pairs: `[pairs, 2]` senders and receivers, each at most once.
        tiles: `[devices]` number of the tile of each sender.
        finals: `[devices]` number of the final tile of each device; a device that keeps its tile can send it as well.
        hosts: `[devices]` host of each device.

    Returns:
        Pairs with the same receivers in the same order.
    """
    if len(pairs) > limits.SWAPPED_PAIRS:
        return pairs
    source = {receiver: sender for sender, receiver in pairs.tolist()}
    host, tile, final = hosts.tolist(), tiles.tolist(), finals.tolist()
    crossing = [receiver for receiver, sender in source.items() if host[sender] != host[receiver]]
    spare: dict[tuple[int, int], list[int]] = {}  # host and tile -> devices that keep it and send nothing
    for device in sorted(set(range(len(final))) - set(source) - set(source.values())):
        spare.setdefault((host[device], final[device]), []).append(device)
    receivers_of: dict[int, list[int]] = {}
    for receiver in crossing:
        receivers_of.setdefault(tile[source[receiver]], []).append(receiver)

    keeps = {device for devices in spare.values() for device in devices}  # each can send its final tile alone

    def swaps(receiver: int, sender: int) -> bool:
        return source.get(sender) == receiver

    def lacks(sender: int, receiver: int) -> bool:
        return sender in keeps and final[sender] != final[receiver]

    for receiver in crossing:
        sender = source[receiver]
        if not swaps(receiver, sender):
            continue
        others = spare.get((host[sender], final[receiver]))
        if others:
            source[receiver] = others.pop()
            continue
        for other in receivers_of[tile[sender]]:
            far = source[other]
            if other == receiver or host[far] == host[receiver] or host[sender] == host[other]:
                continue
            if lacks(far, receiver) or lacks(sender, other):
                continue
            before = swaps(receiver, sender) + swaps(other, far)
            source[receiver], source[other] = far, sender
            if swaps(receiver, far) + swaps(other, sender) < before:
                break
            source[receiver], source[other] = sender, far
    return np.array([(source[receiver], receiver) for receiver in pairs[:, 1].tolist()], np.int64).reshape(-1, 2)
