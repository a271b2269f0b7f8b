"""The steps of a plan, each carried out on what the devices hold. Uses nothing of the library.

`held` is `[devices, *tile, 1 + parts]`: of every element its number, then how often each summand of the source counts
in what the device holds of it. Where no tile is a summand, there are no such counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.fuzz.placed import Cells, Placed, integer, need, table

Carried = tuple[Cells, list[int], int]  # what devices hold, how many elements they took in, collectives launched


@dataclass(frozen=True)
class Stage:
    """A step, and what it is carried out on.

    Attributes:
        form: of the step.
        implementation: "" for steps that have but one.
        before, after: its placements.
        held: see above.
        numbers: `[devices, *tile]` the element numbers of the tiles after it.
        divisors: whole elements per cell, per dimension.
    """

    form: dict[str, Any]
    implementation: str
    before: Placed
    after: Placed
    held: Cells
    numbers: Cells
    divisors: Cells

    @property
    def devices(self) -> int:
        return len(self.held)

    @property
    def rank(self) -> int:
        return len(self.before.grid)

    def groups(self) -> Cells:
        rows = self.form["groups"]
        need(sorted(integer(d) for row in rows for d in row) == list(range(self.devices)), "groups are no partition")
        return table(rows, len(rows[0]))

    def blank(self) -> Cells:
        """Tiles after the step of which nothing is written yet."""
        return np.full((self.devices, *self.after.tile, self.held.shape[-1]), -1, dtype=np.int64)

    def neutral(self) -> Cells:
        """Tiles after the step of neutral elements."""
        result = np.zeros((self.devices, *self.after.tile, self.held.shape[-1]), dtype=np.int64)
        result[..., 0] = self.numbers
        return result

    def add(self, total: Cells, device: int, at: Sequence[int], part: Cells) -> None:
        """Reduce a part into a device's tile."""
        sofar = total[window(total, device, at, part.shape[:-1])]
        need(np.array_equal(sofar[..., 0], part[..., 0]), "different elements are added")
        sofar[..., 1:] += part[..., 1:]
        if "sum" not in (self.before.reduction, self.after.reduction):
            np.minimum(sofar, 1, out=sofar, where=np.arange(sofar.shape[-1]) > 0)

    def check_devices(self, sender: int, receiver: int) -> None:
        need(0 <= integer(sender) < self.devices and 0 <= integer(receiver) < self.devices, "no such device")
        need(sender != receiver, "a device sends to itself")


def carry_out(stage: Stage) -> Carried:
    """What a step does."""
    before, after = stage.before, stage.after
    need(not before.reduction or not after.reduction or before.reduction == after.reduction, "reductions are mixed")
    if stage.form["kind"] not in _REDUCING:
        need(before.summands == after.summands, "partial sums appear or vanish in what only moves them")
    return _STEPS[stage.form["kind"]](stage)


def _dynslice(s: Stage) -> Carried:
    offset = (s.after.start - s.before.start).tolist()
    return np.stack([read(s.held, d, offset[d], s.after.tile) for d in range(s.devices)]), [0] * s.devices, 0


def _allgather(s: Stage) -> Carried:
    groups, factors = s.groups(), _exact(s.before.grid, s.after.grid)
    need(math.prod(factors) == groups.shape[1], "a group of another size than the tiles it merges")
    tiles = s.held[groups].reshape(len(groups), *factors, *s.before.tile, -1)
    turned = tiles.transpose(0, *(1 + i + k * s.rank for i in range(s.rank) for k in (0, 1)), 1 + 2 * s.rank)
    merged = turned.reshape(len(groups), *s.after.tile, -1)
    result = s.blank()
    for column in groups.T:
        result[column] = merged
    return result, [(groups.shape[1] - 1) * s.before.volume] * s.devices, 1


def _alltoall(s: Stage) -> Carried:
    before, after, groups = s.before, s.after, s.groups()
    factors = [b // min(a, b) for b, a in zip(before.grid, after.grid, strict=True)]
    need(all(max(a, b) % min(a, b) == 0 for b, a in zip(before.grid, after.grid, strict=True)), "grids do not nest")
    need(math.prod(factors) == groups.shape[1], "a group of another size than the tiles it merges")
    share = tuple(map(min, before.tile, after.tile))
    result = s.blank()
    corners = [tuple(p * n for p, n in zip(at, share, strict=True)) for at in np.ndindex(*factors)]
    old, new = before.start.tolist(), after.start.tolist()
    for group in groups.tolist():
        for receiver in group:
            for sender, corner in zip(group, corners, strict=True):
                low, size = _meet(old[sender], before.tile, new[receiver], after.tile)
                need(size == share, "shares of different shapes in an all-to-all")
                write(result, receiver, corner, read(s.held, sender, _minus(low, old[sender]), share))
    moved = math.prod(map(min, before.size, after.size))
    return result, [(groups.shape[1] - 1) * moved] * s.devices, 1


def _allpermute(s: Stage) -> Carried:
    result, received = s.held.copy(), [0] * s.devices
    need(len({sender for sender, _ in s.form["pairs"]}) == len(s.form["pairs"]), "a device sends twice in a permute")
    for sender, receiver in s.form["pairs"]:
        s.check_devices(sender, receiver)
        need(received[receiver] == 0, "a device receives twice in a permute")
        result[receiver] = s.held[sender]
        received[receiver] = s.before.volume or 1
    return result, [s.before.volume if r else 0 for r in received], 1


def _exchange(s: Stage) -> Carried:
    """A device keeps what it holds of its new tile, if that is the same summand."""
    result, own = s.blank(), s.before.label == s.after.label
    for d, at, part in _kept(s, own):
        write(result, d, at, part)
    for receiver, at, part in _shares(s):
        write(result, receiver, at, part)
    return result, *_taken(s)


def _reduce_exchange(s: Stage) -> Carried:
    splits = list(map(integer, s.form["splits"]))
    need(len(splits) == s.after.summands + 1, "a split of another number of partial sums")
    need(
        splits[0] == 0 and splits[-1] == s.before.summands and splits == sorted(splits), "no split of the partial sums"
    )
    begin, end = (np.array(ends, dtype=np.int64)[s.after.label] for ends in (splits[:-1], splits[1:]))
    result, own = s.neutral(), (begin <= s.before.label) & (s.before.label < end)
    for d, at, part in _kept(s, own):
        s.add(result, d, at, part)
    for receiver, at, part in _shares(s):
        s.add(result, receiver, at, part)
    return result, *_taken(s)


def _reduce_scatter(s: Stage) -> Carried:
    need(s.implementation in ("native", "alltoall"), "a reduce-scatter of another kind")
    groups, factors = s.groups(), _exact(s.after.grid, s.before.grid)
    need(math.prod(factors) == groups.shape[1], "a tile cut into another number of parts")
    corners = [[p * n for p, n in zip(at, s.after.tile, strict=True)] for at in np.ndindex(*factors)]
    return _added(s, groups, corners), [(groups.shape[1] - 1) * s.after.volume] * s.devices, 1


def _all_reduce(s: Stage) -> Carried:
    groups, received = s.groups(), [0] * s.devices
    need(s.before.grid == s.after.grid, "tiles of another size after an all-reduce")
    members = groups.shape[1]
    for row in groups.tolist():
        for k, device in enumerate(row):  # parts as equal as can be, the longer ones first
            part = (s.before.volume + members - 1 - k) // members
            received[device] = (members - 1) * part + (s.before.volume - part)  # to add up, and of what others added up
    return _added(s, groups, [[0] * s.rank] * members), received, 1


def _unreduce(s: Stage) -> Carried:
    result, keeps = s.neutral(), list(map(integer, s.form["keeps"]))
    need(len(set(keeps)) == len(keeps) and all(0 <= d < s.devices for d in keeps), "no list of devices")
    offset = (s.before.start - s.after.start).tolist()
    for d in range(s.devices):
        inside = all(a >= 0 and a + n <= m for a, n, m in zip(offset[d], s.before.tile, s.after.tile, strict=True))
        need(inside, "a tile that does not lie in the one that it becomes a partial sum of")
    for d in keeps:
        s.add(result, d, offset[d], s.held[d])
    return result, [0] * s.devices, 0


_STEPS: dict[str, Callable[[Stage], Carried]] = {
    "dynslice": _dynslice,
    "allgather": _allgather,
    "alltoall": _alltoall,
    "allpermute": _allpermute,
    "exchange": _exchange,
    "reduce_scatter": _reduce_scatter,
    "all_reduce": _all_reduce,
    "reduce_exchange": _reduce_exchange,
    "unreduce": _unreduce,
}
_REDUCING = ("reduce_scatter", "all_reduce", "reduce_exchange", "unreduce")


def _added(s: Stage, groups: Cells, corners: Sequence[list[int]]) -> Cells:
    """The sum of the tiles of each group; of it member k keeps what begins at corner k."""
    result = s.neutral()
    for group in groups.tolist():
        for receiver, corner in zip(group, corners, strict=True):
            for sender in group:
                s.add(result, receiver, [0] * s.rank, read(s.held, sender, corner, s.after.tile))
    return result


def _kept(s: Stage, own: Cells) -> list[tuple[int, list[int], Cells]]:
    """Device, place in its new tile and contents of what each of some devices holds of it already."""
    old, new = s.before.start.tolist(), s.after.start.tolist()
    kept = []
    for d in np.flatnonzero(own).tolist():
        low, size = _meet(old[d], s.before.tile, new[d], s.after.tile)
        if min(size, default=1) > 0:
            kept.append((d, _minus(low, new[d]), read(s.held, d, _minus(low, old[d]), size)))
    return kept


def _shares(s: Stage) -> list[tuple[int, list[int], Cells]]:
    """Receiver, place in its new tile and contents of every share."""
    old, new = s.before.start.tolist(), s.after.start.tolist()
    senders, receivers, sent = set(), set(), []
    for sender, receiver, number, start, size in s.form["shares"]:
        s.check_devices(sender, receiver)
        need((sender, number) not in senders, "a device sends twice in a round")
        need((receiver, number) not in receivers, "a device receives twice in a round")
        need(min(size, default=1) > 0, "an empty share")
        senders.add((sender, number))
        receivers.add((receiver, number))
        at, extent = ([n // g for n, g in zip(row, s.divisors, strict=True)] for row in (start, size))
        part = read(s.held, sender, _minus(at, old[sender]), extent)
        sent.append((receiver, _minus(at, new[receiver]), part))
    return sent


def _taken(s: Stage) -> tuple[list[int], int]:
    """Elements that each device takes in by shares, and collectives."""
    largest = dict[int, int]()
    for _, _, number, _, size in s.form["shares"]:
        largest[integer(number)] = max(largest.get(number, 0), math.prod(size))
    need(sorted(largest) == list(range(len(largest))), "rounds are not numbered from 0 without gaps")
    need(s.implementation in ("rounds", "ragged"), "an exchange of another kind")
    ragged, received = s.implementation == "ragged", [0] * s.devices
    for _, receiver, number, _, size in s.form["shares"]:
        received[receiver] += math.prod(size) if ragged else largest[number]
    return received, 1 if ragged else len(largest)


def _exact(fine: Sequence[int], coarse: Sequence[int]) -> tuple[int, ...]:
    need(all(f % c == 0 for f, c in zip(fine, coarse, strict=True)), "tiles do not merge evenly")
    return tuple(f // c for f, c in zip(fine, coarse, strict=True))


def _minus(a: Sequence[int], b: Sequence[int]) -> list[int]:
    return [x - y for x, y in zip(a, b, strict=True)]


def _meet(
    one: Sequence[int], extent: Sequence[int], other: Sequence[int], reach: Sequence[int]
) -> tuple[list[int], tuple[int, ...]]:
    low = [max(a, b) for a, b in zip(one, other, strict=True)]
    high = (min(a + n, b + m) for a, n, b, m in zip(one, extent, other, reach, strict=True))
    return low, tuple(h - a for h, a in zip(high, low, strict=True))


def window(held: Cells, device: int, at: Sequence[int], size: Sequence[int]) -> tuple[int | slice, ...]:
    """A box of a device's tile, as an index."""
    inside = all(a >= 0 and a + n <= length for a, n, length in zip(at, size, held.shape[1:-1], strict=True))
    need(inside, "elements outside the tile of a device")
    return (device, *(slice(a, a + n) for a, n in zip(at, size, strict=True)))


def read(held: Cells, device: int, at: Sequence[int], size: Sequence[int]) -> Cells:
    """A box of a device's tile."""
    found: Cells = held[window(held, device, at, size)]
    return found


def write(held: Cells, device: int, at: Sequence[int], part: Cells) -> None:
    """Fill a box of a device's tile, where nothing was written yet."""
    box = window(held, device, at, part.shape[:-1])
    need(bool((held[box] == -1).all()), "an element is written twice")
    held[box] = part
