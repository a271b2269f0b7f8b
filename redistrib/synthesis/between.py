"""From some devices to others: how an array crosses, and what each side does on its own before and after.

Four shapes of plans are tried:

* direct: every device pulls what it lacks from devices that hold it;
* across, then inside the target: what crosses is the target cut finer, each part once, and replicas gather their parts
  from one another; or whole source tiles cross, and are cut anew inside the target;
* inside the source, then across: the source's devices make the target's tiles, which cross as they are;
* all three: inside the source, across in parts, gathered inside the target.

What happens inside one side is found as for any other problem, on that side's devices alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import product

import numpy as np

from redistrib.arith import divisors
from redistrib.cost.model import CostModel, Prices, no_price, prices_of
from redistrib.errors import MemoryLimitError
from redistrib.plans.crossing import crossing
from redistrib.plans.steps import AllGather, DynSlice, Exchange, Step
from redistrib.synthesis import exchange
from redistrib.synthesis.best import best_steps
from redistrib.synthesis.grouping import Cells, chunk_groups, refine
from redistrib.synthesis.members import Members
from redistrib.synthesis.problem import Problem
from redistrib.theory.crossing import sides_of
from redistrib.theory.placement import Placement
from redistrib.theory.weak import Grid, common

MOST_PARTS = 12  # ways to cut the target finer
MOST_DIMENSIONS = 6  # that are cut for it; of arrays of more, the first ones


def best_steps_between(problem: Problem, model: CostModel) -> list[Step]:
    """The cheapest plan between device sets that differ, or that are not all devices.

    Where elements received are what is priced, ties go to the plan in which fewest cross from the source's devices to
    others, then to the one in which no device sends many.

    Raises:
        MemoryLimitError: if no candidate fits the memory limit.
        ProfileError: if the model gives no candidate a finite price.
    """
    source, target = Members.of(problem.before), Members.of(problem.after)
    dropped = _dropped(problem)
    if dropped is not None:
        return dropped
    if np.array_equal(source.devices, target.devices):
        return source.steps(best_steps(_inside(problem, source, problem.before, problem.after), model))
    return _cheapest(problem, model, _candidates(problem, source, target, model))


def best_exchange(problem: Problem, model: CostModel) -> list[Step]:
    """The cheapest plan of at most one exchange, in which every device pulls what it lacks: for tiles of unequal size.

    Raises:
        MemoryLimitError: if it does not fit the memory limit.
        ProfileError: if the model gives it no finite price.
    """
    if problem.before == problem.after:
        return []
    ways = exchange.in_rounds(problem) or filter(None, [exchange.direct(problem)])
    return _cheapest(problem, model, ways)


def _cheapest(problem: Problem, model: CostModel, ways: Iterable[list[Step]]) -> list[Step]:
    """The cheapest of some plans."""
    prices = prices_of(model, problem.itemsize, problem.topology)
    best: list[Step] | None = None
    best_key: tuple[float, ...] = (math.inf,)
    least = math.inf
    for steps in ways:
        if model.fused_exchange:
            steps = [replace(step, implementation="ragged") if isinstance(step, Exchange) else step for step in steps]
        if not problem.fits(steps):
            least = min(least, problem.peak(steps))
            continue
        key = _key(problem, model, prices, steps)
        if key < best_key:
            best, best_key = steps, key
    if best is not None:
        return best
    if problem.memory_limit is None or least == math.inf:
        raise no_price(model)
    raise MemoryLimitError(problem.memory_limit, int(least))


def _key(problem: Problem, model: CostModel, prices: Prices, steps: list[Step]) -> tuple[float, ...]:
    side = sides_of(problem.before)
    crosses = sum(crossing(step, side) for step in steps)
    most_sent = max(map(sum, zip(*(step.sent() for step in steps), strict=True)), default=0)
    price, *rest = prices.key(steps)
    return (price, crosses, most_sent, *rest) if model.counts_received else (price, *rest, crosses, most_sent)


def _dropped(problem: Problem) -> list[Step] | None:
    """Nothing, or a slice, where every device of the target holds its tile already."""
    before, after = problem.before, problem.after
    if before == after:
        return []
    if any(a % b for b, a in zip(before.grid, after.grid, strict=True)):
        return None
    outside = (after.coarse(before.grid) != before.index)[after.holders]
    return None if outside.any() else [DynSlice(before, after)]


def _candidates(problem: Problem, source: Members, target: Members, model: CostModel) -> Iterator[list[Step]]:
    before, after = problem.before, problem.after
    yield from exchange.in_rounds(problem)
    few = exchange.direct(problem) if exchange.share_count(problem) > exchange.MOST_UNEQUAL else None
    if few is not None:
        yield few
    for grid in (after.grid, *_finer(problem, target)):
        part = _part(problem, target, grid)
        gather: list[Step] = []
        if grid != after.grid:
            alone = target.alone(part)
            keys = target.topology(problem.topology).sort_keys
            gather = [AllGather(part, after, target.devices[chunk_groups(alone, after.grid, keys)])]
            for steps in exchange.in_rounds(problem.between(before, part)):
                yield [*steps, *gather]
        made = _near(problem, source, grid, before)
        if made is not None and made != before:
            for steps in _among(problem, source, before, made, model):
                for across in exchange.in_rounds(problem.between(made, part)):
                    yield [*steps, *across, *gather]
    there = _near(problem, target, before.grid, after)
    if there is not None and there != after:
        for steps in _among(problem, target, there, after, model):
            for across in exchange.in_rounds(problem.between(before, there)):
                yield [*across, *steps]


def _finer(problem: Problem, target: Members) -> list[Grid]:
    """Grids that cut the target's tiles, among replicas that can gather them again; the finest first.

    Of grids as fine, those come first that need few shares of the source's tiles.
    """
    before, after = problem.before, problem.after
    spare = len(target.devices) // after.tiles
    dims = [
        divisors(math.gcd(spare, size // count)) if i < MOST_DIMENSIONS else (1,)
        for i, (size, count) in enumerate(zip(after.shape, after.grid, strict=True))
    ]
    grids = [
        tuple(count * factor for count, factor in zip(after.grid, factors, strict=True))
        for factors in product(*dims)
        if math.prod(factors) > 1 and spare % math.prod(factors) == 0
    ]

    def shares(grid: Grid) -> int:
        return math.prod(math.lcm(b, g) // g for b, g in zip(before.grid, grid, strict=True))

    return sorted(grids, key=lambda grid: (-math.prod(grid), shares(grid), grid))[:MOST_PARTS]


def _part(problem: Problem, target: Members, grid: Grid) -> Placement:
    """The target cut finer, each device with a part of its own tile: one that it holds already, where there is one."""
    after = target.alone(problem.after)
    if grid == after.grid:
        return problem.after
    cells = common(grid, problem.before.grid)
    prefer = Cells(cells, target.alone(problem.before).coarse(cells))
    inside, links = Cells(after.grid, after.index), target.topology(problem.topology)
    return target.among_all(refine(after.shape, inside, grid, prefer, None, links))


def _near(problem: Problem, members: Members, grid: Grid, near: Placement) -> Placement | None:
    """A placement on one side with tiles of some grid, close to what its devices hold in another; None if there is
    none with equally many holders of each tile."""
    tiles = math.prod(grid)
    if len(members.devices) % tiles or any(size % count for size, count in zip(near.shape, grid, strict=True)):
        return None
    if grid == near.grid:
        return near
    alone = members.alone(near)
    whole = Cells((1,) * near.rank, np.zeros_like(alone.index))
    prefer, links = Cells.of(alone, common(grid, near.grid)), members.topology(problem.topology)
    return members.among_all(refine(near.shape, whole, grid, prefer, alone.number, links))


def _among(
    problem: Problem, members: Members, before: Placement, after: Placement, model: CostModel
) -> Iterator[list[Step]]:
    """What the devices of one side do on their own; at most one way, and none where the rest is out of reach."""
    inside = _inside(problem, members, before, after)
    try:
        yield members.steps(best_steps(inside, model))
    except MemoryLimitError:
        return


def _inside(problem: Problem, members: Members, before: Placement, after: Placement) -> Problem:
    """A problem on the devices of one side alone."""
    links = members.topology(problem.topology)
    return replace(problem.between(members.alone(before), members.alone(after)), topology=links)
