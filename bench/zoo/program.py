"""A program of the zoo."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Program:
    """A function of a library, and the cuts of its arguments over 8 devices.

    Attributes:
        name, library: names of the program and of its library.
        function: function of trees of arrays.
        args: the arguments.
        cuts: for every mesh axis, in order, the arguments that it cuts, see `rd.along`.
        mesh: sizes of the axes by name.
        tolerance: largest difference of results, over the largest element of each.
        note: the reason why XLA receives less, for the table.
    """

    name: str
    library: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    cuts: tuple[tuple[str, Mapping[str, Any]], ...]
    mesh: Mapping[str, int] = field(default_factory=lambda: {"d": 8})
    tolerance: float = 2e-4
    note: str = ""
