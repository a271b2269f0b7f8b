"""The twenty programs by name."""

from __future__ import annotations

from bench.programs import learning, numeric, transformer
from bench.programs.case import SIZES, Case


def cases(size: str = "small") -> dict[str, Case]:
    """Every program by its name; `size` is one of `SIZES`."""
    number = SIZES.index(size)
    found = [*transformer.cases(number), *learning.cases(number), *numeric.cases(number)]
    return {case.name: case for case in found}
