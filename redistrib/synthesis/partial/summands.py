"""Summands out of whole tiles or of other summands: what a partial target may be made of at no cost."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from redistrib.plans.shares import Shares
from redistrib.plans.steps import Exchange, ReduceExchange, Unreduce
from redistrib.synthesis.even import even_rounds
from redistrib.synthesis.partial.numbering import assigned, even, kept, matched, tiles_of
from redistrib.synthesis.partial.reductions import factors_of, times
from redistrib.synthesis.partial.stacks import added, relabelled, stack_of, without_slab
from redistrib.synthesis.problem import Problem
from redistrib.synthesis.rounds import Lack, colour_rounds, volume_of
from redistrib.theory.bounds import least_received
from redistrib.theory.placement import Placement, number_of
from redistrib.theory.weak import Grid

MOST_TRIED = 24
MOST_WEIGHED = 1 << 22  # pairs of a device and what it may hold
MOST_MADE_OF = 8
MOST_SHARES = 1 << 15


@dataclass(frozen=True)
class Made:
    """A placement, and the step that makes the target of it without a message; None where it is the target."""

    of: Placement
    step: Unreduce | None


def made_of(problem: Problem) -> Iterator[Made]:
    """What the target may be made of; first what takes least to reach.

    That is the target itself, or finer tiles, as fewer summands or as parts of the array itself.
    """
    before, after = problem.before, problem.after
    p, q = before.summands, after.summands
    found: list[tuple[int, Grid, int]] = []
    for f in range(1, q + 1):
        counts = {n for n in range(1, q // f + 1) if p % n == 0 or (p == 1 and f * n == q)} - ({q} if f == 1 else set())
        counts = {n for n in counts if f * n * after.devices <= MOST_WEIGHED}
        if counts:
            found += [(n, parts, f) for parts in factors_of(after.tile, f, exactly=True) for n in counts]
    found.sort(key=lambda row: (row[2] > 1, row[0] not in (1, p), -row[2] * row[0], row[1], row[0]))
    made = [Made(after, None)] if p == q else []
    for n, parts, _ in found[:MOST_TRIED]:
        one = _made(before, after, parts, n)
        if least_received(before, one.of) == 0:
            yield one
        else:
            made.append(one)
    made += [Made(after, None)] if p != q else []
    yield from sorted(made, key=lambda one: least_received(before, one.of))[:MOST_MADE_OF]


def _made(before: Placement, after: Placement, parts: Grid, summands: int) -> Made:
    """The target cut into parts, each of `summands` summands, one of them for every summand of the target."""
    fine = times(after.grid, parts)
    count, f = after.summands, math.prod(parts)
    grid = np.array(parts, dtype=np.int64)
    tile = tiles_of(after)
    corner = np.stack(np.unravel_index(np.arange(f), parts), axis=1) if after.rank else np.zeros((1, 0), dtype=np.int64)
    into = before.label * summands // max(before.summands, summands)
    own = np.zeros((after.devices, f, summands))  # elements of each part that a device has, by what they go into
    for k, at in enumerate(corner):
        part = Placement.unchecked(after.shape, fine, after.index * grid + at)
        own[np.arange(after.devices), k, into] = kept(before, part)
    table = np.zeros((int(tile.max()) + 1, count, f, summands))
    np.add.at(table, (tile, after.label), own)
    choice = own.reshape(after.devices, -1).argmax(axis=1)  # who is to hold none of it may keep what it has
    taken = np.zeros((len(table), count), dtype=np.bool_)
    goes = np.zeros((len(table), count), dtype=np.int64)
    for k, rows in enumerate(table):
        summand, piece = assigned(rows.reshape(count, -1) + 1e-3 * np.eye(count, f * summands))
        taken[k, summand], goes[k, summand] = True, piece
    keeps = taken[tile, after.label]
    choice = np.where(keeps, goes[tile, after.label], choice)
    index = after.index * grid + corner[choice // summands]
    made = relabelled(index, fine, choice % summands, summands, after)
    return Made(made, Unreduce(made, after, np.flatnonzero(keeps)))


def pulled(
    problem: Problem, fixed: bool, most: int = MOST_SHARES
) -> Iterator[tuple[ReduceExchange | Exchange, Placement]]:
    """Every device pulls what it lacks, whatever the numbers of summands, replicas and tiles: one step, and its end.

    None where that takes more shares than `most`, or `MOST_SHARES`.
    """
    before, after = problem.before, problem.after
    splits = even(before, after)
    if not fixed:
        before, after = matched(before, after, splits)
    held = stack_of(before, before.summands)
    lacking = _lacking(before, after, splits, min(most, MOST_SHARES))
    if lacking is None:
        return
    if lacking:
        shares = even_rounds(colour_rounds(lacking, held, problem.topology, volume_of), problem.topology)
    else:
        none = np.zeros(0, dtype=np.int64)
        shares = Shares(none, none, none.reshape(0, held.rank), none.reshape(0, held.rank), none)
    if before.summands == after.summands:
        if all(number == k for k, number in enumerate(splits)):
            yield Exchange(before, after, without_slab(shares)), after
        return
    yield added(Exchange(held, held, shares), before, after, splits), after


def _lacking(before: Placement, after: Placement, splits: tuple[int, ...], most: int) -> list[Lack] | None:
    """(receiver, number of the slab, start, size) of all that must travel; None where that is too much."""
    tile, goal = np.array(before.tile, dtype=np.int64), np.array(after.tile, dtype=np.int64)
    slabs = (before.summands, *before.grid)
    result: list[Lack] = []
    for device in range(after.devices):
        low = after.start[device]
        first, stop = low // tile, -(-(low + goal) // tile)
        run = range(splits[after.label[device]], splits[after.label[device] + 1])
        own = (int(before.label[device]), *before.index[device].tolist())
        for at in np.ndindex(*(stop - first).tolist()):
            corner = first + np.array(at, dtype=np.int64)
            start = np.maximum(corner * tile, low)
            size = np.minimum((corner + 1) * tile, low + goal) - start
            for summand in run:
                slab = (summand, *corner.tolist())
                if slab != own:
                    number = int(number_of(np.array(slab, dtype=np.int64), slabs))
                    result.append((device, number, np.array([summand, *start]), np.array([1, *size])))
        if len(result) > most:
            return None
    return result


def is_even(placement: Placement) -> bool:
    """Whether all tiles and summands are held by equally many devices each."""
    return stack_of(placement, placement.summands).is_uniform()
