"""The plans worth pricing: slice, exchange, gather in all the ways that `exchange` knows, and the paper's own.

Every redistribution has a plan of at most three phases, slice, exchange, gather, that costs no more than the
near-optimal sequence of Theorem 6.7 and has its height. The phases meet at two placements, chosen here; the rest is in
`exchange`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import product

from redistrib.arith import divisors
from redistrib.plans.steps import AllGather, DynSlice, Step
from redistrib.synthesis import exchange
from redistrib.synthesis.assignment import Cells, chunk_groups, refine
from redistrib.synthesis.cost import Outline
from redistrib.theory.classes import Classes, node_of
from redistrib.theory.semantics import Int64, Placement
from redistrib.theory.weak import Grid, common, nested, scaled

MOST_GATHERS = 24


def single(before: Placement, after: Placement, hosts: Int64 | None = None) -> list[Step] | None:
    """At most one collective, receiving exactly the lower bound; None where there is no such plan here."""
    steps = exchange.contained(before, after)
    for way in (exchange.permuted, exchange.closed):
        steps = way(before, after, hosts) if steps is None else steps
    return steps


def three_phases(
    before: Placement,
    after: Placement,
    one: list[Step] | None,
    hosts: Int64 | None = None,
    worth: Callable[[Outline], bool] | None = None,
) -> Iterator[list[Step]]:
    """Slice, exchange, gather: every useful choice of the two placements between, the direct exchange first.

    Args:
        before, after: source and target.
        one: what `single` says of them.
        hosts: `[devices]` host numbers, where links between hosts are slower.
        worth: asked of an outline before its placements and steps are made; None takes them all.
    """
    for cut_grid in _slicings(before, after):
        cut: Placement | None = None
        for part_grid in _gatherings(cut_grid, after, hosts):
            outline = Outline(before.grid, cut_grid, part_grid, after.grid)
            if worth is not None and not worth(outline):
                continue
            if outline.direct:
                yield from _exchanges(before, after, one, hosts, outline, worth)
                continue
            cut = cut or _refined(before, cut_grid, after, hosts)
            part = _refined(after, part_grid, cut, hosts)
            sliced: list[Step] = [] if cut == before else [DynSlice(before, cut)]
            last: list[Step] = []
            if part != after:
                keys = () if hosts is None else (hosts,)
                last = [AllGather(part, after, chunk_groups(part, after.grid, keys))]
            for steps in _exchanges(cut, part, single(cut, part, hosts), hosts, outline, worth):
                yield [*sliced, *steps, *last]


def _exchanges(
    before: Placement,
    after: Placement,
    one: list[Step] | None,
    hosts: Int64 | None,
    outline: Outline,
    worth: Callable[[Outline], bool] | None,
) -> Iterator[list[Step]]:
    """Ways from one placement to another without a gather of its own at the end: `one` if there is that."""
    if one is not None:
        yield one
        return
    if worth is None or worth(outline.by("rounds")):
        yield from exchange.in_rounds(before, after, hosts)
    for way in (exchange.aligned_then_permuted, exchange.permuted_then_aligned):
        if worth is None or worth(outline.by("permute")):
            yield from filter(None, [way(before, after, hosts)])


def _slicings(before: Placement, after: Placement) -> Iterator[Grid]:
    """The source's own grid, and where counts do not nest, the source cut finer until they do."""
    yield before.grid
    if nested(before.grid, after.grid):
        return
    grid = tuple(
        b if b % a == 0 or a % b == 0 else math.lcm(a, b) for b, a in zip(before.grid, after.grid, strict=True)
    )
    if _exists(before, grid):
        yield grid


def _gatherings(cut: Grid, after: Placement, hosts: Int64 | None) -> Iterator[Grid]:
    """The target's own grid, and the target cut finer where replicas could share the work and gather at the end."""
    yield after.grid
    spare = after.devices // after.tiles
    if spare == 1:
        return
    missing = [c // g for c, g in zip(cut, common(cut, after.grid), strict=True)]
    choices = {f for f in product(*(divisors(m) for m in missing)) if math.prod(f) > 1 and spare % math.prod(f) == 0}
    choices |= set(_shared_on_hosts(after, hosts))
    for factors in sorted(choices, key=lambda f: (-math.prod(f), f))[:MOST_GATHERS]:
        grid = tuple(a * f for a, f in zip(after.grid, factors, strict=True))
        if _exists(after, grid):
            yield grid


def _shared_on_hosts(after: Placement, hosts: Int64 | None) -> Iterator[Grid]:
    """Factors, along any one dimension, by which the replicas on one host may cut what comes from other hosts."""
    node = None if hosts is None else node_of(after, hosts)
    if node is None:
        return
    inside = Classes.of(hosts, after.devices).each * math.prod(node[1]) // math.prod(node[0])
    for factor in divisors(inside)[1:]:
        for dim in range(after.rank):
            yield scaled((1,) * after.rank, dim, factor)


def _refined(placement: Placement, grid: Grid, near: Placement, hosts: Int64 | None) -> Placement:
    """Every tile cut finer, each device keeping a part of its own: one that `near` gives it, where there is one."""
    if grid == placement.grid:
        return placement
    prefer = Cells.of(near, common(grid, near.grid))
    return refine(placement.shape, Cells(placement.grid, placement.index), grid, prefer, near.number, hosts)


def _exists(placement: Placement, grid: Grid) -> bool:
    return placement.devices % math.prod(grid) == 0 and all(
        size % count == 0 for size, count in zip(placement.shape, grid, strict=True)
    )
