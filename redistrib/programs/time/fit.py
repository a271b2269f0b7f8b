"""From timed operations to the rates of a device: non-negative least squares on relative errors."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from redistrib.cost.fit import solved
from redistrib.errors import ProfileError
from redistrib.programs.ir.record import WorkClass
from redistrib.programs.ir.work import CLASSES, UNITS
from redistrib.programs.time.machine import Rates, RatesForm
from redistrib.report import Printed, rendered

_BY_MEMORY = 1.25  # times the seconds of its bytes, below which a class is bound by memory
_FASTEST = 1e18  # a coefficient that the samples cannot tell from zero still needs a finite rate


@dataclass(frozen=True)
class OperationSample:
    """One operation on one device, timed.

    Attributes:
        bytes: read and written.
        flops: floating-point operations.
        seconds: the median of the repeats.
        name: of the operation, if it has one.
        work: its class, see `redistrib.programs.ir.work.CLASSES`; empty for products, sums and all without a class.
        dtype: the element type of its operands, if operations on it shall have a rate of their own.
    """

    bytes: int
    flops: int
    seconds: float
    name: str = ""
    work: str = ""
    dtype: str = ""

    @property
    def units(self) -> int:
        """What its class counts."""
        return self.bytes if self.work == WorkClass.TRANSPOSE else self.flops


@dataclass(frozen=True)
class RatesFit(Printed):
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
        return tuple(self._predicted(one) / one.seconds - 1 for one in self.samples)

    def _predicted(self, sample: OperationSample) -> float:
        flops = self.rates.dtypes.get(sample.dtype, self.rates.flops)
        return replace(self.rates, flops=flops).seconds(sample.bytes, sample.flops, sample.work)

    def _text(self) -> str:
        rows = [
            [
                one.name or "operation",
                f"{one.bytes:,}",
                f"{one.flops:,}",
                f"{one.seconds * 1e6:,.1f}",
                f"{self._predicted(one) * 1e6:,.1f}",
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
        classes = "".join(f"\n{name}: {rate / 1e9:,.2f} G{UNITS[name]}/s" for name, rate in rates.classes.items())
        types = "".join(f"\n{name}: {rate / 1e9:,.2f} GFLOP/s" for name, rate in rates.dtypes.items())
        return f"{table}\n{figures}{types}{classes}\nmedian residual {100 * middle:.0f}%"


def fit_rates(samples: Sequence[OperationSample], form: RatesForm = "sum") -> Rates:
    """The launch, bandwidth and flops that fit the samples best; every sample has the same weight at any size.

    The rate of a class, and of an element type, is the geometric mean over its own samples. A class that takes no
    longer than its bytes has no rate: such work costs nothing beside them.
    A roofline is fitted in turns: samples are grouped by the side that bounds them, then each side fits its samples.

    Raises:
        ProfileError: if there are fewer than three samples, or one took no time.

    >>> true = Rates(1e-5, 1e12, 1e14, "sum")
    >>> sizes = [(10**6, 0), (10**9, 10**6), (10**6, 10**12), (10**8, 10**11)]
    >>> found = fit_rates([OperationSample(b, f, true.seconds(b, f)) for b, f in sizes])
    >>> abs(found.launch / true.launch - 1) < 1e-6 and abs(found.flops / true.flops - 1) < 1e-6
    True
    """
    for sample in samples:
        if sample.work and sample.work not in CLASSES:
            raise ProfileError(f"no class of work {sample.work!r}; take one of {', '.join(CLASSES)}, or none")
    every, samples = samples, [sample for sample in samples if not sample.work and not sample.dtype]
    if len(samples) < 3 or any(sample.seconds <= 0 for sample in every):
        beside = " beside those of classes and element types" if len(every) > len(samples) else ""
        raise ProfileError(f"rates need three samples or more that took some time, got {len(samples)}{beside}")
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
    bandwidth, flops = 1 / max(per_byte, 1 / _FASTEST), 1 / max(per_flop, 1 / _FASTEST)
    dtypes = _speeds([one for one in every if one.dtype and not one.work], launch, lambda one: one.dtype)
    classed = [one for one in every if one.work]
    classes = _speeds(classed, launch, lambda one: one.work)
    for name in [name for name in classes if name != WorkClass.TRANSPOSE]:
        own = [one for one in classed if one.work == name]
        slower = statistics.geometric_mean(max(_net(one, launch) * bandwidth / max(one.bytes, 1), 1e-9) for one in own)
        if slower < _BY_MEMORY:
            del classes[name]
    return Rates(launch, bandwidth, flops, form, classes, dtypes)


def _net(sample: OperationSample, launch: float) -> float:
    """Seconds of an operation without its launch."""
    return max(sample.seconds - launch, sample.seconds / 10)


def _speeds(
    samples: Sequence[OperationSample], launch: float, group: Callable[[OperationSample], str]
) -> dict[str, float]:
    """Units per second of each group, beside a launch: the geometric mean over its samples."""
    speeds: dict[str, list[float]] = {}
    for sample in samples:
        if sample.units:
            speeds.setdefault(group(sample), []).append(sample.units / _net(sample, launch))
    return {name: statistics.geometric_mean(rates) for name, rates in speeds.items()}
