"""Senders and rounds for shares of unequal size: a balanced choice of senders and an edge colouring.

A round is one permute, so its shares have one size and no device sends or receives twice in it. By Koenig's theorem the
shares of one size need as many rounds as the busiest device has of them.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from redistrib.plans.steps import Shares
from redistrib.theory.semantics import Int64, Placement

Lack = tuple[int, int, Int64, Int64]
FORBIDDEN = 1e9


def colour_rounds(lacking: list[Lack], before: Placement, hosts: Int64 | None = None) -> Shares:
    """Choose a sender for every share, and rounds, one colouring per share size.

    Args:
        lacking: (receiver, number of the source tile, start, size) of every share.
        before: who holds which source tile.
        hosts: `[devices]` host numbers; a sender on the receiver's host is preferred.
    """
    holders: dict[int, list[int]] = defaultdict(list)
    for device, tile in enumerate(before.number.tolist()):
        holders[tile].append(device)
    by_size: dict[tuple[int, ...], list[Lack]] = defaultdict(list)
    for row in lacking:
        by_size[tuple(row[3].tolist())].append(row)
    src: list[int] = []
    rounds: list[int] = []
    placed: list[Lack] = []
    base = 0
    for size in sorted(by_size, reverse=True):
        rows = by_size[size]
        senders = _balanced_senders(rows, holders, hosts)
        colours = edge_colouring([(s, row[0]) for s, row in zip(senders, rows, strict=True)])
        src += senders
        placed += rows
        rounds += [base + colour for colour in colours]
        base += max(colours) + 1
    return Shares(
        np.array(src, dtype=np.int64),
        np.array([row[0] for row in placed], dtype=np.int64),
        np.array([row[2] for row in placed], dtype=np.int64).reshape(-1, before.rank),
        np.array([row[3] for row in placed], dtype=np.int64).reshape(-1, before.rank),
        np.array(rounds, dtype=np.int64),
    )


def _balanced_senders(rows: list[Lack], holders: dict[int, list[int]], hosts: Int64 | None) -> list[int]:
    """One holder per share, so that the busiest sender has as few as possible."""
    if all(len(holders[row[1]]) == 1 for row in rows):
        return [holders[row[1]][0] for row in rows]
    receives: dict[int, int] = defaultdict(int)
    for row in rows:
        receives[row[0]] += 1
    # More rounds than the busiest receiver has shares are needed only where the holders cannot do better.
    most = max(max(receives.values()), -(-len(rows) // sum(len(holders[t]) for t in {row[1] for row in rows})))
    while True:
        chosen = _flow_senders(rows, holders, hosts, most)
        if chosen is not None:
            return chosen
        most += 1


def _flow_senders(rows: list[Lack], holders: dict[int, list[int]], hosts: Int64 | None, most: int) -> list[int] | None:
    """One holder per share, no sender used more than `most` times, few on other hosts; None if impossible."""
    from scipy.optimize import linear_sum_assignment  # slow to import, seldom needed

    devices = sorted({device for row in rows for device in holders[row[1]]})
    if len(devices) * most < len(rows):
        return None
    place = {device: k for k, device in enumerate(devices)}
    price = np.full((len(rows), len(devices)), FORBIDDEN)
    for k, row in enumerate(rows):
        for device in holders[row[1]]:
            price[k, place[device]] = float(hosts is not None and hosts[device] != hosts[row[0]])
    chosen_rows, chosen = linear_sum_assignment(np.repeat(price, most, axis=1))
    if price[chosen_rows, chosen // most].max() >= FORBIDDEN:
        return None
    return [devices[c // most] for c in chosen]


def edge_colouring(edges: list[tuple[int, int]]) -> list[int]:
    """Colour the edges of a bipartite multigraph with as many colours as its largest degree (Koenig 1916).

    Args:
        edges: (left, right) vertices; the two sides are numbered independently.

    Returns:
        One colour per edge, from 0; no two edges at a vertex share one.

    >>> edge_colouring([(0, 0), (0, 1), (1, 0)])
    [0, 1, 1]
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
