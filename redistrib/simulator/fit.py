"""From timed operations to the rates of a device: non-negative least squares on relative errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from redistrib.cost.fit import solved
from redistrib.errors import ProfileError
from redistrib.report import rendered
from redistrib.simulator.machine import Form, Rates

_FASTEST = 1e18  # a coefficient that the samples cannot tell from zero still needs a finite rate


@dataclass(frozen=True)
class OperationSample:
    """One operation on one device, timed.

    Attributes:
        bytes: read and written.
        flops: floating-point operations.
        seconds: the median of the repeats.
        name: of the operation, if it has one.
    """

    bytes: int
    flops: int
    seconds: float
    name: str = ""


@dataclass(frozen=True)
class RatesFit:
    """Rates and the samples that they are fitted to; printed, a table of the two beside each other.

    Attributes:
        rates: of the device.
        samples: the timed operations.
    """

    rates: Rates
    samples: tuple[OperationSample, ...]

    @property
    def relative_errors(self) -> tuple[float, ...]:
        """(predicted - measured) / measured, per sample."""
        return tuple(self.rates.seconds(one.bytes, one.flops) / one.seconds - 1 for one in self.samples)

    def __str__(self) -> str:
        rows = [
            [
                one.name or "operation",
                f"{one.bytes:,}",
                f"{one.flops:,}",
                f"{one.seconds * 1e6:,.1f}",
                f"{self.rates.seconds(one.bytes, one.flops) * 1e6:,.1f}",
                f"{100 * error:+.0f}%",
            ]
            for one, error in zip(self.samples, self.relative_errors, strict=True)
        ]
        table = rendered("fit", ["operation", "bytes", "flops", "us", "model us", "residual"], rows)
        rates, middle = self.rates, float(np.median(np.abs(self.relative_errors)))
        figures = (
            f"launch {rates.launch * 1e6:,.1f} us, {rates.bandwidth / 1e9:,.2f} GB/s, "
            f"{rates.flops / 1e9:,.2f} GFLOP/s, combined as {rates.form}"
        )
        return f"{table}\n{figures}\nmedian residual {100 * middle:.0f}%"


def fit_rates(samples: Sequence[OperationSample], form: Form = "sum") -> Rates:
    """The launch, bandwidth and flops that fit the samples best; every sample has the same weight at any size.

    A roofline is fitted in turns: samples are grouped by the side that bounds them, then each side fits its samples.

    Raises:
        ProfileError: if there are fewer than three samples, or one took no time.

    >>> true = Rates(1e-5, 1e12, 1e14, "sum")
    >>> sizes = [(10**6, 0), (10**9, 10**6), (10**6, 10**12), (10**8, 10**11)]
    >>> found = fit_rates([OperationSample(b, f, true.seconds(b, f)) for b, f in sizes])
    >>> abs(found.launch / true.launch - 1) < 1e-6 and abs(found.flops / true.flops - 1) < 1e-6
    True
    """
    if len(samples) < 3 or any(sample.seconds <= 0 for sample in samples):
        raise ProfileError(f"rates need three samples or more that took some time, got {len(samples)}")
    table = np.array([[1.0, sample.bytes, sample.flops] for sample in samples])
    seconds = [sample.seconds for sample in samples]
    solution = solved(table, seconds)
    seen: set[bytes] = set()
    while form == "roofline":
        by_memory = table[:, 1] * solution[1] >= table[:, 2] * solution[2]
        if by_memory.tobytes() in seen:  # nothing changes any more, or turns repeat
            break
        seen.add(by_memory.tobytes())
        bound = table.copy()
        bound[by_memory, 2] = 0
        bound[~by_memory, 1] = 0
        solution = solved(bound, seconds)
    launch, per_byte, per_flop = solution.tolist()
    return Rates(launch, 1 / max(per_byte, 1 / _FASTEST), 1 / max(per_flop, 1 / _FASTEST), form)
