"""The fields of a step beside its placements: the JSON form of each, its digest, and its devices under other numbers.

A kind of step lists its fields (`Step.fields`); what is known of a value by its form alone stands here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from redistrib.errors.base import shown
from redistrib.plans._json import list_of, numbers_of, refuse, row_of, table_of
from redistrib.plans.transfers import Transfers
from redistrib.theory.boxes import Boxes
from redistrib.theory.placement import Int64


@dataclass(frozen=True)
class Field(ABC):
    """A field of a step.

    Attributes:
        name: of the attribute, and of its entry in the JSON form.
    """

    name: str

    def key(self, version: int) -> str:
        """The name of its entry in a version of the JSON form."""
        return self.name

    @abstractmethod
    def form(self, value: Any) -> Any:
        """The JSON form of a value."""

    @abstractmethod
    def read(self, entry: Any, where: str, rank: int) -> Any:
        """The value of a JSON form, for arrays of a rank; `where` names the entry in errors.

        Raises:
            PlanJsonError: if no step has such a value.
        """

    @abstractmethod
    def bytes(self, value: Any) -> bytes:
        """Bytes that differ between values that differ."""

    def renumbered(self, value: Any, number: Int64) -> Any:
        """The value where device d has the number `number[d]`; a field without devices keeps its value."""
        return value

    def moved(self, value: Any, boxes: Callable[[Transfers], Transfers]) -> Any:
        """The value with its boxes replaced; a field without boxes keeps its value."""
        return value


@dataclass(frozen=True)
class DeviceField(Field):
    """Device numbers.

    Attributes:
        columns: of a row; None for any number, 0 for a plain list.
    """

    columns: int | None

    def form(self, value: Int64) -> Any:
        return value.tolist()

    def read(self, entry: Any, where: str, rank: int) -> Int64:
        return table_of(entry, where, self.columns) if self.columns != 0 else numbers_of(entry, where)

    def bytes(self, value: Int64) -> bytes:
        return f"{value.shape}".encode() + value.tobytes()

    def renumbered(self, value: Int64, number: Int64) -> Int64:
        return number[value]


@dataclass(frozen=True)
class TransferField(Field):
    """Boxes with sender, receiver and round; a row of the JSON form is `[src, dst, round, start, size]`."""

    def form(self, value: Transfers) -> Any:
        sender, receiver, start, size, number = (column.tolist() for column in value.columns)
        return [list(row) for row in zip(sender, receiver, number, start, size, strict=True)]

    def read(self, entry: Any, where: str, rank: int) -> Transfers:
        rows = list_of(entry, where)
        for k, row in enumerate(rows):
            if not isinstance(row, list) or len(row) != 5:
                refuse(f"{where}[{k}]", f"is {shown(row)}, a box is [src, dst, round, start, size]")
        heads = table_of([row[:3] for row in rows], where, 3)
        start, size = (table_of([row[k] for row in rows], where, rank) for k in (3, 4))
        return Transfers(heads[:, 0], heads[:, 1], Boxes(start, size), heads[:, 2])

    def bytes(self, value: Transfers) -> bytes:
        return f"{value.box.start.shape}".encode() + b"".join(column.tobytes() for column in value.columns)

    def renumbered(self, value: Transfers, number: Int64) -> Transfers:
        return value.renumbered(number)

    def moved(self, value: Transfers, boxes: Callable[[Transfers], Transfers]) -> Transfers:
        return boxes(value)


@dataclass(frozen=True)
class WordField(Field):
    """One of a few words.

    Attributes:
        words: the words.
        subject: what runs in one of these ways, in errors.
    """

    words: tuple[str, ...]
    subject: str

    def key(self, version: int) -> str:
        return "realisation" if version == 1 else self.name

    def form(self, value: str) -> Any:
        return value

    def read(self, entry: Any, where: str, rank: int) -> str:
        if entry not in self.words:
            refuse(where, f"is {shown(entry)}, {self.subject} runs as {' or '.join(map(repr, self.words))}")
        return str(entry)

    def bytes(self, value: str) -> bytes:
        return value.encode()


@dataclass(frozen=True)
class SplitField(Field):
    """Numbers that rise from 0 to the number of partial sums before the step."""

    def form(self, value: tuple[int, ...]) -> Any:
        return list(value)

    def read(self, entry: Any, where: str, rank: int) -> tuple[int, ...]:
        if not (points := tuple(row_of(entry, where))):
            refuse(where, "is empty; split points rise from 0 to the number of partial sums before the step")
        return points

    def bytes(self, value: tuple[int, ...]) -> bytes:
        return np.array(value, dtype=np.int64).tobytes()
