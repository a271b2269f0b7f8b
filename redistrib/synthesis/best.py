"""The cheapest plan of all candidates, for `algorithm="best"`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from redistrib.cost.model import CostModel, PhaseGrids, Prices
from redistrib.cost.paper import PaperCost
from redistrib.plans.steps import Step
from redistrib.synthesis import exchange
from redistrib.synthesis.paper.algorithm import paper_steps
from redistrib.synthesis.paper.search import Search, SearchState
from redistrib.synthesis.phases import single, three_phases
from redistrib.synthesis.problem import Problem
from redistrib.synthesis.relay_broadcast import relay_broadcast
from redistrib.synthesis.selection import Key, Priced, Selection
from redistrib.theory.placement import Int64, lower_bound

# The paper's plan is a candidate too. Its search is slow and rarely wins, so a short search is enough.
QUICK_SEARCH = Search(expansions=120, revisits=2, paths=4)
# Where hosts are unequal, a plan may cost up to this many times the least price if it saves more time on the links
# between hosts, since all devices of a host wait for their shared link.
PRICE_TOLERANCE = 1.3


def best_steps(problem: Problem, model: CostModel, over_partition: bool = True, waiting: bool = False) -> list[Step]:
    """The cheapest candidate that fits; ties go to fewer collectives.

    Args:
        problem: source and target, both of whole tiles.
        model: the cost model to minimise.
        over_partition: of the paper's algorithm.
        waiting: whether devices may hold no tile between steps; false in plans that have partial sums elsewhere.

    Raises:
        MemoryLimitError: if no candidate fits the memory limit.
        ProfileError: if the model gives no candidate a finite price.
    """
    chosen = Selection(problem, model)
    prices = chosen.prices
    single_steps = single(problem)
    at_least = prices.at_least(problem.before, problem.after)
    hosts = problem.topology.hosts if problem.topology.unequal_hosts else None
    least_alone = hosts is None and single_steps is not None and prices.total(single_steps) == at_least
    if single_steps is not None and problem.memory_limit is None and (not _collectives(single_steps) or least_alone):
        return single_steps  # one collective or none, at the lower bound of the price: no plan is cheaper
    exact = model.counts_received and problem.memory_limit is None
    enough = (at_least, 2) if exact else (-1, 0)  # no plan has one collective here
    priced: list[Priced] = []
    space = problem.space

    def keep(phases: PhaseGrids) -> bool:
        price = max(at_least, prices.phases_at_least(space, phases))
        if hosts is not None:
            return price <= PRICE_TOLERANCE * chosen.key[0]
        return (price, 0 if model.fused_exchange else phases.collectives) < chosen.key[:2]

    def offer(steps: list[Step]) -> Key:
        candidate = chosen.offer(steps)
        if candidate is None:
            return ()
        if hosts is not None:
            priced.append(candidate)
        return candidate[0]

    for steps in _candidates(problem, single_steps, keep, waiting):
        if offer(steps)[:2] == enough:
            break
    if exact and chosen.key[0] > at_least:
        direct = exchange.direct(problem)
        if direct is not None:
            offer(direct)
    for steps in _papers(problem, model, chosen.key[0] + 1 if exact else chosen.key[0], over_partition):
        offer(steps)
    steps = chosen.cheapest()
    return steps if hosts is None else _least_busy(priced, PRICE_TOLERANCE * chosen.key[0], prices, hosts)


def limit_met(problem: Problem, model: CostModel, steps: list[Step]) -> str | None:
    """Why a plan priced in received elements is above the lower bound; None where it is at the bound, or priced in
    seconds."""
    if not model.counts_received or problem.memory_limit is not None:
        return None
    if sum(step.received_total() for step in steps) == sum(lower_bound(problem.before, problem.after)):
        return None
    return (
        f"the direct exchange, which receives the lower bound, has {exchange.share_count(problem):,} shares; "
        f"more than {exchange.most_direct(problem):,} are not planned"
    )


def _least_busy(priced: list[Priced], most: float, prices: Prices, hosts: Int64) -> list[Step]:
    """The plan with the least sum of its price and its seconds on the links between hosts, up to the price `most`.

    Ties go to the plan that sends fewest elements between hosts.
    """

    def key(plan: Priced) -> tuple[float, int, Key]:
        crosses = sum(step.crossing(hosts) for step in plan[1])
        return plan[0][0] + prices.links_busy(crosses), crosses, plan[0]

    return min((plan for plan in priced if plan[0][0] <= most), key=key)[1]


def _collectives(steps: list[Step]) -> int:
    return sum(step.collectives for step in steps)


def _candidates(
    problem: Problem, single_steps: list[Step] | None, keep: Callable[[PhaseGrids], bool], waiting: bool
) -> Iterator[list[Step]]:
    yield from three_phases(problem, single_steps, keep)
    if waiting and problem.topology.unequal_hosts:
        yield from relay_broadcast(problem)
    if problem.memory_limit is not None:
        yield from _for_memory(problem)


def _papers(problem: Problem, model: CostModel, below: float, over_partition: bool) -> Iterator[list[Step]]:
    """Plans of the paper's algorithm: by a short search under this model, and under the paper's cost model."""
    needed = below == math.inf
    quick = replace(QUICK_SEARCH, over_partition=over_partition, needed=needed, below=below)
    state = SearchState()
    steps = paper_steps(problem, model, quick, state)
    if steps is not None:
        yield steps
    if state.skipped and not model.normal_forms_suffice:
        steps = paper_steps(problem, PaperCost(), Search(over_partition=over_partition, needed=needed))
        if steps is not None:
            yield steps


def _for_memory(problem: Problem) -> Iterator[list[Step]]:
    """Candidates under a memory limit: fewer collectives for more memory, and more rounds for less memory."""
    whole = exchange.whole_then_sliced(problem)
    if whole is not None:
        yield whole
    yield from exchange.in_rounds(problem)
