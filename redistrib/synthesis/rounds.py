"""Senders and rounds for shares of unequal size: a balanced choice of senders and an edge colouring.

A round is one permute: no device sends or receives twice in it, and every share is padded to the largest. By Koenig's
theorem the shares of one size need as many rounds as the busiest device has shares of that size. Rounds with shares of
all sizes are fewest, but need padding.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Callable, Hashable

import numpy as np

from redistrib.plans.transfers import Transfers
from redistrib.theory.boxes import Boxes
from redistrib.theory.placement import Int64, Placement
from redistrib.theory.topology import Topology

MissingBox = tuple[int, int, Int64, Int64]  # receiver, number of the source tile, start, size


def shape_of(box: MissingBox) -> tuple[int, ...]:
    """The extent of a share along every dimension."""
    return tuple(box[3].tolist())


def volume_of(box: MissingBox) -> int:
    """The elements of a share."""
    return math.prod(shape_of(box))


def colour_rounds(
    missing: list[MissingBox],
    before: Placement,
    topology: Topology | None = None,
    kind: Callable[[MissingBox], Hashable] = shape_of,
    stay: bool = False,
) -> Transfers:
    """Choose a sender and a round for every share, by one edge colouring for each kind of shares.

    Args:
        missing: (receiver, number of the source tile, start, size) of every share.
        before: the source placement.
        topology: senders on the receiver's host are preferred.
        kind: the kind of a share; shares of one round are of one kind. Kinds by `volume_of` need no padding either,
            though boxes of several shapes travel in one round.
        stay: prefer senders on the receiver's host also where that takes more rounds, then hosts that send few shares
            to other hosts.
    """
    holders = _holders(before)
    kinds: dict[Hashable, list[MissingBox]] = defaultdict(list)
    for row in sorted(missing, key=shape_of, reverse=True):
        kinds[kind(row)].append(row)
    src: list[int] = []
    rounds: list[int] = []
    placed: list[MissingBox] = []
    base = 0
    for rows in kinds.values():
        senders = _balanced_senders(rows, holders, topology, stay)
        colours = edge_colouring([(s, row[0]) for s, row in zip(senders, rows, strict=True)])
        src += senders
        placed += rows
        rounds += [base + colour for colour in colours]
        base += max(colours) + 1
    return _table(src, placed, rounds, before.rank)


def padded_rounds(missing: list[MissingBox], before: Placement, topology: Topology | None = None) -> Transfers:
    """Choose senders and the fewest rounds for shares of all sizes together, the largest ones side by side.

    Each round is a heaviest matching of the remaining shares, among the matchings that cover every device with as many
    remaining shares as rounds. Such a matching exists (Koenig), so the number of rounds is the least for these senders.
    Arguments as for `colour_rounds`; no two shares may have one sender and one receiver.
    """
    from scipy.optimize import linear_sum_assignment  # slow to import, seldom needed

    # An order independent of device numbers: by the share, then by the tile of the receiver.
    held = before.number
    missing = sorted(missing, key=lambda row: (-volume_of(row), row[1], row[2].tolist(), shape_of(row), held[row[0]]))
    senders = _balanced_senders(missing, _holders(before), topology)
    src, dst = _by_appearance(senders), _by_appearance([row[0] for row in missing])
    left = np.zeros((max(src) + 1, max(dst) + 1))
    left[src, dst] = [volume_of(row) for row in missing]
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
    return _table(senders, missing, number[src, dst].tolist(), before.rank)


def _by_appearance(devices: list[int]) -> list[int]:
    """The devices renumbered in the order of their first appearance."""
    number: dict[int, int] = {}
    return [number.setdefault(device, len(number)) for device in devices]


def _holders(before: Placement) -> dict[int, list[int]]:
    holders: dict[int, list[int]] = defaultdict(list)
    for device, tile in enumerate(before.number.tolist()):
        holders[tile].append(device)
    return holders


def _table(src: list[int], placed: list[MissingBox], rounds: list[int], rank: int) -> Transfers:
    receiver, start, size = (np.array([row[k] for row in placed], dtype=np.int64) for k in (0, 2, 3))
    box = Boxes(start.reshape(len(placed), rank), size.reshape(len(placed), rank))
    return Transfers(np.array(src, dtype=np.int64), receiver, box, np.array(rounds, dtype=np.int64))


def _balanced_senders(
    rows: list[MissingBox], holders: dict[int, list[int]], topology: Topology | None, stay: bool = False
) -> list[int]:
    """One sender per share, so that the busiest sender has the fewest shares.

    Among these choices a sender is on the receiver's host where possible, or on a torus as near to it as possible.

    A device holds one tile, so the shares of different tiles have different senders and are assigned separately.
    """
    hosts, torus = (None, None) if topology is None else (topology.hosts, topology.torus)
    by_tile: dict[int, list[int]] = defaultdict(list)
    receives: dict[int, int] = defaultdict(int)
    for k, row in enumerate(rows):
        by_tile[row[1]].append(k)
        receives[row[0]] += 1
    # The busiest receiver sets the number of rounds, unless the holders of some tile send more shares each.
    most = max(max(receives.values()), *(-(-len(shares) // len(holders[tile])) for tile, shares in by_tile.items()))
    chosen = [-1] * len(rows)
    out: dict[int, int] = defaultdict(int)  # shares that each host sends to others
    for tile, shares in by_tile.items():
        load = dict.fromkeys(holders[tile], 0)
        if torus is not None:
            able = np.array(holders[tile])
            hops = torus.hops(able[:, None], np.array([rows[k][0] for k in shares])[None, :])
            sent = np.zeros(len(able), dtype=np.int64)
            for k, away in zip(shares, hops.T, strict=True):
                busy = 0 if stay else (sent >= most) * (1 + int(hops.max()))
                best = int(np.lexsort((sent, away + busy))[0])
                chosen[k] = int(able[best])
                sent[best] += 1
        elif hosts is not None:
            near: dict[int, list[int]] = defaultdict(list)
            for device in holders[tile]:
                near[int(hosts[device])].append(device)
            for k in shares:
                device = min(near[int(hosts[rows[k][0]])], key=load.__getitem__, default=-1)
                if device >= 0 and (stay or load[device] < most):
                    chosen[k] = device
                    load[device] += 1
        left = [k for k in shares if chosen[k] < 0]
        if hosts is not None and stay:
            for k in left:
                chosen[k] = min(load, key=lambda device: (out[int(hosts[device])], load[device]))
                load[chosen[k]] += 1
                out[int(hosts[chosen[k]])] += 1
            continue
        queue = [(count, device) for device, count in load.items()]
        heapq.heapify(queue)
        for k in left:
            count, device = queue[0]
            chosen[k] = device
            heapq.heapreplace(queue, (count + 1, device))
    return chosen


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
