"""The cheapest plan of all candidates: what `algorithm="best"` means."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from redistrib.cost.model import CostModel, PhaseGrids, Prices, no_price, prices_of
from redistrib.cost.paper import PaperCost
from redistrib.errors import MemoryLimitError
from redistrib.plans.crossing import crossing
from redistrib.plans.steps import Exchange, Step
from redistrib.synthesis import exchange
from redistrib.synthesis.paper.algorithm import paper_steps
from redistrib.synthesis.paper.search import Search, SearchState
from redistrib.synthesis.phases import single, three_phases
from redistrib.synthesis.problem import Problem
from redistrib.synthesis.relay import handed_on
from redistrib.theory.placement import Int64, lower_bound

# The paper's plan is a candidate too, but its search is the slow part and rarely wins: a quick one will do.
QUICK_SEARCH = Search(expansions=120, revisits=2, paths=4)
# Where hosts are unequal, a plan may cost up to so many times the least price if it saves more time than that on the
# links between hosts: whoever shares a link waits for what it carries twice.
NEAR = 1.3


def best_steps(problem: Problem, model: CostModel, over_partition: bool = True, waiting: bool = False) -> list[Step]:
    """The cheapest candidate that fits; ties go to fewer collectives.

    Args:
        problem: source and target, neither of them summands.
        model: what to minimise.
        over_partition: of the paper's algorithm.
        waiting: whether devices may hold nothing on the way; not in plans that have summands elsewhere.

    Raises:
        MemoryLimitError: if no candidate fits the memory limit.
        ProfileError: if the model gives no candidate a finite price.
    """
    prices = prices_of(model, problem.itemsize, problem.topology)
    one = single(problem)
    at_least = prices.at_least(problem.before, problem.after)
    hosts = problem.topology.hosts if problem.topology.unequal_hosts else None
    least_alone = hosts is None and one is not None and prices.total(one) == at_least
    if one is not None and problem.memory_limit is None and (not _collectives(one) or least_alone):
        return one  # in one collective or none, at the least price there is: nothing can be better
    exact = model.counts_received and problem.memory_limit is None
    enough = (at_least, 2) if exact else (-1, 0)  # one collective has been ruled out
    best: list[Step] | None = None
    best_key: tuple[float, ...] = (math.inf, 0)
    priced: list[tuple[tuple[float, ...], list[Step]]] = []
    least = math.inf
    space = problem.space

    def keep(phases: PhaseGrids) -> bool:
        price = max(at_least, prices.phases_at_least(space, phases)) / prices.links_at_once
        if hosts is not None:
            return price <= NEAR * best_key[0]
        return (price, 0 if model.fused_exchange else phases.collectives) < best_key[:2]

    def tried(steps: list[Step]) -> tuple[float, ...]:
        nonlocal best, best_key, least
        if not problem.fits(steps):
            least = min(least, problem.peak(steps))
            return ()
        key = prices.key(steps)
        if hosts is not None:
            priced.append((key, steps))
        if key < best_key:
            best, best_key = steps, key
        return key

    for steps in _candidates(problem, one, keep, waiting):
        if model.fused_exchange:
            steps = [replace(step, implementation="ragged") if isinstance(step, Exchange) else step for step in steps]
        if tried(steps)[:2] == enough:
            break
    if exact and best_key[0] > at_least:
        direct = exchange.direct(problem)
        if direct is not None:
            tried(direct)
    for steps in _papers(problem, model, _below(best_key[0], exact, prices), over_partition):
        tried(steps)
    if best is not None:
        return best if hosts is None else _least_busy(priced, NEAR * best_key[0], prices, hosts)
    if problem.memory_limit is None or least == math.inf:  # a normal form always fits the bound (Theorem 4.8)
        raise no_price(model)
    raise MemoryLimitError(problem.memory_limit, int(least))


def _below(best: float, exact: bool, prices: Prices) -> float:
    """What the steps of a plan cost together, one after the other, at most, if it is to be better than the best."""
    return best + 1 if exact else best * prices.links_at_once


def limit_met(problem: Problem, model: CostModel, steps: list[Step]) -> str | None:
    """What kept `best_steps` from the lower bound, where received elements are what is priced; None if nothing did."""
    if not model.counts_received or problem.memory_limit is not None:
        return None
    if sum(step.received_total() for step in steps) == sum(lower_bound(problem.before, problem.after)):
        return None
    return (
        f"the direct exchange, which receives the lower bound, has {exchange.share_count(problem):,} shares; "
        f"more than {exchange.most_direct(problem):,} are not planned"
    )


def _least_busy(
    priced: list[tuple[tuple[float, ...], list[Step]]], most: float, prices: Prices, hosts: Int64
) -> list[Step]:
    """Of plans that cost no more than `most`, the one of least price and time of the links between hosts together; ties
    go to the one that sends least between hosts."""

    def key(plan: tuple[tuple[float, ...], list[Step]]) -> tuple[float, int, tuple[float, ...]]:
        crosses = sum(crossing(step, hosts) for step in plan[1])
        return plan[0][0] + prices.links_busy(crosses), crosses, plan[0]

    return min((plan for plan in priced if plan[0][0] <= most), key=key)[1]


def _collectives(steps: list[Step]) -> int:
    return sum(step.collectives for step in steps)


def _candidates(
    problem: Problem, one: list[Step] | None, keep: Callable[[PhaseGrids], bool], waiting: bool
) -> Iterator[list[Step]]:
    yield from three_phases(problem, one, keep)
    if waiting and problem.topology.unequal_hosts:
        yield from handed_on(problem)
    if problem.memory_limit is not None:
        yield from _for_memory(problem)


def _papers(problem: Problem, model: CostModel, below: float, over_partition: bool) -> Iterator[list[Step]]:
    """What the paper's algorithm finds: under this model by a quick search, and under the paper's own model."""
    needed = below == math.inf
    quick = replace(QUICK_SEARCH, over_partition=over_partition, needed=needed, below=below)
    state = SearchState()
    found = paper_steps(problem, model, quick, state)
    if found is not None:
        yield found
    if state.skipped and not model.normal_forms_suffice:
        found = paper_steps(problem, PaperCost(), Search(over_partition=over_partition, needed=needed))
        if found is not None:
            yield found


def _for_memory(problem: Problem) -> Iterator[list[Step]]:
    """What only a memory limit makes worth trying: more memory for fewer collectives, and more rounds for less."""
    whole = exchange.whole_then_sliced(problem)
    if whole is not None:
        yield whole
    yield from exchange.in_rounds(problem)
