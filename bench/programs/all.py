"""The twenty programs by name."""

from __future__ import annotations

from bench.programs import learning, numeric, transformer
from bench.programs.case import SIZES, Case


def cases(size: str = "small") -> dict[str, Case]:
    """Every program by its name, at one of `SIZES`."""
    number = SIZES.index(size)
    return {case.name: case for module in (transformer, learning, numeric) for case in module.cases(number)}
