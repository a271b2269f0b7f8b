"""The solver of a choice graph: dynamic programming where it is small, else the relaxation of its integer program.

The relaxation gives a bound, and for each node the options that it takes a fraction of. Dynamic programming takes the
best choice among these. A large-neighbourhood search then decides neighbourhoods of nodes anew, with all options.
"""

from __future__ import annotations

import contextlib
import math
from collections import defaultdict
from collections.abc import Sequence

from redistrib.programs.search.choices import ChoiceGraph
from redistrib.programs.search.constants import (
    CLOSED,
    GAP,
    MANY,
    NEIGHBOURHOOD,
    ROUNDING,
    SHARES,
    SMALL,
    STRIDE,
    WITHIN,
)
from redistrib.programs.search.deadline import NEVER, Deadline, OutOfTime
from redistrib.programs.search.elimination import Elimination, neighbourhood
from redistrib.programs.search.integer import Solution, relaxed, solve


def solved(
    choices: ChoiceGraph, deadline: Deadline = NEVER, start: Sequence[int] | None = None, most: float = math.inf
) -> Solution:
    """The best choice found in time.

    Args:
        choices: the choice graph.
        deadline: after which the best so far is taken.
        start: a choice to begin with.
        most: conversions of all edges above which a known choice is improved without a relaxation.

    Returns:
        The choice; None where there is none, or none was found in time. The bound is minus infinite where none was
        looked for.
    """
    tables = Elimination(choices, deadline)
    everything = {node: range(size) for node, size in enumerate(tables.sizes)}
    best = None if start is None else tuple(start)
    try:
        options = tables.solve(everything, [0] * len(everything), SMALL)
        if options is not None:
            choice = tuple(options[node] for node in everything)
            price = choices.price(choice)
            return Solution(choice if math.isfinite(price) else None, price, math.isfinite(price), True)
        wide = len(choices.nodes) > MANY or sum(len(edge.prices) for edge in choices.edges) > most
        if best is not None and wide:
            return Solution(_neighbourhood_search(tables, best), -math.inf, True, False)
        bound, shares = relaxed(choices, deadline)
    except OutOfTime:
        cheapest = tuple(min(range(len(node.prices)), key=node.prices.__getitem__) for node in choices.nodes)
        best = best or cheapest
        return Solution(best if math.isfinite(choices.price(best)) else None, -math.inf, True, False)
    if math.isinf(bound):
        return Solution(None, bound, False, True)
    best = _neighbourhood_search(tables, _rounded(tables, shares, best))
    price = choices.price(best)
    if price > bound + GAP * abs(price) and len(best) <= CLOSED and not deadline.passed:
        with contextlib.suppress(OutOfTime):
            proved = solve(choices, deadline)
            if proved.choice is not None and choices.price(proved.choice) <= price:
                return proved
            bound = max(bound, proved.bound)
    if math.isinf(price):
        return Solution(None, bound, True, False)
    return Solution(best, bound, True, price <= bound + GAP * abs(price))


def lower_bound(choices: ChoiceGraph, price: float, deadline: Deadline = NEVER) -> float:
    """A price that no choice goes below: of the bounds that there is time for, the highest.

    Args:
        choices: the choice graph.
        price: of a choice; the integer program is solved only where the relaxation leaves a gap below it.
        deadline: after which the best so far is taken.
    """
    bound = choices.least
    with contextlib.suppress(OutOfTime):
        tables = Elimination(choices, deadline)
        everything = {node: range(size) for node, size in enumerate(tables.sizes)}
        best = tables.solve(everything, [0] * len(everything), SMALL)
        if best is not None:
            return choices.price([best[node] for node in everything]) * (1 - ROUNDING)
        bound = max(bound, relaxed(choices, deadline)[0])
        if price > bound + GAP * price and len(everything) <= CLOSED:
            bound = max(bound, solve(choices, deadline).bound * (1 - GAP))
    return bound * (1 - ROUNDING)


def runner_up(tables: Elimination, choice: Sequence[int], node: int, options: Sequence[int]) -> tuple[int, ...] | None:
    """The best choice in which a node takes one of some options and those around it are decided anew for it."""
    count = NEIGHBOURHOOD
    while count:
        free = {n: range(tables.sizes[n]) for n in neighbourhood(tables, node, count)} | {node: options}
        solution, count = tables.solve(free, choice, WITHIN), count // 2
        if solution is not None:
            return tuple(solution.get(n, taken) for n, taken in enumerate(choice))
    return None


def _rounded(tables: Elimination, shares: Sequence[Sequence[float]], start: Sequence[int] | None) -> tuple[int, ...]:
    """The best choice among the options that the relaxation takes a part of; where there is no time, the largest."""
    best = tuple(max(range(len(shares_of_node)), key=shares_of_node.__getitem__) for shares_of_node in shares)
    with contextlib.suppress(OutOfTime):
        for share in SHARES:
            support = {
                node: sorted(
                    {best[node], *(k for k, each in enumerate(shares_of_node) if each > share), (start or best)[node]}
                )
                for node, shares_of_node in enumerate(shares)
            }
            options = tables.solve(support, best)
            if options is not None:
                return tuple(options[node] for node in support)
    return best


def _neighbourhood_search(tables: Elimination, choice: tuple[int, ...]) -> tuple[int, ...]:
    """Decide one neighbourhood after another anew until none gets better, or the time is up.

    One is decided again only where something changed in it or beside it, and one that is as another only once, as those
    of repeated layers are: else it would come out as it is.
    """
    current = list(choice)
    nodes = {centre: neighbourhood(tables, centre, NEIGHBOURHOOD) for centre in range(0, len(current), STRIDE)}
    centres_near: dict[int, set[int]] = defaultdict(set)
    for centre, near in nodes.items():
        for node in {*near}.union(*(tables.neighbours[node] for node in near)):
            centres_near[node].add(centre)
    waiting, settled = {*nodes}, set[tuple[object, ...]]()
    with contextlib.suppress(OutOfTime):
        while waiting:
            for centre in nodes:
                if centre not in waiting:
                    continue
                waiting.discard(centre)
                around = tables.surroundings(nodes[centre], current)
                if around in settled:
                    continue
                changed = _improved(tables, current, nodes[centre])
                if not changed:
                    settled.add(around)
                waiting = waiting.union(*(centres_near[node] for node in changed)) - {centre}
    return tuple(current)


def _improved(tables: Elimination, current: list[int], nodes: Sequence[int]) -> list[int]:
    """Decide the nodes of a neighbourhood anew, in place; those that changed, where the price fell."""
    tables.deadline.check()
    count = NEIGHBOURHOOD
    options = tables.solve({n: range(tables.sizes[n]) for n in nodes}, current, WITHIN)
    while options is None and count > 2:
        count //= 2
        options = tables.solve({n: range(tables.sizes[n]) for n in nodes[:count]}, current, WITHIN)
    changed = [n for n, taken in (options or {}).items() if current[n] != taken]
    if not options or not changed:
        return []
    before = tables.around(changed, current)
    other = [options.get(n, taken) for n, taken in enumerate(current)]
    if tables.around(changed, other) >= before - GAP * abs(before):
        return []
    current[:] = other
    return changed
