"""The cheapest plan of all candidates: what `algorithm="best"` means."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from redistrib.errors import MemoryLimitError
from redistrib.plans.memory import peak_bytes
from redistrib.plans.steps import Exchange, Step
from redistrib.synthesis import exchange
from redistrib.synthesis.candidates import single, three_phases
from redistrib.synthesis.cost import CostModel, ExactCost, Outline, PaperCost, no_price
from redistrib.synthesis.paper import paper_steps
from redistrib.synthesis.search import Limit, Search
from redistrib.theory.semantics import Int64, Placement, lower_bound
from redistrib.theory.weak import WeakSpace

# The paper's plan is a candidate too, but found on a short leash: it rarely wins, and its search is the slow part.
LEASH = Search(expansions=120, revisits=2, paths=4)


@dataclass(frozen=True)
class Problem:
    """What `best_steps` decides on.

    Attributes:
        before, after: source and target placements.
        itemsize: bytes per element.
        memory_limit: bytes per device for source, target and scratch; None bounds the tiles instead.
        over_partition: see `Search`.
    """

    before: Placement
    after: Placement
    itemsize: int
    memory_limit: int | None = None
    over_partition: bool = True

    @property
    def space(self) -> WeakSpace:
        """The weak types within the paper's bound on tiles."""
        return WeakSpace(self.before.shape, self.before.devices, max(self.before.tile_size, self.after.tile_size))

    def fits(self, steps: list[Step]) -> bool:
        """Whether the steps keep to the memory limit, or without one to the paper's bound on tiles."""
        if self.memory_limit is None:
            bound = max(self.before.tile_size, self.after.tile_size)
            return all(step.after.tile_size <= bound for step in steps)
        return self.peak(steps) <= self.memory_limit

    def peak(self, steps: list[Step]) -> int:
        """Predicted bytes per device."""
        return peak_bytes(
            steps, self.before.tile_size, self.after.tile_size, self.itemsize, self.memory_limit is not None
        )


def best_steps(problem: Problem, model: CostModel) -> list[Step]:
    """The cheapest candidate that fits; ties go to fewer collectives.

    Raises:
        MemoryLimitError: if no candidate fits the memory limit.
        ProfileError: if the model gives no candidate a finite price.
    """
    before, after = problem.before, problem.after
    model = model.for_items(problem.itemsize)
    hosts = model.hosts(before.devices)
    exact = isinstance(model, ExactCost) and problem.memory_limit is None
    one = single(before, after, hosts)
    if one is not None and problem.memory_limit is None and (exact or not any(step.collectives for step in one)):
        return one  # receives the lower bound in one collective or none: nothing can be better
    enough = (sum(lower_bound(before, after)), 2) if exact else (-1, 0)
    best: list[Step] | None = None
    best_key: tuple[float, ...] = (math.inf, 0)
    least = math.inf
    space = problem.space

    def worth(outline: Outline) -> bool:
        price = max(enough[0], model.outline_at_least(space, outline))
        return (price, 0 if model.one_call else outline.collectives) < best_key[:2]

    for steps in _candidates(problem, one, hosts, worth):
        if model.one_call:
            steps = [replace(step, realisation="ragged") if isinstance(step, Exchange) else step for step in steps]
        if not problem.fits(steps):
            least = min(least, problem.peak(steps))
            continue
        key = model.key(steps, problem.itemsize)
        if key < best_key:
            best, best_key = steps, key
        if key[:2] == enough:
            break  # one collective was ruled out above
    if exact and best_key[0] > enough[0]:
        direct = exchange.direct(before, after, hosts)
        key = best_key if direct is None else model.key(direct, problem.itemsize)
        if key < best_key:
            best, best_key = direct, key
    for papers in _papers(problem, model, best_key[0] + 1 if exact else best_key[0]):
        if not problem.fits(papers):
            least = min(least, problem.peak(papers))
            continue
        key = model.key(papers, problem.itemsize)
        if key < best_key:
            best, best_key = papers, key
    if best is not None:
        return best
    if problem.memory_limit is None or least == math.inf:  # a normal form always fits the bound (Theorem 4.8)
        raise no_price(model)
    raise MemoryLimitError(problem.memory_limit, int(least))


def limit_met(problem: Problem, model: CostModel, steps: list[Step]) -> str | None:
    """What kept `best_steps` from the lower bound that `"exact"` promises; None where it is received."""
    before, after = problem.before, problem.after
    if not isinstance(model, ExactCost) or problem.memory_limit is not None:
        return None
    if sum(step.received_total() for step in steps) == sum(lower_bound(before, after)):
        return None
    return (
        f"the direct exchange, which receives the lower bound, has {exchange.share_count(before, after):,} shares; "
        f"more than {exchange.most_direct(before, after):,} are not planned"
    )


def _candidates(
    problem: Problem, one: list[Step] | None, hosts: Int64 | None, worth: Callable[[Outline], bool]
) -> Iterator[list[Step]]:
    yield from three_phases(problem.before, problem.after, one, hosts, worth)
    if problem.memory_limit is not None:
        yield from _for_memory(problem, hosts)


def _papers(problem: Problem, model: CostModel, below: float) -> Iterator[list[Step]]:
    """What the paper's algorithm finds, under this model on a leash, and under the paper's own."""
    needed = below == math.inf
    leash = replace(LEASH, over_partition=problem.over_partition, needed=needed)
    limit = Limit()
    found = paper_steps(problem.before, problem.after, model, replace(leash, below=below), problem.itemsize, limit)
    if found is not None:
        yield found
    if limit.skipped and not model.normal_forms_suffice:
        search = Search(over_partition=problem.over_partition, needed=needed)
        found = paper_steps(problem.before, problem.after, PaperCost(), search, problem.itemsize)
        if found is not None:
            yield found


def _for_memory(problem: Problem, hosts: Int64 | None) -> Iterator[list[Step]]:
    """What only a memory limit makes worth trying: more memory for fewer collectives, and more rounds for less."""
    before, after = problem.before, problem.after
    whole = exchange.whole_then_sliced(before, after, hosts)
    if whole is not None:
        yield whole
    yield from exchange.in_rounds(before, after, hosts)
