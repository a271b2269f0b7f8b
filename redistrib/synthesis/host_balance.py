"""Rounds of an exchange rearranged, so that the busiest links of hosts carry fewer shares over all rounds.

A round ends when its busiest host has sent and received. The shares of two rounds form paths of devices, and the two
rounds of each path may be exchanged. So the shares of a busy host are put into one round.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np

from redistrib.arith import Int64
from redistrib.plans.transfers import Transfers
from redistrib.synthesis import limits
from redistrib.theory.topology import Topology


def balanced_rounds(shares: Transfers, topology: Topology) -> Transfers:
    """The same shares in as many rounds, with no more shares through the busiest links of the rounds together.

    Args:
        shares: the shares of an exchange; a device sends and receives at most once a round.
        topology: of the devices; without hosts the shares are returned unchanged.
    """
    hosts = topology.hosts
    if hosts is None or len(shares) > limits.BALANCED_SHARES or not 1 < shares.rounds <= limits.BALANCED_ROUNDS:
        return shares
    ends = np.stack([hosts[shares.sender], hosts[shares.receiver]])
    away = ends[0] != ends[1]
    rounds = shares.round.copy()

    def loads() -> Int64:
        """`[rounds, 2, hosts]` shares that each host sends, and receives."""
        table = np.zeros((shares.rounds, 2, int(hosts.max()) + 1), dtype=np.int64)
        for side in (0, 1):
            np.add.at(table, (rounds[away], side, ends[side, away]), 1)
        return table

    load, better = loads(), True
    while better:
        better = False
        for pair in itertools.combinations(range(shares.rounds), 2):
            if _is_even(load[list(pair)]):
                continue
            rows = np.flatnonzero((rounds == pair[0]) | (rounds == pair[1]))
            if (shares.box.size[rows] == shares.box.size[rows[:1]]).all():
                late = _arranged(shares.sender[rows], shares.receiver[rows], rounds[rows] == pair[1], hosts)
                if late is not None:
                    rounds[rows], better = np.where(late, pair[1], pair[0]), True
                    load = loads()
        better = better and not _is_even(load)
    if (rounds == shares.round).all():
        return shares
    return replace(shares, round=rounds)[np.argsort(rounds, kind="stable")]


def _is_even(load: Int64) -> bool:
    """Whether the busiest host is busiest in every one of these rounds, so that no exchange of paths helps."""
    return int(load.max(axis=(1, 2)).sum()) == int(load.sum(axis=0).max())


def _arranged(src: Int64, dst: Int64, late: np.ndarray, hosts: Int64) -> np.ndarray | None:
    """`[shares]` whether a share goes in the later of two rounds, so that both take less; None where no choice does."""
    path = _paths(src.tolist(), dst.tolist())
    count = int(path.max()) + 1
    away = hosts[src] != hosts[dst]
    ends, path_away = (hosts[src][away], hosts[dst][away]), path[away]

    def takes(late: np.ndarray) -> tuple[int, int]:
        """Shares through the busiest links of both rounds together, and rounds in which any leaves its host."""
        most = [max(int(np.bincount(end[late == turn], minlength=1).max()) for end in ends) for turn in (False, True)]
        return sum(most), sum(map(bool, most))

    now = takes(late[away])
    slow = now[1]
    best = None
    for flips in itertools.product((False, True), repeat=min(count, limits.BALANCED_PATHS) - 1):
        flipped = np.zeros(count, dtype=bool)
        flipped[1 : len(flips) + 1] = flips
        trial = takes(late[away] ^ flipped[path_away])
        if trial < now and trial[1] <= slow:
            now, best = trial, late ^ flipped[path]
    return best


def _paths(src: list[int], dst: list[int]) -> Int64:
    """`[shares]` number of the path or cycle that a share is in; neighbours have a sender or a receiver in common."""
    at: dict[tuple[str, int], list[int]] = {}
    for k, ends in enumerate(zip(src, dst, strict=True)):
        for side, device in zip(("sends", "receives"), ends, strict=True):
            at.setdefault((side, device), []).append(k)
    number = np.full(len(src), -1, dtype=np.int64)
    for first in range(len(src)):
        if number[first] < 0:
            number[first] = number.max() + 1
            reached = [first]
            while reached:
                k = reached.pop()
                for other in at["sends", src[k]] + at["receives", dst[k]]:
                    if number[other] < 0:
                        number[other] = number[first]
                        reached.append(other)
    return number
