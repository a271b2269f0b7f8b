"""What the JSON of a plan does, carried out on element numbers: written apart from the library, which it never uses.

Every device holds an array of the numbers of its elements. A step moves these numbers as its collective would, and
after it every device must hold exactly the tile that the step says. Where tiles are summands, it is also counted how
often each summand of the source is in what a device holds: all who hold a summand must hold the same, and the summands
of an element together each summand of the source once; of a maximum or minimum, at least once. Dimensions shrink by the
greatest common divisor of all edges in them, so sizes may be beyond 64 bits.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.fuzz.placed import MOST_CELLS, Cells, Placed, integer, need, placement, side
from tests.fuzz.placed import TooLarge as TooLarge
from tests.fuzz.placed import Wrong as Wrong
from tests.fuzz.steps import Stage, carry_out

ITEMSIZE = {
    "bool": 1, "int4": 1, "uint4": 1, "int8": 1, "uint8": 1, "float8_e4m3fn": 1, "float8_e5m2": 1, "int16": 2,
    "float16": 2, "bfloat16": 2, "int32": 4, "uint32": 4, "float32": 4, "int64": 8, "float64": 8, "complex64": 8,
    "key<fry>": 8, "complex128": 16,
}  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """What happened.

    Attributes:
        received: elements that each device took in, padding included.
        bound: elements that each device cannot do without: of its target tile those that its source tile lacks; all
            where they are sums; none where they are summands.
        least: elements that all devices together cannot do without.
        height: elements of the largest tile on the way.
        collectives: launched.
    """

    received: tuple[int, ...]
    bound: tuple[int, ...]
    least: int
    height: int
    collectives: int


def interpret(text: str, limit: int | None = None) -> Outcome:
    """Carry out a plan.

    Args:
        text: a plan's JSON; its digest is not looked at.
        limit: bytes per device that tiles may take together; None for no limit.

    Raises:
        Wrong: if it is malformed, moves what a device does not hold, ends elsewhere than it says, sends twice in a
            round, adds a summand twice or not at all, or in another order than it says, has a tile above the larger of
            source and target without a memory limit, or exceeds the limit.
        TooLarge: if it takes more than `MOST_CELLS` to carry out.
    """
    try:
        return _Run(json.loads(text)).outcome(limit)
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise Wrong(f"malformed: {type(error).__name__}: {error}") from error


class _Run:
    def __init__(self, form: dict[str, Any]) -> None:
        self.form = form
        self.version = integer(form["version"])
        self.shape, source = side(form["source"], self.version)
        other, target = side(form["target"], self.version)
        need(self.shape == other, "source and target have different shapes")
        need(len(source.index) == len(target.index), "source and target have different devices")
        self.devices = len(source.index)
        entries = (placement(entry, self.shape, self.devices, self.version) for entry in form["placements"])
        placed = [source, target, *entries]
        divisors = self._divisors(placed)
        self.unit = math.prod(divisors)
        self.divisors = np.array(divisors, dtype=object)
        self.cells = tuple(n // g for n, g in zip(self.shape, divisors, strict=True))
        self.parts = source.summands if self.version > 1 else 0
        self.source, self.target, *self.placements = (
            Placed(p.grid, p.index, p.size, p.label, p.summands, p.reduction,
                   tuple(n // g for n, g in zip(p.size, divisors, strict=True)))
            for p in placed
        )  # fmt: skip

    def _divisors(self, placed: Iterable[Placed]) -> list[int]:
        """Per dimension, what divides every edge of every tile and share."""
        edges: list[set[int]] = [{p.size[i] for p in placed} for i in range(len(self.shape))]
        for step in self.form["steps"]:
            for _, _, _, start, size in step.get("shares", ()):
                need(len(start) == len(size) == len(self.shape), "a share of another rank")
                for i, pair in enumerate(zip(start, size, strict=True)):
                    edges[i].update(map(integer, pair))
        return [math.gcd(*edge) or 1 for edge in edges]

    def outcome(self, limit: int | None) -> Outcome:
        here, received, collectives = self.source, [0] * self.devices, 0
        most = math.inf if self.form["memory_limit"] is not None else max(self.source.volume, self.target.volume)
        held, height, alive, added = self._at_first(), here.volume, 0, 0
        for k, step in enumerate(self.form["steps"]):
            before, after = (self.placements[_position(step[key], self.placements)] for key in ("before", "after"))
            need(before.same(here), f"step {k} starts elsewhere than it left off")
            implementation = step.get("realisation" if self.version == 1 else "implementation", "")
            stage = Stage(step, implementation, before, after, held, self._numbers(after), self.divisors)
            if before.summands > after.summands:
                added += 1
                self._check_order(stage, added)
            held, taken, calls = carry_out(stage)
            self._check(stage, held, k)
            need(after.volume <= most, f"step {k} leaves a tile of {after.volume} elements, above {most}")
            received = [a + b for a, b in zip(received, taken, strict=True)]
            collectives += calls
            between = (before.volume if k else 0) + (after.volume if k + 1 < len(self.form["steps"]) else 0)
            here, height, alive = after, max(height, after.volume), max(alive, between)
        need(here.same(self.target), "the plan ends elsewhere than at the target")
        itemsize = ITEMSIZE.get(self.form["dtype"])
        if limit is not None and itemsize is not None:
            taken_bytes = (self.source.volume + self.target.volume + alive) * itemsize
            need(taken_bytes <= limit, f"tiles take {taken_bytes} bytes, above the limit of {limit}")
        bound, least = self._bounds()
        return Outcome(tuple(received), bound, least, height, collectives)

    def _numbers(self, placed: Placed) -> Cells:
        if self.devices * math.prod(placed.tile) * (1 + self.parts) > MOST_CELLS or math.prod(self.cells) >= 2**62:
            raise TooLarge
        return placed.numbers(self.cells)

    def _at_first(self) -> Cells:
        """What devices hold of the source: of each element its number, and one summand."""
        numbers = self._numbers(self.source)
        held = np.zeros((*numbers.shape, 1 + self.parts), dtype=np.int64)
        held[..., 0] = numbers
        for device, label in enumerate(self.source.label.tolist() if self.parts else ()):
            held[device, ..., 1 + label] = 1
        return held

    def _check(self, stage: Stage, held: Cells, k: int) -> None:
        """Devices hold the tiles that a step says; holders of a summand the same, and all of them the whole."""
        need(np.array_equal(held[..., 0], stage.numbers), f"step {k} leaves other elements than it says")
        if not self.parts or not stage.after.volume:
            return
        if stage.after.summands == 1:
            there = (stage.after.index >= 0).all(axis=1)
            need(bool((held[there][..., 1:] == 1).all()), f"step {k} leaves what is not the sum of all partial sums")
            return
        tiles: dict[tuple[int, ...], dict[int, int]] = {}  # of each tile, the first holder of each summand
        rows = zip(map(tuple, stage.after.index.tolist()), stage.after.label.tolist(), strict=True)
        for device, (row, label) in enumerate(rows):
            first = tiles.setdefault(row, {}).setdefault(label, device)
            need(np.array_equal(held[device], held[first]), f"step {k} leaves holders of one partial sum with two")
        for holders in tiles.values():
            total = held[list(holders.values())][..., 1:].sum(axis=0)
            once = total == 1 if stage.after.reduction == "sum" else total >= 1
            need(bool(once.all()), f"step {k} leaves partial sums that are not the whole")

    def _check_order(self, stage: Stage, added: int) -> None:
        """A fixed order: the library adds, once, the summands of the source, which are numbered as they were."""
        if self.form.get("order") != "fixed" or not self.parts:
            return
        need(added == 1, "sums of sums in a plan of fixed order")
        platform = stage.form["kind"] == "all_reduce" or stage.implementation == "native"
        need(not platform, "the platform adds in a plan of fixed order")
        for device, label in enumerate(stage.before.label.tolist()):
            summands = stage.held[device, ..., 1:]
            alone = summands.sum(axis=-1) == summands[..., label]
            need(bool(alone.all()), "partial sums in another order than at first in a plan of fixed order")

    # ------------------------------------------------------------------------------------------------ bounds

    def _bounds(self) -> tuple[tuple[int, ...], int]:
        """Elements that each device, and all together, cannot do without receiving."""
        one, two = self._numbers(self.source), self._numbers(self.target)
        if self.source.summands == self.target.summands == 1:
            bound = tuple(int((~np.isin(b, a)).sum()) * self.unit for a, b in zip(one, two, strict=True))
            return bound, sum(bound)
        whole = self.target.summands == 1
        return (self.target.volume if whole else 0,) * self.devices, self._least(one, two) * self.unit

    def _least(self, one: Cells, two: Cells) -> int:
        """Cells, where source or target is summands: element by element."""
        elements, p, q = math.prod(self.cells), self.source.summands, self.target.summands
        if self.devices * elements * max(p, q) > 8 * MOST_CELLS:
            raise TooLarge
        holds, wants = np.zeros((2, self.devices, elements), dtype=bool)
        for device in range(self.devices):
            holds[device, one[device].ravel()] = True
            wants[device, two[device].ravel()] = True
        wanted = wants.any(axis=0)
        if q == 1:  # each summand but one must leave, and each who wants the sum must be told but for one who adds
            messages = p + wants.sum(axis=0) - 1 - (wants & holds).any(axis=0)
        elif p > 1:  # each summand must leave that nobody holds who is to hold a summand
            by = [(holds & wants)[self.source.label == label].any(axis=0) for label in range(p)]
            messages = p - np.sum(by, axis=0)
        else:  # somebody must be told unless all holders of some summand have it
            into = [np.nonzero(self.target.label == label)[0] for label in range(q)]
            lacking = [np.where(wants[d].any(axis=0), (wants & ~holds)[d].sum(axis=0), elements + self.devices)
                       for d in into]  # fmt: skip
            messages = np.min(lacking, axis=0)
        return int(messages[wanted].sum())


def _position(value: Any, placements: Sequence[Placed]) -> int:
    need(0 <= integer(value) < len(placements), "no such placement")
    return int(value)
