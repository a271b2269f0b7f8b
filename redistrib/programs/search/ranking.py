"""The best candidates, measured, beside their predictions (DistIR, section 6.3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from redistrib.programs.search.picture import draw
from redistrib.programs.search.timed import Measured, Timed
from redistrib.report import ShownInNotebooks, counted, rendered


@dataclass(frozen=True)
class Ranking(ShownInNotebooks):
    """Candidates that were run, the fastest first.

    Attributes:
        machine: name of the machine that the seconds were predicted for.
        runs: name of each candidate, its place by prediction, from 1, seconds predicted, and seconds of its calls.

    >>> import jax.numpy as jnp
    >>> import redistrib as rd
    >>> args = jnp.ones((64, 8)), jnp.ones((8, 8))
    >>> found = rd.search(lambda x, w: x @ w, args, {"d": 4}, progress=False)
    >>> ranking = found.measure(args, repeats=2)
    >>> [name for name, *_ in ranking.runs]
    ['{d:4}']
    """

    machine: str
    runs: tuple[tuple[str, int, float, Measured], ...]

    @property
    def correlation(self) -> float:
        """Spearman's rank correlation of predicted and measured seconds; NaN where either are all equal or there is
        one candidate."""
        from scipy.stats import spearmanr

        predicted, measured = ([run[2] for run in self.runs], [run[3].seconds for run in self.runs])
        if len(set(predicted)) < 2 or len(set(measured)) < 2:
            return float("nan")
        return float(spearmanr(predicted, measured).statistic)

    def picture(self, path: str | Path) -> Path:
        """Draw predicted over measured seconds, a point for each candidate. Needs matplotlib."""
        draw(self.machine, [(predicted, ran) for _, _, predicted, ran in self.runs], Path(path))
        return Path(path)

    def _text(self) -> str:
        rows = [
            [name, str(place), f"{seconds * 1e3:,.3f}", f"{ran.seconds * 1e3:,.3f}", f"{seconds / ran.seconds:.3g}"]
            for name, place, seconds, ran in self.runs
        ]
        title = f"{counted(len(rows), 'candidate', 'candidates')} run, predicted for {self.machine}"
        columns = ["devices", "place predicted", "ms predicted", "ms measured", "predicted / measured"]
        correlation = "" if np.isnan(self.correlation) else f"\nrank correlation {self.correlation:.2f}"
        return rendered(title, columns, rows) + correlation


def ranked(
    candidates: Sequence[Timed], args: Sequence[Any], repeats: int, machine: str, report_progress: Callable[[str], None]
) -> Ranking:
    """Run candidates in the order of their predictions, and rank them by the seconds of their calls."""
    runs = []
    for place, candidate in enumerate(candidates, start=1):
        report_progress(f"{place} of {len(candidates)}: {candidate.name}")
        runs.append((candidate.name, place, candidate.seconds, candidate.measure(args, repeats)))
    return Ranking(machine, tuple(sorted(runs, key=lambda run: run[3].seconds)))
