"""Senders and groups of neighbours on a torus, where several devices hold the same tile.

The choice depends on distances alone, so it is the same for every symmetry of the torus.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from redistrib.synthesis import limits
from redistrib.theory.placement import Int64
from redistrib.theory.torus import Torus


def nearest_senders(torus: Torus, senders: Int64, receivers: Int64, kind: Int64) -> Int64:
    """The senders permuted within each run of one kind, so that the busiest link carries less.

    Args:
        torus: of the devices.
        senders, receivers: `[pairs]` device numbers.
        kind: `[pairs]` sorted; every sender of a kind may send to every receiver of that kind.
    """
    choices = [senders]
    for power in (1, 2):
        matched = senders.copy()
        for run in _runs(kind):
            hops = torus.hops(senders[run][:, None], receivers[run][None, :])
            row, column = _matching(hops**power)
            matched[run.start + column] = senders[run][row]
        choices.append(matched)
    return min(
        choices, key=lambda chosen: (torus.most_sent(chosen, receivers), int(torus.hops(chosen, receivers).sum()))
    )


def nearest_groups(torus: Torus, table: Int64, classes: Int64) -> Int64:
    """Groups of neighbours, from a table of the devices that hold the same tile.

    Args:
        torus: of the devices.
        table: `[cells, members, groups]` device numbers; member m of a group is any device of row m of its cell.
        classes: `[devices]` a group has devices of one class where possible, at any distance.
    """
    members, count = table.shape[1:]
    if count == 1 or count > limits.MATCHED_DEVICES:
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
    """The runs of more than one equal number."""
    edges = [0, *(np.flatnonzero(np.diff(kind)) + 1).tolist(), len(kind)]
    for start, stop in pairwise(edges):
        if 1 < stop - start <= limits.MATCHED_DEVICES:
            yield slice(start, stop)


def _matching(cost: Int64) -> tuple[Int64, Int64]:
    from scipy.optimize import linear_sum_assignment  # slow to import, seldom needed

    row, column = linear_sum_assignment(cost)
    return row, column
