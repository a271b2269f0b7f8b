"""Boxes that travel between devices, as one table."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from redistrib.arith import Int64, distinct_rows
from redistrib.errors import PlanFormError
from redistrib.theory.boxes import volumes


def frozen(array: object, columns: int | None) -> Int64:
    """A read-only table; an empty one gets `columns` columns, unless None."""
    result = np.array(array, dtype=np.int64)
    if columns is not None and result.size == 0 and result.shape[1:] != (columns,):
        result = result.reshape(0, columns)
    result.flags.writeable = False
    return result


@dataclass(frozen=True, eq=False)
class Shares:
    """Boxes that travel between devices, as columns of one table; row k is one share.

    Attributes:
        src, dst: `[shares]` device numbers, never equal in a row.
        start: `[shares, rank]` first element of the box, in global coordinates.
        size: `[shares, rank]` extent of the box, in elements.
        round: `[shares]` the round it travels in, from 0. In a round every device sends at most one share and
            receives at most one.
    """

    src: Int64
    dst: Int64
    start: Int64
    size: Int64
    round: Int64

    def __post_init__(self) -> None:
        rank = np.asarray(self.start).shape[-1] if np.asarray(self.start).ndim == 2 else 0
        for name, columns in (("src", None), ("dst", None), ("start", rank), ("size", rank), ("round", None)):
            object.__setattr__(self, name, frozen(getattr(self, name), columns))
        rows = len(self.src)
        if any(len(getattr(self, name)) != rows for name in ("dst", "start", "size", "round")):
            raise PlanFormError("the columns of a table of shares must have equal length")

    def __len__(self) -> int:
        return len(self.src)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Shares):
            return NotImplemented
        columns = ("src", "dst", "start", "size", "round")
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in columns)

    def __hash__(self) -> int:
        return hash((self.src.tobytes(), self.dst.tobytes(), self.start.tobytes(), self.round.tobytes()))

    def stacked(self, slab: Int64) -> Shares:
        """The same shares in a stack of partial sums: share k lies in slab `slab[k]`."""
        first = slab[:, None]
        start = np.concatenate([first, self.start.reshape(len(self), -1)], axis=1)
        size = np.concatenate([np.ones_like(first), self.size.reshape(len(self), -1)], axis=1)
        return Shares(self.src, self.dst, start, size, self.round)

    def unstacked(self) -> Shares:
        """Shares of a stack of partial sums, without the dimension of the partial sums."""
        return Shares(self.src, self.dst, self.start[:, 1:], self.size[:, 1:], self.round)

    @property
    def rounds(self) -> int:
        """Number of rounds, one collective permute each."""
        return int(self.round.max()) + 1 if len(self) else 0

    @cached_property
    def _by_round(self) -> tuple[Int64, Int64]:
        """The first share of each round, and the position of each share's round among the rounds."""
        _, leader, number = np.unique(self.round, return_index=True, return_inverse=True)
        return leader, number

    @cached_property
    def mixed(self) -> bool:
        """Whether a round has shares of different shapes."""
        leader, number = self._by_round
        return bool((self.size != self.size[leader[number]]).any())

    def largest(self) -> list[int]:
        """Elements of the largest share of each round."""
        leader, _ = self._by_round
        if not self.mixed:
            return volumes(self.size[leader])
        sizes = [0] * self.rounds
        for number, volume in zip(self.round.tolist(), self.volumes(), strict=True):
            sizes[number] = max(sizes[number], volume)
        return sizes

    def shapes(self) -> list[int]:
        """Number of different shapes in each round."""
        if not self.mixed:
            return [1] * self.rounds
        rows = distinct_rows(np.concatenate([self.round[:, None], self.size], axis=1)).rows
        counts: list[int] = np.bincount(rows[:, 0]).tolist()
        return counts

    def volumes(self) -> list[int]:
        """Elements of each share."""
        return volumes(self.size)
