"""Senders and rounds for shares of unequal size: a balanced choice of senders and an edge colouring.

A round is one permute, so its shares have one size and no device sends or receives twice in it. By Koenig's theorem the
shares of one size need as many rounds as the busiest device has of them.
"""

from __future__ import annotations

from collections import defaultdict

import networkx as nx
import numpy as np

from redistrib.plans.steps import Shares
from redistrib.theory.semantics import Int64, Placement

Lack = tuple[int, int, Int64, Int64]


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
    columns: tuple[list[int], list[int], list[Int64], list[Int64], list[int]] = ([], [], [], [], [])
    base = 0
    for size in sorted(by_size, reverse=True):
        rows = by_size[size]
        senders = _balanced_senders(rows, holders, hosts)
        colours = edge_colouring([(s, row[0]) for s, row in zip(senders, rows, strict=True)])
        for sender, row, colour in zip(senders, rows, colours, strict=True):
            for column, value in zip(columns, (sender, row[0], row[2], row[3], base + colour), strict=True):
                column.append(value)  # type: ignore[arg-type]
        base += max(colours) + 1
    src, dst, start, sizes, rounds = columns
    rank = before.rank
    return Shares(
        np.array(src, dtype=np.int64),
        np.array(dst, dtype=np.int64),
        np.array(start, dtype=np.int64).reshape(-1, rank),
        np.array(sizes, dtype=np.int64).reshape(-1, rank),
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


def _flow_senders(
    rows: list[Lack], holders: dict[int, list[int]], hosts: Int64 | None, most: int
) -> list[int] | None:
    graph = nx.DiGraph()
    graph.add_node("source", demand=-len(rows))
    graph.add_node("sink", demand=len(rows))
    for k, row in enumerate(rows):
        graph.add_edge("source", ("share", k), capacity=1, weight=0)
        for device in holders[row[1]]:
            far = int(hosts is not None and hosts[device] != hosts[row[0]])
            graph.add_edge(("share", k), ("device", device), capacity=1, weight=far)
            graph.add_edge(("device", device), "sink", capacity=most, weight=0)
    try:
        flow = nx.min_cost_flow(graph)
    except nx.NetworkXUnfeasible:
        return None
    return [next(node[1] for node, used in flow[("share", k)].items() if used) for k in range(len(rows))]


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
