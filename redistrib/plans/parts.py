"""Plans carried out in parts, so that their phases overlap: part 2 is in one step while part 1 is in the next.

A plan in k parts cuts every tile into k equal slices along one dimension that none of its steps touches: its tiles are
the same in every placement, and every share reaches through one of them from end to end. So the k-th slices of all
tiles are an array of their own, and the plan's steps, on tiles and shares smaller by k, move it from the source's type
to the target's. Nothing else is moved than by the whole plan, nor more of it, and no tile is larger.

In wave w part p is in step w - p: at most one part in each step, and all steps of a wave go on at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from redistrib.plans.slabs import has_summands
from redistrib.plans.steps import Exchange, Step
from redistrib.theory.placement import Int64, Placement

MOST_PARTS = 64  # each is launched on its own


def untouched(steps: Sequence[Step]) -> list[int]:
    """Dimensions that no step touches; none where tiles are summands or of unequal size, or nothing moves."""
    if not steps or any(has_summands(step) or step.before.cuts or step.after.cuts for step in steps):
        return []
    grid = steps[0].before.grid
    return [dim for dim in range(len(grid)) if all(_leaves(step, dim, grid[dim]) for step in steps)]


def _leaves(step: Step, dim: int, count: int) -> bool:
    if step.before.grid[dim] != count or step.after.grid[dim] != count:
        return False
    return not isinstance(step, Exchange) or bool((step.shares.size[:, dim] == step.before.tile[dim]).all())


def part_of(steps: Sequence[Step], parts: int, along: int) -> tuple[Step, ...]:
    """The steps that carry out one of so many parts, along a dimension that none of them touches; equal for all."""
    made: dict[int, Placement] = {}

    def smaller(placement: Placement) -> Placement:
        if id(placement) not in made:
            shape = tuple(n // parts if i == along else n for i, n in enumerate(placement.shape))
            made[id(placement)] = Placement.unchecked(shape, placement.grid, placement.index)
        return made[id(placement)]

    def part(step: Step) -> Step:
        before, after = smaller(step.before), smaller(step.after)
        if not isinstance(step, Exchange):
            return replace(step, before=before, after=after)
        start, size = _divided(step.shares.start, parts, along), _divided(step.shares.size, parts, along)
        return replace(step, before=before, after=after, shares=replace(step.shares, start=start, size=size))

    return tuple(map(part, steps))


def _divided(column: Int64, parts: int, along: int) -> Int64:
    divided = column.copy()
    divided[:, along] //= parts
    return divided


def waves(parts: int, steps: int) -> Iterator[list[tuple[int, int]]]:
    """(part, step) of all that goes on at once, wave by wave, earlier parts first.

    >>> list(waves(2, 2))
    [[(0, 0)], [(0, 1), (1, 0)], [(1, 1)]]
    """
    for wave in range(parts + steps - 1):
        yield [(part, wave - part) for part in range(max(0, wave - steps + 1), min(parts, wave + 1))]


def divides(steps: Sequence[Step], parts: int, along: int) -> bool:
    """Whether tiles along a dimension that no step touches are cut into so many parts, of one element at least."""
    extent = steps[0].before.tile[along]
    return extent > 0 and extent % parts == 0
