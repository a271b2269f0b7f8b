"""The twenty programs by name."""

from __future__ import annotations

from bench.programs import learning, numeric, transformer
from bench.programs.case import Case


def cases(full: bool = False) -> dict[str, Case]:
    """Every program by its name; `full` for sizes of life, which take gigabytes to run."""
    found = [*transformer.cases(full), *learning.cases(full), *numeric.cases(full)]
    return {case.name: case for case in found}
