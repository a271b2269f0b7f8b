"""Plans between different device sets: steps inside the source, one exchange across, steps inside the target.

Four kinds of plans are candidates:

* direct: every device receives its missing boxes;
* across, then inside the target: replicas receive different parts of their tile and gather the tile; or whole source
  tiles cross, and the target's devices redistribute them;
* inside the source, then across: the source's devices make the target's tiles, which cross unchanged;
* all three: inside the source, across in parts, a gather inside the target.

The steps inside one side are the best plan on the devices of that side alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import product

import numpy as np

from redistrib.arith import divisors
from redistrib.cost.model import CostModel, Prices
from redistrib.plans.data import Short
from redistrib.plans.steps import AllGather, Step
from redistrib.synthesis import exchange, limits
from redistrib.synthesis.best import best_steps
from redistrib.synthesis.groups import CoarseCells, assign_tiles, chunk_groups
from redistrib.synthesis.members import Members
from redistrib.synthesis.problem import Problem
from redistrib.synthesis.selection import Key, Selection
from redistrib.theory.crossing import sides_of
from redistrib.theory.placement import Placement
from redistrib.theory.weak import Grid, common


def best_steps_between(problem: Problem, model: CostModel) -> list[Step] | Short:
    """The cheapest plan between device sets that differ, or that are not all devices.

    Under a model that counts received elements, ties go to the plan in which fewest elements cross from the source's
    devices to others, then to the plan whose busiest sender sends least.

    Returns:
        The steps, or the least memory limit if no candidate fits that of the problem.

    Raises:
        ProfileError: if the model gives no candidate a finite price.
    """
    source, target = Members.of(problem.before), Members.of(problem.after)
    dropped = exchange.as_slice(problem)
    if dropped is not None:
        return dropped
    if np.array_equal(source.devices, target.devices):
        steps = best_steps(_inside(problem, source, problem.before, problem.after), model)
        return steps if isinstance(steps, Short) else source.steps(steps)
    return _cheapest(problem, model, _candidates(problem, source, target, model))


def best_exchange(problem: Problem, model: CostModel) -> list[Step] | Short:
    """The cheapest plan of at most one exchange of the missing boxes, for tiles of unequal size.

    Returns:
        The steps, or the least memory limit if they do not fit that of the problem.

    Raises:
        ProfileError: if the model gives them no finite price.
    """
    if problem.before == problem.after:
        return []
    candidates = exchange.in_rounds(problem) or filter(None, [exchange.direct(problem)])
    return _cheapest(problem, model, candidates)


def _cheapest(problem: Problem, model: CostModel, candidates: Iterable[list[Step]]) -> list[Step] | Short:
    """The cheapest of some plans, or the least memory limit."""
    chosen = Selection(problem, model, lambda steps: _key(problem, model, chosen.prices, steps))
    for steps in candidates:
        chosen.offer(steps)
    return chosen.cheapest()


def _key(problem: Problem, model: CostModel, prices: Prices, steps: list[Step]) -> Key:
    side = sides_of(problem.before)
    crosses = sum(step.crossing(side) for step in steps)
    most_sent = max(map(sum, zip(*(step.sent() for step in steps), strict=True)), default=0)
    price, *rest = prices.key(steps)
    return (price, crosses, most_sent, *rest) if model.counts_received else (price, *rest, crosses, most_sent)


def _candidates(problem: Problem, source: Members, target: Members, model: CostModel) -> Iterator[list[Step]]:
    before, after = problem.before, problem.after
    yield from exchange.in_rounds(problem)
    direct = exchange.direct(problem) if exchange.share_count(problem) > limits.UNEQUAL_SHARES else None
    if direct is not None:
        yield direct
    for grid in (after.grid, *_finer(problem, target)):
        part = _part(problem, target, grid)
        gather: list[Step] = []
        if grid != after.grid:
            alone = target.alone(part)
            keys = target.topology(problem.topology).sort_keys
            gather = [AllGather(part, after, target.devices[chunk_groups(alone, after.grid, keys)])]
            for steps in exchange.in_rounds(problem.between(before, part)):
                yield [*steps, *gather]
        near = _near(problem, source, grid, before)
        if near is not None and near != before:
            for steps in _among(problem, source, before, near, model):
                for across in exchange.in_rounds(problem.between(near, part)):
                    yield [*steps, *across, *gather]
    crossed = _near(problem, target, before.grid, after)
    if crossed is not None and crossed != after:
        for steps in _among(problem, target, crossed, after, model):
            for across in exchange.in_rounds(problem.between(before, crossed)):
                yield [*across, *steps]


def _finer(problem: Problem, target: Members) -> list[Grid]:
    """Grids that cut the target's tiles, among replicas that can gather them again; the finest first.

    Among grids with equally many tiles, the grids whose tiles need the fewest shares come first.
    """
    before, after = problem.before, problem.after
    spare = len(target.devices) // after.tiles
    dims = [
        divisors(math.gcd(spare, size // count)) if i < limits.PART_DIMENSIONS else (1,)
        for i, (size, count) in enumerate(zip(after.shape, after.grid, strict=True))
    ]
    grids = [
        tuple(count * factor for count, factor in zip(after.grid, factors, strict=True))
        for factors in product(*dims)
        if math.prod(factors) > 1 and spare % math.prod(factors) == 0
    ]

    def shares(grid: Grid) -> int:
        return math.prod(math.lcm(b, g) // g for b, g in zip(before.grid, grid, strict=True))

    return sorted(grids, key=lambda grid: (-math.prod(grid), shares(grid), grid))[: limits.TARGET_PARTS]


def _part(problem: Problem, target: Members, grid: Grid) -> Placement:
    """The target cut finer; each device gets a part of its own tile, one that it holds already where possible."""
    after = target.alone(problem.after)
    if grid == after.grid:
        return problem.after
    cells = common(grid, problem.before.grid)
    prefer = CoarseCells(cells, target.alone(problem.before).coarse(cells))
    inside, links = CoarseCells(after.grid, after.index), target.topology(problem.topology)
    return target.among_all(assign_tiles(after.shape, inside, grid, prefer, None, links))


def _near(problem: Problem, members: Members, grid: Grid, near: Placement) -> Placement | None:
    """A placement of a grid on the devices of one side, with the largest overlap with `near`.

    None where the tiles cannot have equally many holders.
    """
    tiles = math.prod(grid)
    if len(members.devices) % tiles or any(size % count for size, count in zip(near.shape, grid, strict=True)):
        return None
    if grid == near.grid:
        return near
    alone = members.alone(near)
    whole = CoarseCells((1,) * near.rank, np.zeros_like(alone.index))
    prefer, links = CoarseCells.of(alone, common(grid, near.grid)), members.topology(problem.topology)
    return members.among_all(assign_tiles(near.shape, whole, grid, prefer, alone.number, links))


def _among(
    problem: Problem, members: Members, before: Placement, after: Placement, model: CostModel
) -> Iterator[list[Step]]:
    """The best steps on the devices of one side alone; none where they do not fit the memory limit."""
    steps = best_steps(_inside(problem, members, before, after), model)
    if not isinstance(steps, Short):
        yield members.steps(steps)


def _inside(problem: Problem, members: Members, before: Placement, after: Placement) -> Problem:
    """A problem on the devices of one side alone."""
    links = members.topology(problem.topology)
    return replace(problem.between(members.alone(before), members.alone(after)), topology=links)
