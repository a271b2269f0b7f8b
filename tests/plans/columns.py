"""Tables of transfers as named columns, of which a test changes some."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from redistrib.plans.transfers import Transfers
from redistrib.theory.boxes import Boxes

NAMES = "sender", "receiver", "start", "size", "round"


def columns_of(table: Transfers) -> dict[str, npt.NDArray[np.int64]]:
    """Copies of the columns of a table, by name."""
    return {name: column.copy() for name, column in zip(NAMES, table.columns, strict=True)}


def table_of(sender: Any, receiver: Any, start: Any, size: Any, round: Any) -> Transfers:
    """The table of columns, each an array or what makes one."""
    return Transfers(sender, receiver, Boxes(start, size), round)
