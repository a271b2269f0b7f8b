"""The cheapest plan of all candidates, for `algorithm="best"`.

The state is a `Selection`: the cheapest candidate so far and its key, the price first. Two invariants hold throughout:
every candidate in it runs from source to target and fits, and what is not built has a lower bound of its price that is
no better than the key. Candidates come in this order, the cheap to build first, since each narrows what follows:

1. one collective or none (`single`): a slice, a permute, a dense collective. At the bound of the price nothing follows.
2. slice, exchange, gather (`three_phases`), for every choice of the two placements between them that can still win.
3. where hosts are unequal, broadcasts by way of a relay; under a memory limit, one large gather, and rounds without it.
4. where elements are counted and the bound is not met, the direct exchange, which meets it.
5. the paper's own search, under this model and under the paper's.

The cheapest is the plan. Where hosts are unequal, the plan is the candidate within `limits.PRICE_TOLERANCE` of the
cheapest that is least busy on the links between hosts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from redistrib.cost.model import CostModel, PhaseGrids
from redistrib.cost.paper import PaperCost
from redistrib.plans.data import Short
from redistrib.plans.steps import Step
from redistrib.synthesis import exchange, limits
from redistrib.synthesis.paper.algorithm import paper_steps
from redistrib.synthesis.paper.search import Search, SearchState
from redistrib.synthesis.phases import single, three_phases
from redistrib.synthesis.problem import Problem
from redistrib.synthesis.relay_broadcast import relay_broadcast
from redistrib.synthesis.selection import Key, Priced, Selection
from redistrib.theory.placement import lower_bound


def best_steps(
    problem: Problem, model: CostModel, over_partition: bool = True, waiting: bool = False
) -> list[Step] | Short:
    """The cheapest candidate that fits; ties go to fewer collectives.

    Args:
        problem: source and target, both of whole tiles.
        model: the cost model to minimise.
        over_partition: of the paper's algorithm.
        waiting: whether devices may hold no tile between steps; false in plans that have partial sums elsewhere.

    Returns:
        The steps, or the least memory limit if no candidate fits that of the problem.

    Raises:
        ProfileError: if the model gives no candidate a finite price.
    """
    return _Best(problem, model).steps(over_partition, waiting)


class _Best:
    """The selection of one problem's plan; the page of this module tells its steps and invariants.

    Attributes:
        problem, model: as in `best_steps`.
        chosen: the cheapest candidate so far.
        at_least: a lower bound on the price of every plan.
        exact: whether prices are elements received, without a memory limit: then a plan at the bound is optimal.
        hosts: `[devices]` the host of each device, where hosts are unequal; else None.
        priced: the candidates that fit, where hosts are unequal.
    """

    def __init__(self, problem: Problem, model: CostModel) -> None:
        self.problem, self.model = problem, model
        self.chosen = Selection(problem, model)
        self.at_least = self.chosen.prices.at_least(problem.before, problem.after)
        self.exact = model.counts_received and problem.memory_limit is None
        self.hosts = problem.topology.hosts if problem.topology.unequal_hosts else None
        self.priced: list[Priced] = []

    def steps(self, over_partition: bool, waiting: bool) -> list[Step] | Short:
        problem = self.problem
        single_steps = single(problem)
        if single_steps is not None and self._is_cheapest(single_steps):
            return single_steps
        for steps in self._built(single_steps, waiting):
            key = self._offer(steps)
            if self.exact and key is not None and key[:2] == (self.at_least, 2):  # no plan has one collective here
                break
        if self.exact and self.chosen.key[0] > self.at_least:
            direct = exchange.direct(problem)
            if direct is not None:
                self._offer(direct)
        for steps in self._papers(over_partition):
            self._offer(steps)
        cheapest = self.chosen.cheapest()
        return cheapest if self.hosts is None or isinstance(cheapest, Short) else self._least_busy()

    def _is_cheapest(self, single_steps: list[Step]) -> bool:
        """Whether no plan is cheaper than one of a single collective or none: it has none, or is at the bound."""
        if self.problem.memory_limit is not None:
            return False
        if not sum(step.collectives for step in single_steps):
            return True
        return self.hosts is None and self.chosen.prices.total(single_steps) == self.at_least

    def _built(self, single_steps: list[Step] | None, waiting: bool) -> Iterator[list[Step]]:
        """Candidates of three phases, by a relay, and for a memory limit."""
        problem = self.problem
        yield from three_phases(problem, single_steps, self._may_win)
        if waiting and problem.topology.unequal_hosts:
            yield from relay_broadcast(problem)
        if problem.memory_limit is not None:
            whole = exchange.whole_then_sliced(problem)  # fewer collectives for more memory
            if whole is not None:
                yield whole
            yield from exchange.in_rounds(problem)  # more rounds for less memory

    def _may_win(self, phases: PhaseGrids) -> bool:
        """Whether a plan through these grids may be cheaper than the cheapest so far, by its lower bound."""
        price = max(self.at_least, self.chosen.prices.phases_at_least(self.problem.space, phases))
        if self.hosts is not None:
            return price <= limits.PRICE_TOLERANCE * self.chosen.key[0]
        return (price, 0 if self.model.fused_exchange else phases.collectives) < self.chosen.key[:2]

    def _papers(self, over_partition: bool) -> Iterator[list[Step]]:
        """Plans of the paper's algorithm: by a short search under this model, and under the paper's cost model."""
        below = self.chosen.key[0] + 1 if self.exact else self.chosen.key[0]
        needed = below == math.inf
        quick = Search(
            over_partition=over_partition,
            expansions=limits.QUICK_EXPANSIONS,
            needed=needed,
            revisits=limits.QUICK_REVISITS,
            paths=limits.QUICK_PATHS,
            below=below,
        )
        state = SearchState()
        steps = paper_steps(self.problem, self.model, quick, state)
        if steps is not None:
            yield steps
        if state.skipped and not self.model.normal_forms_suffice:
            steps = paper_steps(self.problem, PaperCost(), Search(over_partition=over_partition, needed=needed))
            if steps is not None:
                yield steps

    def _offer(self, steps: list[Step]) -> Key | None:
        """The key of a candidate, which is chosen if it is the cheapest; None where it does not fit."""
        candidate = self.chosen.offer(steps)
        if candidate is None:
            return None
        if self.hosts is not None:
            self.priced.append(candidate)
        return candidate[0]

    def _least_busy(self) -> list[Step]:
        """The plan with the least sum of its price and its seconds on the links between hosts, within the tolerance.

        Ties go to the plan that sends fewest elements between hosts.
        """
        assert self.hosts is not None
        hosts, prices = self.hosts, self.chosen.prices
        most = limits.PRICE_TOLERANCE * self.chosen.key[0]

        def key(plan: Priced) -> tuple[float, int, Key]:
            crosses = sum(step.crossing(hosts) for step in plan[1])
            return plan[0][0] + prices.links_busy(crosses), crosses, plan[0]

        return min((plan for plan in self.priced if plan[0][0] <= most), key=key)[1]


def limit_met(problem: Problem, model: CostModel, steps: list[Step]) -> str | None:
    """Why a plan priced in received elements is above the lower bound; None where it is at the bound, or priced in
    seconds."""
    if not model.counts_received or problem.memory_limit is not None:
        return None
    if sum(step.received_total() for step in steps) == sum(lower_bound(problem.before, problem.after)):
        return None
    return (
        f"the direct exchange, which receives the lower bound, has {exchange.share_count(problem):,} boxes; "
        f"more than {exchange.most_direct(problem):,} are not planned"
    )
