"""Cheapest sequences of low-level collectives by exhaustion: every uniform placement is a state, every choice a move.

This is an oracle for the synthesis and shares no code with it, nor with the weak graph. A state is which tile each
device holds, on a grid of tiles. The moves are those of Figure 10 with several axes at once (Section 7.1):

* a slice cuts one dimension m times finer; every device keeps a part of its tile, every part as often as any other;
* a gather makes one dimension m times coarser;
* an all-to-all makes one dimension m times coarser and another m times finer; every device stays in its cell of the
  grid that is coarse in both, and may get any tile in it, every tile as often as any other. Groups whose members all
  have another part before and another after always exist: the devices of a cell are the edges of a regular bipartite
  multigraph between the parts before and the parts after, so they split into perfect matchings;
* a permute leads from any placement on a grid to any other.

In one sentence: a slice, gather or all-to-all between two grids leads from a placement to all placements that agree
with it on the common coarser grid. So one relaxation is a minimum over the placements that agree there.

Prices are the paper's (Figure 11), in units of (global size) / (devices); they do not depend on the shape as long as
every dimension can be cut by every divisor of the number of devices.
"""

from __future__ import annotations

import itertools
import math
from functools import cache

import numpy as np

Grid = tuple[int, ...]


def divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]


@cache
def grids(devices: int, rank: int) -> tuple[Grid, ...]:
    """Every grid whose number of tiles divides the number of devices."""
    return tuple(g for g in itertools.product(divisors(devices), repeat=rank) if devices % math.prod(g) == 0)


@cache
def assignments(devices: int, tiles: int) -> np.ndarray:
    """`[assignments, devices]` tile numbers: every way to give each tile to equally many devices, in order."""
    each = devices // tiles
    rows = [((), (each,) * tiles)]
    for _ in range(devices):
        rows = [
            ((*done, tile), (*left[:tile], left[tile] - 1, *left[tile + 1 :]))
            for done, left in rows
            for tile in range(tiles)
            if left[tile]
        ]
    return np.array([done for done, _ in rows], dtype=np.int64)


@cache
def _codes(devices: int, tiles: int) -> np.ndarray:
    return assignments(devices, tiles) @ tiles ** np.arange(devices - 1, -1, -1, dtype=np.int64)


def state_of(numbers: np.ndarray, tiles: int) -> np.ndarray:
    """Row of `assignments` of tile numbers `[..., devices]`."""
    devices = numbers.shape[-1]
    return np.searchsorted(_codes(devices, tiles), numbers @ tiles ** np.arange(devices - 1, -1, -1, dtype=np.int64))


@cache
def coarsened(devices: int, fine: Grid, coarse: Grid) -> np.ndarray:
    """For every state on `fine`, the state on `coarse` that it lies in."""
    index = np.unravel_index(assignments(devices, math.prod(fine)), fine)
    cells = np.ravel_multi_index([i // (f // c) for i, f, c in zip(index, fine, coarse, strict=True)], coarse)
    return state_of(cells, math.prod(coarse))


def moves(devices: int, rank: int) -> list[tuple[Grid, Grid, bool]]:
    """(from, to, free) for every slice (free), gather and all-to-all on one or two dimensions."""
    found = []
    for a, b in itertools.permutations(grids(devices, rank), 2):
        changed = [i for i in range(rank) if a[i] != b[i]]
        if len(changed) == 1:
            i = changed[0]
            if b[i] % a[i] == 0:
                found.append((a, b, True))
            elif a[i] % b[i] == 0:
                found.append((a, b, False))
        elif len(changed) == 2:
            i, j = changed
            if a[i] * a[j] == b[i] * b[j] and (a[i] % b[i] == 0 or b[i] % a[i] == 0):
                found.append((a, b, False))
    return found


@cache
def distances(devices: int, source: Grid, coarsest: int, permutes: bool = True) -> dict[Grid, np.ndarray]:
    """Least price from the canonical placement on `source` to every placement with at least `coarsest` tiles.

    The canonical placement gives tile t to the t-th run of consecutive devices; any other is that one with the devices
    renamed. Prices are in units of (global size) / `devices`.

    Args:
        coarsest: no placement on the way has fewer tiles: the memory bound.
        permutes: whether permutes are allowed.
    """
    rank = len(source)
    nodes = [g for g in grids(devices, rank) if math.prod(g) >= coarsest]
    edges = [(a, b, free) for a, b, free in moves(devices, rank) if a in nodes and b in nodes]
    dist = {g: np.full(len(assignments(devices, math.prod(g))), np.inf) for g in nodes}
    start = np.arange(devices) // (devices // math.prod(source))
    dist[source][state_of(start, math.prod(source))] = 0
    stale = set(nodes)
    while stale:
        moved = set()
        for a in nodes:
            if a not in stale:
                continue
            if permutes:
                least = dist[a].min() + devices // math.prod(a)
                if (dist[a] > least).any():
                    np.minimum(dist[a], least, out=dist[a])
            for from_, b, free in edges:
                if from_ != a:
                    continue
                common = tuple(map(math.gcd, a, b))
                best = np.full(len(assignments(devices, math.prod(common))), np.inf)
                np.minimum.at(best, coarsened(devices, a, common), dist[a])
                reached = best[coarsened(devices, b, common)] + (0 if free else devices // math.prod(b))
                if (reached < dist[b]).any():
                    np.minimum(dist[b], reached, out=dist[b])
                    moved.add(b)
        stale = moved
    return dist


def optimum(
    before: tuple[Grid, np.ndarray], after: tuple[Grid, np.ndarray], bounded: bool, permutes: bool = True
) -> float:
    """Least price between two placements, each a grid and row-major tile numbers per device; (global size)/devices = 1.

    Args:
        bounded: whether no tile may exceed the larger of the two.
    """
    (source, held), (target, wanted) = before, after
    devices, rank = len(held), len(source)
    # Dimensions are alike, so the source grid may be sorted.
    order = sorted(range(rank), key=lambda i: -source[i])
    source_sorted = tuple(source[i] for i in order)
    target_sorted = tuple(target[i] for i in order)

    def renumbered(numbers: np.ndarray, grid: Grid, grid_sorted: Grid) -> np.ndarray:
        index = np.unravel_index(numbers, grid)
        return np.ravel_multi_index([index[i] for i in order], grid_sorted)

    rename = np.argsort(renumbered(held, source, source_sorted), kind="stable")
    goal = renumbered(wanted, target, target_sorted)[rename]
    coarsest = min(math.prod(source), math.prod(target)) if bounded else 1
    table = distances(devices, source_sorted, coarsest, permutes)
    return float(table[target_sorted][state_of(goal, math.prod(target))])


@cache
def weak_distances(devices: int, source: Grid) -> dict[Grid, float]:
    """Least price from a grid to every grid where placements do not matter: never above the true optimum."""
    dist = dict.fromkeys(grids(devices, len(source)), math.inf)
    dist[source] = 0.0
    edges = moves(devices, len(source))
    changed = True
    while changed:
        changed = False
        for a, b, free in edges:
            onward = dist[a] + (0 if free else devices // math.prod(b))
            if onward < dist[b]:
                dist[b], changed = onward, True
    return dist
