"""Rounds for shares of unequal size, by an edge colouring.

A round is one permute: no device sends or receives twice in it, and every share is padded to the largest. By Koenig's
theorem the shares of one size need as many rounds as the busiest device has shares of that size. Rounds with shares of
all sizes are fewest, but need padding.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence

import numpy as np

from redistrib.plans.senders import Senders
from redistrib.plans.transfers import NeededParts, Transfers
from redistrib.theory.boxes import Boxes
from redistrib.theory.placement import Placement
from redistrib.theory.topology import Topology


def shapes(boxes: Boxes) -> list[tuple[int, ...]]:
    """The extent of every box."""
    return list(map(tuple, boxes.size.tolist()))


def colour_rounds(
    missing: NeededParts,
    before: Placement,
    topology: Topology | None = None,
    kind: Callable[[Boxes], Sequence[Hashable]] = shapes,
    stay: bool = False,
) -> Transfers:
    """Choose a sender and a round for every share, by one edge colouring for each kind of shares.

    Args:
        missing: the shares.
        before: the source placement.
        topology: senders on the receiver's host are preferred.
        kind: the kind of every share; shares of one round are of one kind. Kinds by volume need no padding either,
            though boxes of several shapes travel in one round.
        stay: prefer senders on the receiver's host also where that takes more rounds, then hosts that send few shares
            to other hosts.
    """
    extent, names = shapes(missing.box), kind(missing.box)
    kinds: dict[Hashable, list[int]] = defaultdict(list)
    for row in sorted(range(len(missing)), key=extent.__getitem__, reverse=True):
        kinds[names[row]].append(row)
    senders: list[int] = []
    rounds: list[int] = []
    base = 0
    for rows in kinds.values():
        several = missing[np.array(rows)]
        chosen = _senders(several, before, topology, stay)
        colours = edge_colouring(list(zip(chosen, several.receiver.tolist(), strict=True)))
        senders += chosen
        rounds += [base + colour for colour in colours]
        base += max(colours) + 1
    placed = missing[np.array([row for rows in kinds.values() for row in rows], dtype=np.int64)]
    return Transfers(np.array(senders, dtype=np.int64), placed.receiver, placed.box, np.array(rounds, dtype=np.int64))


def padded_rounds(missing: NeededParts, before: Placement, topology: Topology | None = None) -> Transfers:
    """Choose senders and the fewest rounds for shares of all sizes together, the largest ones side by side.

    Each round is a heaviest matching of the remaining shares, among the matchings that cover every device with as many
    remaining shares as rounds. Such a matching exists (Koenig), so the number of rounds is the least for these senders.
    Arguments as for `colour_rounds`; no two shares may have one sender and one receiver.
    """
    from scipy.optimize import linear_sum_assignment  # slow to import, seldom needed

    # An order independent of device numbers: by the share, then by the tile of the receiver.
    columns = missing.tile, missing.box.start, missing.box.size, before.number[missing.receiver]
    keys = list(zip([-n for n in missing.box.volumes()], *(column.tolist() for column in columns), strict=True))
    missing = missing[np.array(sorted(range(len(keys)), key=keys.__getitem__))]
    senders = _senders(missing, before, topology)
    src, dst = _by_appearance(senders), _by_appearance(missing.receiver.tolist())
    left = np.zeros((max(src) + 1, max(dst) + 1))
    left[src, dst] = missing.box.volumes()
    number = np.zeros(left.shape, dtype=np.int64)
    to_come = int(max((left > 0).sum(axis=0).max(), (left > 0).sum(axis=1).max()))
    more_than_any = 1 + left.max() * min(left.shape)
    for turn in range(to_come):
        remaining = left > 0
        busiest = to_come - turn
        urgent = (remaining.sum(axis=1) == busiest)[:, None].astype(int) + (remaining.sum(axis=0) == busiest)
        row, column = linear_sum_assignment(left + more_than_any * urgent * remaining, maximize=True)
        matched = remaining[row, column]
        number[row[matched], column[matched]] = turn
        left[row[matched], column[matched]] = 0
    return Transfers(np.array(senders, dtype=np.int64), missing.receiver, missing.box, number[src, dst])


def _by_appearance(devices: list[int]) -> list[int]:
    """The devices renumbered in the order of their first appearance."""
    number: dict[int, int] = {}
    return [number.setdefault(device, len(number)) for device in devices]


def _senders(missing: NeededParts, before: Placement, topology: Topology | None, stay: bool = False) -> list[int]:
    """One sender per share, on or near the receiver's host, so that the busiest sender has the fewest shares."""
    side, torus = ({}, None) if topology is None else (dict(enumerate(topology.host)), topology.torus)
    chooser = Senders(side, torus, "stay" if stay else "spread")
    return chooser.of(before, range(before.devices), missing.receiver, missing.tile, [1] * len(missing))


def edge_colouring(edges: list[tuple[int, int]]) -> list[int]:
    """Colour the edges of a bipartite multigraph with as many colours as its largest degree (Koenig 1916).

    Args:
        edges: (left, right) vertices; the two sides are numbered independently.

    Returns:
        One colour per edge, from 0; no two edges at a vertex share one.

    >>> edge_colouring([(0, 0), (0, 1), (1, 0)])
    [1, 0, 0]
    """
    left: dict[int, dict[int, int]] = defaultdict(dict)  # vertex -> colour -> edge
    right: dict[int, dict[int, int]] = defaultdict(dict)
    colours = [-1] * len(edges)

    def free(used: dict[int, int]) -> int:
        colour = 0
        while colour in used:
            colour += 1
        return colour

    for e, (u, v) in enumerate(edges):
        a, b = free(left[u]), free(right[v])
        if a != b:
            # Swap a and b along the path of these colours that starts at v: it cannot reach u.
            path, side, vertex, colour = [], right, v, a
            while colour in side[vertex]:
                edge = side[vertex][colour]
                path.append(edge)
                side = left if side is right else right
                vertex = edges[edge][0] if side is left else edges[edge][1]
                colour = b if colour == a else a
            for edge in path:
                del left[edges[edge][0]][colours[edge]], right[edges[edge][1]][colours[edge]]
            for edge in path:
                colours[edge] = b if colours[edge] == a else a
                left[edges[edge][0]][colours[edge]] = edge
                right[edges[edge][1]][colours[edge]] = edge
        colours[e] = a
        left[u][a] = e
        right[v][a] = e
    return colours
