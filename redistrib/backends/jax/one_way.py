"""A permute in two, so that no two devices of different processes send to one another at the same time.

XLA for CPUs opens one connection for every two devices of different processes. A receiver says on it that it is
ready. If it also sends a tile on that connection, its word may wait behind the tile: then the two tiles travel one
after the other, and half of the link idles. So a permute is split into two turns, and in each turn every host sends
half of its tiles and receives half. Where two turns would take longer, because a host has only one such tile, another
device of the host receives the tile and hands it on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from redistrib.theory.placement import Int64

_WORTH = 1.25  # times the load of one permute: above, the two turns take longer than the waiting


def two_turns(pairs: Int64, processes: Sequence[int]) -> tuple[Int64, Int64] | None:
    """The pairs of a permute in two turns; None where one is as good.

    Args:
        pairs: `[pairs, 2]` senders and receivers, each at most once.
        processes: of every device.
    """
    sent = {(a, b) for a, b in pairs.tolist() if processes[a] != processes[b]}
    swaps = [(a, b) for a, b in sent if a < b and (b, a) in sent]
    if not swaps:
        return None
    first = _oriented(sorted(swaps), processes)
    turns = [first, {(b, a) for a, b in first}]
    for pair in sorted(sent - turns[0] - turns[1]):
        min(turns, key=lambda turn: _load({*turn, pair}, processes)).add(pair)
    if sum(_load(turn, processes) for turn in turns) > _WORTH * _load(sent, processes):
        return None
    second = np.array([tuple(pair) in turns[1] for pair in pairs.tolist()])
    return pairs[~second], pairs[second]


def relayed(pairs: Int64, processes: Sequence[int]) -> tuple[Int64, Int64] | None:
    """The pairs of a permute without swaps, some to other receivers, and those that then hand on what they received.

    A device may take in a tile for another if it receives none itself, as one that keeps its own tile. Tiles are handed
    on within a process, so each link between processes carries as much as before. None where no two devices of
    different processes send to one another, or where no device can take in a tile. Arguments as for `two_turns`.
    """
    receiver = dict(pairs.tolist())
    swaps = sorted((a, b) for a, b in receiver.items() if processes[a] != processes[b] and receiver.get(b) == a)
    free = sorted(set(range(len(processes))) - set(receiver.values()))
    handed = []
    for a, b in swaps:
        if receiver[a] != b or receiver[b] != a:
            continue  # the other direction goes through a third device already
        ways = ((s, r, m) for s, r in ((a, b), (b, a)) for m in free if processes[m] == processes[r])
        way = next((way for way in ways if receiver.get(way[2]) != way[0]), None)
        if way is None:
            return None
        sender, last, middle = way
        receiver[sender] = middle
        handed.append((middle, last))
        free.remove(middle)
    first = np.array([(a, receiver[a]) for a in pairs[:, 0].tolist()], np.int64).reshape(-1, 2)
    return (first, np.array(handed, np.int64)) if handed else None


def _oriented(swaps: Sequence[tuple[int, int]], processes: Sequence[int]) -> set[tuple[int, int]]:
    """One direction of each swap, so that every process sends as often as it receives, or once more or less.

    Processes are vertices, swaps are edges. Processes with an odd number of swaps are joined to one more vertex. Then
    all degrees are even, so a walk over unused edges can end only where it began, and each edge is directed as it is
    walked.
    """
    edges: list[tuple[int, int, tuple[int, int] | None]] = [(processes[a], processes[b], (a, b)) for a, b in swaps]
    degree = Counter(process for a, b, _ in edges for process in (a, b))
    outside = -1 - max(processes)
    edges += [(outside, process, None) for process, count in degree.items() if count % 2]
    unused: dict[int, list[int]] = {}
    for number, (a, b, _) in enumerate(edges):
        for process in (a, b):
            unused.setdefault(process, []).append(number)
    walked: set[int] = set()
    directed: set[tuple[int, int]] = set()
    for start in unused:
        process = start
        while unused[process]:
            number = unused[process].pop()
            if number in walked:
                continue
            walked.add(number)
            a, b, swap = edges[number]
            if swap is not None:
                directed.add(swap if process == a else swap[::-1])
            process = b if process == a else a
    return directed


def _load(pairs: set[tuple[int, int]], processes: Sequence[int]) -> int:
    """The most tiles that a process sends, or receives."""
    ends = np.array([(processes[a], processes[b]) for a, b in pairs], dtype=np.int64).reshape(-1, 2)
    return max((int(np.bincount(column).max()) for column in ends.T if len(column)), default=0)
