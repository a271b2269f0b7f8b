"""Steps from one placement to another by at most three collectives, without a search over weak paths.

Every function returns steps that end exactly at the target placement, or None where the function does not apply.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations

import numpy as np

from redistrib.arith import repeated, unravel
from redistrib.plans.steps import AllGather, AllPermute, AllToAll, DynSlice, Exchange, ReduceExchange, Step
from redistrib.plans.transfers import NeededParts, Transfers, missing_parts, touched_tiles
from redistrib.synthesis import limits
from redistrib.synthesis.groups import (
    CoarseCells,
    agree,
    all_to_all_groups,
    assign_tiles,
    chunk_groups,
    number_within,
    permutation_pairs,
    position_in_run,
    sending_pairs,
)
from redistrib.synthesis.host_balance import balanced_rounds
from redistrib.synthesis.problem import Problem
from redistrib.synthesis.rounds import colour_rounds, padded_rounds, shapes
from redistrib.theory.boxes import Boxes
from redistrib.theory.placement import Int64, Placement, number_of
from redistrib.theory.weak import Grid, common, nested, refined


def without_elements(problem: Problem) -> list[Step]:
    """Steps between placements of an empty array: no element is sent or added."""
    before, after = problem.before, problem.after
    shares = Transfers.none(before.rank)
    if before == after:
        return []
    if before.summands == after.summands == 1:
        return [Exchange(before, after, shares)]
    return [ReduceExchange(before, after, shares, splits=(0, *[before.summands] * after.summands))]


def as_slice(problem: Problem) -> list[Step] | None:
    """No step or one slice, where every device of the target already holds its tile."""
    before, after = problem.before, problem.after
    if before == after:
        return []
    if any(a % b for b, a in zip(before.grid, after.grid, strict=True)):
        return None
    outside = (after.coarse(before.grid) != before.index)[after.holders]
    return None if outside.any() else [DynSlice(before, after)]


def as_permute(problem: Problem) -> list[Step] | None:
    """One permute, where every tile of `after` lies inside one tile of `before`; each sender first slices its tile.

    It receives exactly the lower bound, since only the devices without their tile take part.
    """
    before, after = problem.before, problem.after
    if any(a % b for b, a in zip(before.grid, after.grid, strict=True)):
        return None
    if before.grid == after.grid:
        return [AllPermute(before, after, permutation_pairs(before, after, problem.topology))]
    # A device that holds its target tile keeps it. A sender cuts out the tile of its receiver.
    pairs = _whole_tiles(problem)
    scale = np.array(after.grid, dtype=np.int64) // np.array(before.grid, dtype=np.int64)
    keeps = (after.coarse(before.grid) == before.index).all(axis=1, keepdims=True)
    cut_index = np.where(keeps, after.index, before.index * scale)
    cut_index[pairs[:, 0]] = after.index[pairs[:, 1]]
    cut = Placement.unchecked(before.shape, after.grid, cut_index)
    return [DynSlice(before, cut), AllPermute(cut, after, pairs)]


def _whole_tiles(problem: Problem) -> Int64:
    """Senders and receivers where every tile of `after` lies inside one tile of `before`."""
    before, after = problem.before, problem.after
    needed = number_of(after.coarse(before.grid), before.grid)
    return sending_pairs(before.number, needed, after.number, problem.topology)


def as_grouped_collective(problem: Problem) -> list[Step] | None:
    """One all-gather, before which each member slices its part, or else one dense all-to-all over any dimensions.

    It receives exactly the lower bound. The all-to-all repeats shares where the target is replicated.
    """
    before, after = problem.before, problem.after
    if not _close(before, after):
        return None
    return _gathered(problem) or [_all_to_all(problem)]


def _close(before: Placement, after: Placement) -> bool:
    """Whether groups of devices close: the grids are nested, and the placements agree on their common grid."""
    return nested(before.grid, after.grid) and agree(before, after)


def _gathered(problem: Problem) -> list[Step] | None:
    before, after, topology = problem.before, problem.after, problem.topology
    groups = chunk_groups(before, common(before.grid, after.grid), topology=topology, outer=(after.number,))
    needed = after.number[groups]
    if not (needed == needed[:, :1]).all():
        return None
    fine = refined(before.grid, after.grid)
    parts = _meet(before, after, fine)
    steps: list[Step] = [] if parts == before else [DynSlice(before, parts)]
    # The groups hold every part of the target tile once; order them by part rather than by source tile.
    groups = chunk_groups(parts, after.grid, topology=topology)
    return [*steps, AllGather(parts, after, groups)]


def _all_to_all(problem: Problem) -> AllToAll:
    groups = all_to_all_groups(problem.before, problem.after, problem.topology)
    return AllToAll(problem.before, problem.after, groups)


def in_rounds(problem: Problem, most_shares: int = limits.ROUND_SHARES) -> list[list[Step]]:
    """The direct exchange: every device receives exactly its missing boxes, in rounds of permutes.

    The first exchange receives the lower bound; the shares of a round have one shape. Where shares are unequal, others
    may follow, each in fewer rounds: one whose rounds have several shapes of one volume, which receives no more, and
    one in the fewest rounds, with padding. Empty where it would take more than `most_shares` shares.
    """
    before, after, topology = problem.before, problem.after, problem.topology
    count = share_count(problem)
    if problem.nests:
        tables = [_equal_shares(problem)] if count <= most_shares else []
        if topology.has_locality and count <= min(
            most_shares, limits.UNEQUAL_SHARES
        ):  # senders on the receivers' hosts
            missing = missing_parts(before, after.boxes)
            tables += [colour_rounds(missing, before, topology, stay=stay) for stay in (False, True)]
        return _exchanges(problem, tables)
    if count > min(most_shares, limits.UNEQUAL_SHARES):
        return []
    missing = missing_parts(before, after.boxes)
    cuts = [cut for unit in _units(before, after) if (cut := _in_units(missing, unit)) is not None]
    by_shape, by_volume = (
        min((colour_rounds(cut, before, topology, kind) for cut in cuts), key=lambda table: table.rounds)
        for kind in (shapes, Boxes.volumes)
    )
    tables = [by_shape, by_volume] if by_volume.rounds < by_shape.rounds else [by_shape]
    # Shares of one shape are in the fewest rounds already, unless senders are chosen near their receivers.
    mixed = topology.has_locality or (missing.box.size != missing.box.size[:1]).any()
    if len(missing) and mixed and before.devices <= limits.PADDED_DEVICES:
        # Senders on the receiver's host leave fewer choices for large shares of one round.
        nearness = [topology, None] if topology.has_locality else [None]
        padded = [padded_rounds(missing, before, near) for near in nearness]
        tables += [table for table in padded if table.rounds < tables[-1].rounds]
    return _exchanges(problem, tables)


def _exchanges(problem: Problem, tables: list[Transfers]) -> list[list[Step]]:
    return [[Exchange(problem.before, problem.after, balanced_rounds(table, problem.topology))] for table in tables]


def most_direct(problem: Problem) -> int:
    """The shares up to which `direct` is planned."""
    return limits.DIRECT_SHARES if problem.nests else limits.DIRECT_UNEQUAL_SHARES


def direct(problem: Problem) -> list[Step] | None:
    """The direct exchange in rounds of equal volumes, which receives exactly the lower bound, found in one attempt.

    For more shares than `in_rounds` has the time to arrange; None where there are more than `most_direct`, unless tiles
    are of unequal size: then there is no other way.
    """
    before, after = problem.before, problem.after
    if not problem.uneven and share_count(problem) > most_direct(problem):
        return None
    if problem.nests:
        return [Exchange(before, after, _equal_shares(problem))]
    shares = colour_rounds(missing_parts(before, after.boxes), before, problem.topology, Boxes.volumes)
    return [Exchange(before, after, shares)]


def dense_and_permuted(problem: Problem, permute_first: bool) -> list[Step] | None:
    """One dense all-to-all to the right tiles and one permute to the right devices, in either order."""
    before, after, topology = problem.before, problem.after, problem.topology
    if not nested(before.grid, after.grid):
        return None
    cells = common(before.grid, after.grid)
    far, end = (after, before) if permute_first else (before, after)
    prefer = CoarseCells(end.grid, end.index)
    near = assign_tiles(before.shape, CoarseCells.of(far, cells), end.grid, prefer, end.number, topology=topology)
    if near == end:
        return None
    if permute_first:
        permute = AllPermute(before, near, permutation_pairs(before, near, topology))
        return [permute, _all_to_all(problem.between(near, after))]
    permute = AllPermute(near, after, permutation_pairs(near, after, topology))
    return [_all_to_all(problem.between(before, near)), permute]


def whole_then_sliced(problem: Problem) -> list[Step] | None:
    """One all-gather of more than the target tile, then a slice: fewest collectives, most memory."""
    before, after = problem.before, problem.after
    cells = common(before.grid, after.grid)
    grid = tuple(
        count if np.array_equal(before.coarse(cells)[:, i], after.coarse(cells)[:, i]) else 1
        for i, count in enumerate(cells)
    )
    whole = Placement.unchecked(before.shape, grid, before.coarse(grid))
    if whole == before:
        return None
    steps: list[Step] = [AllGather(before, whole, chunk_groups(before, grid, topology=problem.topology))]
    return steps if whole == after else [*steps, DynSlice(whole, after)]


def _meet(before: Placement, after: Placement, fine: Grid) -> Placement:
    """The part of its target tile that every device holds, where the placements agree and the grids are nested."""
    tile = np.array([s // f for s, f in zip(before.shape, fine, strict=True)], dtype=np.int64)
    return Placement.unchecked(before.shape, fine, np.maximum(before.start, after.start) // np.maximum(tile, 1))


def share_count(problem: Problem) -> int:
    """Source tiles that each device's target tile touches, over all devices: no direct exchange has more shares."""
    before, after = problem.before, problem.after
    return tiles_touched(before, after.boxes[after.holders]) if before.rank else 0


def tiles_touched(before: Placement, needed: Boxes) -> int:
    """Source tiles that each box touches, over all boxes."""
    first, stop = touched_tiles(before, needed)
    return int((stop - first).prod(axis=1).sum())


def _equal_shares(problem: Problem) -> Transfers:
    """All shares of an exchange between nested grids, with senders and rounds in closed form.

    In each cell of the common grid a receiver needs one share of every chunk. Receiver t takes chunk (t + c) mod M
    from that chunk's holder t // M in round c, so every device sends and receives once a round (Koenig's bound).
    """
    before, after = problem.before, problem.after
    cells = common(before.grid, after.grid)
    chunks = before.tiles // math.prod(cells)
    if chunks == 1:  # who holds its tile neither sends nor receives
        pairs = _whole_tiles(problem)
        return Transfers(pairs[:, 0], pairs[:, 1], after.boxes[pairs[:, 1]], np.zeros(len(pairs), dtype=np.int64))
    groups = chunk_groups(before, cells, topology=problem.topology)  # [cells * holders, chunks]
    per_cell = groups.reshape(math.prod(cells), -1, chunks)
    goal = number_of(after.coarse(cells), cells)
    # A receiver's first chunk is the one it holds, where possible: that chunk needs no round.
    chunk = number_within(before, cells)
    in_turn = np.lexsort((np.arange(before.devices), *problem.topology.sort_keys, chunk, goal))
    position = np.empty(before.devices, dtype=np.int64)
    position[in_turn] = position_in_run(goal[in_turn], chunk[in_turn])
    receivers = np.lexsort((chunk, position, goal)).reshape(math.prod(cells), -1)
    turn, rounds = np.arange(receivers.shape[1]), np.arange(chunks)[:, None]
    sender = per_cell[:, turn // chunks, (turn + rounds) % chunks].swapaxes(0, 1).reshape(-1)  # round by round
    receiver, turn_of = np.tile(receivers.reshape(-1), chunks), np.repeat(rounds, receivers.size)
    # A share that the receiver holds is not sent.
    travels = before.number[receiver] != before.number[sender]
    sender, receiver = sender[travels], receiver[travels]
    _, compact = np.unique(turn_of[travels], return_inverse=True)
    return Transfers(sender, receiver, before.boxes[sender].meet(after.boxes[receiver]), compact)


def _units(before: Placement, after: Placement) -> list[Int64 | None]:
    """Sizes to cut unequal shares into: None for no cut, or a common unit of both grids along crossing dimensions.

    Units of shares of different sizes can travel in one round without padding.
    """
    if before.cuts or after.cuts:
        return [None]
    crossing = [i for i, (b, a) in enumerate(zip(before.grid, after.grid, strict=True)) if b % a and a % b]
    fine = refined(before.grid, after.grid)
    units: list[Int64 | None] = [None]
    for count in range(1, len(crossing) + 1):
        for dims in combinations(crossing, count):
            unit = np.array(before.shape, dtype=np.int64)
            for i in dims:
                unit[i] = before.shape[i] // fine[i]
            units.append(unit)
    return units


def _in_units(missing: NeededParts, unit: Int64 | None) -> NeededParts | None:
    """The same shares, cut into pieces of at most `unit` elements along each dimension; None for too many pieces."""
    if unit is None:
        return missing
    piece = np.minimum(missing.box.size, unit)
    count = missing.box.size // piece
    pieces = count.prod(axis=1)
    if pieces.sum() > limits.UNEQUAL_SHARES:
        return None
    number, place = repeated(pieces)
    cut, piece = missing[number], piece[number]
    return replace(cut, box=Boxes(cut.box.start + unravel(place, count[number]) * piece, piece))
