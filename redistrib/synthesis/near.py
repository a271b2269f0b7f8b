"""Neighbours on a torus: who sends to whom, and who is in a group with whom, where several devices hold the same.

Only distances are looked at, so the choice is the same whichever way round the torus is held.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from redistrib.theory.placement import Int64
from redistrib.theory.torus import Torus

MOST_MATCHED = 1 << 8  # devices that are alike: matchings of more take longer than they are worth


def near_senders(torus: Torus, senders: Int64, receivers: Int64, kind: Int64) -> Int64:
    """The senders dealt out anew within each run of one kind, so that the busiest link carries little.

    Args:
        torus: where the devices are.
        senders, receivers: `[pairs]` device numbers.
        kind: `[pairs]` sorted; any sender of a kind may send to any receiver of the same.
    """
    dealt = [senders]
    for power in (1, 2):
        matched = senders.copy()
        for run in _runs(kind):
            hops = torus.hops(senders[run][:, None], receivers[run][None, :])
            row, column = _matching(hops**power)
            matched[run.start + column] = senders[run][row]
        dealt.append(matched)
    return min(dealt, key=lambda chosen: (torus.most_sent(chosen, receivers), int(torus.hops(chosen, receivers).sum())))


def near_groups(torus: Torus, table: Int64, classes: Int64) -> Int64:
    """Groups with neighbours in them, from a table of the devices that may stand for one another.

    Args:
        torus: where the devices are.
        table: `[cells, members, groups]` device numbers; member m of a group is any device of row m of its cell.
        classes: `[devices]` devices of one class belong together, however far apart.
    """
    members, count = table.shape[1:]
    if count == 1 or count > MOST_MATCHED:
        return table
    near = table.copy()
    farther = sum(torus.shape) * members * count
    for cell in near:
        for m in range(1, members):
            cost = torus.hops(cell[:m, :, None], cell[m][None, None, :]).sum(axis=0)
            cost += farther * (classes[cell[0]][:, None] != classes[cell[m]][None, :])
            row, column = _matching(cost)
            cell[m, row] = cell[m, column]
    tables = [_flat(table), _flat(near)]
    return near if torus.most_gathered(tables[1]) < torus.most_gathered(tables[0]) else table


def _flat(table: Int64) -> Int64:
    """`[groups, members]` of a table."""
    return table.transpose(0, 2, 1).reshape(-1, table.shape[1])


def _runs(kind: Int64) -> Iterator[slice]:
    """Where equal numbers stand side by side, more than one of them."""
    edges = [0, *(np.flatnonzero(np.diff(kind)) + 1).tolist(), len(kind)]
    for start, stop in pairwise(edges):
        if 1 < stop - start <= MOST_MATCHED:
            yield slice(start, stop)


def _matching(cost: Int64) -> tuple[Int64, Int64]:
    from scipy.optimize import linear_sum_assignment  # slow to import, seldom needed

    row, column = linear_sum_assignment(cost)
    return row, column
