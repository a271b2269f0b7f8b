"""From timed collectives to a latency-bandwidth profile: non-negative least squares on relative errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from redistrib.cost.latency import KINDS, Latency, LatencyBandwidth
from redistrib.errors import ProfileError
from redistrib.plans.samples import Sample
from redistrib.report import Printed, rendered

# The bandwidth of a coefficient fitted as zero, in bytes per second.
FASTEST = 1e15


@dataclass(frozen=True)
class Fit(Printed):
    """A profile and its predictions for the samples.

    Attributes:
        profile: the fitted model.
        samples: the measured collectives.
        predicted: seconds of each sample under the model.
    """

    profile: LatencyBandwidth
    samples: tuple[Sample, ...]
    predicted: tuple[float, ...]

    @property
    def relative_errors(self) -> tuple[float, ...]:
        """(predicted - measured) / measured, per sample."""
        return tuple(p / s.seconds - 1 for p, s in zip(self.predicted, self.samples, strict=True))

    def _text(self) -> str:
        rows = [
            [
                f"{s.kind} of {s.members}",
                f"{s.received:,}",
                f"{s.seconds * 1e6:,.0f}",
                f"{s.spread * 1e6:,.0f}",
                f"{p * 1e6:,.0f}",
                f"{100 * error:+.0f}%",
            ]
            for s, p, error in zip(self.samples, self.predicted, self.relative_errors, strict=True)
        ]
        table = rendered("fit", ["collective", "bytes", "us", "+-", "model us", "residual"], rows)
        middle = float(np.median(np.abs(self.relative_errors)))
        return f"{table}\nmedian residual {100 * middle:.0f}%"


def fit_profile(samples: Sequence[Sample], name: str, source: str) -> Fit:
    """Fit latencies, link bandwidth and memory bandwidth to samples.

    The fit minimises the sum of squared relative errors, so samples of every size weigh the same. Of a collective
    measured over several transports, the model is fitted to the fastest, and `transports` to all of them.

    Raises:
        ProfileError: if some kind of collective was not measured.
    """
    missing = [kind for kind in KINDS if not any(s.kind == kind for s in samples)]
    if missing:
        raise ProfileError(f"no sample of {missing[0]!r}; a fit needs some of each of {KINDS}")
    transports = {}
    for transport in dict.fromkeys(sample.transport for sample in samples if sample.transport):
        subset = [sample for sample in samples if sample.transport == transport]
        rows = [[1.0, s.members - 1.0, float(s.received)] for s in subset]
        figures = solved(rows, [s.seconds for s in subset])
        transports[transport] = tuple(float(figure) for figure in figures)
    samples = [s for s in samples if not any(_faster(other, s) for other in samples)]
    table = np.array([_row(sample) for sample in samples])
    solution = solved(table, [s.seconds for s in samples])
    latency = {kind: Latency(float(solution[2 * k]), float(solution[2 * k + 1])) for k, kind in enumerate(KINDS)}
    per_byte, per_copy = solution[2 * len(KINDS) :]
    profile = LatencyBandwidth(
        name=name,
        latency=latency,
        bandwidth=float(1 / max(per_byte, 1 / FASTEST)),
        memory_bandwidth=float(1 / max(per_copy, 1 / FASTEST)),
        source=source,
        transports=transports,
    )
    return Fit(profile, tuple(samples), tuple(float(p) for p in table @ solution))


def _faster(a: Sample, b: Sample) -> bool:
    """Whether `a` is the same collective as `b` over a faster transport."""
    same = (a.kind, a.members, a.received, a.copied) == (b.kind, b.members, b.received, b.copied)
    return same and a.transport != b.transport and a.seconds < b.seconds


def solved(rows: Any, seconds: Sequence[float]) -> np.ndarray:
    """The non-negative coefficients with the least squared relative errors of `rows @ coefficients` to seconds."""
    from scipy.optimize import nnls  # slow to import, seldom needed

    weighted = rows / np.array(seconds)[:, None]
    scale = np.linalg.norm(weighted, axis=0)
    scale[scale == 0] = 1.0
    return np.asarray(nnls(weighted / scale, np.ones(len(seconds)))[0] / scale)


def _row(sample: Sample) -> list[float]:
    row = [0.0] * (2 * len(KINDS) + 2)
    k = KINDS.index(sample.kind)
    row[2 * k], row[2 * k + 1] = 1.0, sample.members - 1.0
    row[-2], row[-1] = float(sample.received), float(sample.copied)
    return row
