"""Summaries of paired measurements: medians, geometric means, and bootstrap intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

CONFIDENCE = 0.95
RESAMPLES = 2000


@dataclass(frozen=True)
class Interval:
    """An estimate and its bootstrap interval at 95%."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]"


def geomean(values: Sequence[float]) -> float:
    """Geometric mean; NaN for no values."""
    return math.exp(sum(math.log(v) for v in values) / len(values)) if values else math.nan


def bootstrap_median(values: Sequence[float], seed: int = 0) -> Interval:
    """Median of repeated measurements of one problem, with its bootstrap interval."""
    return _bootstrap(np.asarray(values, dtype=float), np.median, seed)


def bootstrap_geomean(values: Sequence[float], seed: int = 0) -> Interval:
    """Geometric mean over problems, with its bootstrap interval over problems."""
    if not values:
        return Interval(math.nan, math.nan, math.nan)
    logs = _bootstrap(np.log(np.asarray(values, dtype=float)), np.mean, seed)
    return Interval(math.exp(logs.value), math.exp(logs.low), math.exp(logs.high))


def _bootstrap(data: np.ndarray, statistic: object, seed: int) -> Interval:
    assert callable(statistic)
    rng = np.random.default_rng(seed)
    samples = data[rng.integers(0, len(data), size=(RESAMPLES, len(data)))]
    estimates = statistic(samples, axis=1)
    tail = 100 * (1 - CONFIDENCE) / 2
    return Interval(
        float(statistic(data)), float(np.percentile(estimates, tail)), float(np.percentile(estimates, 100 - tail))
    )


def paired_ratio(theirs: Sequence[float], ours: Sequence[float]) -> Interval:
    """Median over rounds of theirs / ours within a round, with its bootstrap interval."""
    return bootstrap_median([t / o for t, o in zip(theirs, ours, strict=True)])


def quantile(values: Sequence[float], q: float) -> float:
    """The `q` quantile (0 to 1), NaN for no values."""
    return float(np.quantile(np.asarray(values, dtype=float), q)) if len(values) else math.nan


def spearman(first: Sequence[float], second: Sequence[float]) -> float:
    """Rank correlation of two lists, NaN where either is constant or shorter than two."""
    if len(set(first)) < 2 or len(set(second)) < 2:
        return math.nan
    import scipy.stats  # takes seconds

    return float(scipy.stats.spearmanr(first, second).statistic)
