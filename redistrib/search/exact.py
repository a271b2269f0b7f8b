"""A problem solved: by dynamic programming where that is small, else from the relaxation of its integer program.

The relaxation gives a bound, and for each node the options among which it wavers. Among these the best choice is found
by dynamic programming; then balls of nodes are decided anew, with all their options, until nothing gets better.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from redistrib.search.elimination import Elimination, ball
from redistrib.search.integer import GAP, Solution, relaxed, solve
from redistrib.search.problem import Problem

SMALL = 1_000_000  # entries of a table of a problem that is solved at once
BALL = 24  # nodes
CLOSED = 60  # nodes of a problem of which the integer program is solved, to the end
STRIDE = 4  # from the centre of one ball to that of the next
WITHIN = 100_000  # entries of a table of a ball


def solved(problem: Problem, end: float = math.inf, start: Sequence[int] | None = None) -> Solution:
    """The best choice that is found.

    Args:
        problem: the problem.
        end: the time, as `time.monotonic` has it, after which the best so far is taken.
        start: a choice to begin with.
    """
    tables = Elimination(problem)
    everything = {node: range(size) for node, size in enumerate(tables.sizes)}
    found = tables.solve(everything, [0] * len(everything), SMALL)
    if found is not None:
        choice = tuple(found[node] for node in everything)
        price = problem.price(choice)
        return Solution(choice if math.isfinite(price) else None, price, math.isfinite(price), True)
    bound, shares = relaxed(problem)
    support = {node: [k for k, share in enumerate(own) if share > 1e-6] for node, own in enumerate(shares)}
    if start is not None:
        for node, taken in enumerate(start):
            support[node] = sorted({*support[node], taken})
    best = tuple(max(range(len(own)), key=own.__getitem__) for own in shares)
    found = tables.solve(support, best)
    if found is not None:
        best = tuple(found[node] for node in everything)
    elif start is not None and problem.price(start) < problem.price(best):
        best = tuple(start)
    best = _polished(tables, best, end)
    price = problem.price(best)
    if price > bound + GAP * abs(price) and len(best) <= CLOSED:
        proved = solve(problem, None if math.isinf(end) else end - time.monotonic())
        if proved.choice is not None and problem.price(proved.choice) <= price:
            return proved
        bound = max(bound, proved.bound)
    return Solution(best, bound, True, price <= bound + GAP * abs(price))


def _polished(tables: Elimination, choice: tuple[int, ...], end: float) -> tuple[int, ...]:
    """Decide ball after ball anew until none gets better."""
    current = list(choice)
    improved = True
    while improved and time.monotonic() < end:
        improved = False
        for centre in range(0, len(current), STRIDE):
            nodes, count = ball(tables, centre, BALL), BALL
            found = tables.solve({n: range(tables.sizes[n]) for n in nodes}, current, WITHIN)
            while found is None and count > 2:
                count //= 2
                found = tables.solve({n: range(tables.sizes[n]) for n in nodes[:count]}, current, WITHIN)
            changed = [n for n, taken in (found or {}).items() if current[n] != taken]
            if not found or not changed:
                continue
            before = tables.around(changed, current)
            other = [found.get(n, taken) for n, taken in enumerate(current)]
            if tables.around(changed, other) < before - GAP * abs(before):
                current, improved = other, True
    return tuple(current)
