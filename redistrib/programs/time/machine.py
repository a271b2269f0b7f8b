"""The machine of the simulator: the rates of a device, and the prices of its links."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Literal, Self, TypeAlias, get_args

from redistrib.cost.chips import GPU_LAUNCH, TPU_LAUNCH, Chip, links_of
from redistrib.cost.model import CostModel
from redistrib.errors import DtypeError, ProfileError
from redistrib.plans.dtypes import bits_of, packed_bytes
from redistrib.programs.ir.record import WorkClass
from redistrib.programs.ir.work import CLASSES

RatesForm: TypeAlias = Literal["roofline", "sum"]
RATES_FORMAT = "redistrib-rates"


@dataclass(frozen=True)
class Rates:
    """Seconds of an operation of so many bytes and floating-point operations on one device.

    Attributes:
        launch: seconds before anything happens.
        bandwidth: bytes per second read and written.
        flops: floating-point operations per second.
        form: `"roofline"`, launch and the longer of the two; `"sum"`, launch and both, as DistIR has it.
        classes: rates of some classes of `redistrib.programs.ir.work.CLASSES`, in its units per second; operations of
            others have the rates above.
        dtypes: floating-point operations per second of operations on some element types; others have `flops`.
    """

    launch: float
    bandwidth: float
    flops: float
    form: RatesForm = "roofline"
    classes: Mapping[str, float] = field(default_factory=dict, hash=False)
    dtypes: Mapping[str, float] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if self.form not in get_args(RatesForm):
            raise ProfileError(f"rates are combined as {' or '.join(get_args(RatesForm))}, not as {self.form!r}")
        if not (self.launch >= 0 and self.bandwidth > 0 and self.flops > 0):
            raise ProfileError(
                f"rates are a launch of no less than 0 seconds and more than 0 bytes and operations per second, "
                f"got {self.launch}, {self.bandwidth} and {self.flops}"
            )
        for name, rate in self.classes.items():
            if name not in CLASSES or not rate > 0:
                why = f"{rate} is no rate of a class of work {name!r}"
                raise ProfileError(f"{why}; give more than 0 to one of {', '.join(CLASSES)}")
        for name, rate in self.dtypes.items():
            try:
                bits_of(name)
            except DtypeError as error:
                raise ProfileError(f"rates of element types: {error}") from None
            if not rate > 0:
                raise ProfileError(
                    f"{rate} is no rate of {name}; give more than 0 floating-point operations per second"
                )

    def to_json(self) -> str:
        """The rates as JSON, which `redistrib.programs.time.rate_files.load_rates` reads."""
        figures = {name: value for name, value in asdict(self).items() if value or name not in ("classes", "dtypes")}
        return json.dumps({"format": RATES_FORMAT, "version": 1, **figures}, indent=2)

    def seconds(self, size: int, flops: int, work: str = "") -> float:
        """Seconds of an operation.

        Args:
            size: bytes read and written.
            flops: operations.
            work: its class, if it has one.
        """
        is_turned = work == WorkClass.TRANSPOSE
        memory = size / (self.classes.get(work, self.bandwidth) if is_turned else self.bandwidth)
        arithmetic = flops / self.classes.get(work, self.flops)
        return self.launch + (max(memory, arithmetic) if self.form == "roofline" else memory + arithmetic)

    def of_kernel(self, size: int, flops: int, work: str = "") -> float:
        """As `seconds`, of an operation that is a kernel: a transposition is a copy, and has no class."""
        return self.seconds(size, flops, "" if work == WorkClass.TRANSPOSE else work)

    def inside(self, units: int, work: str) -> float:
        """Seconds that an operation adds to a kernel that computes it on the way: none, unless its class has a rate.

        Args:
            units: of its class: floating-point operations, or bytes read and written.
            work: its class.
        """
        return units / self.classes.get(work, math.inf)


@dataclass(frozen=True)
class Machine:
    """Equal devices, and their links.

    Attributes:
        name: how it is asked for.
        rates: of operations on a device; None where only moves can be priced.
        links: the cost model of moves; its prices are seconds.
        memory: bytes of memory of a device, if known.
        operations: rates of single operations, by the operation's name.
        flops: operations per second by element type, instead of those of `rates`; types that are missing have
            `rates.flops`.
        fuses: whether the kernels that a compiler makes are timed and counted, and not every operation as one.
        fuses_products: whether kernels with products compute element-wise operations too, as XLA for TPUs has it. XLA
            for GPUs and for CPUs calls a library for most products, and computes scatters alone, copies entries of
            stacked arrays for both, and fills the stacked results of a loop with zeros.
        several_results: whether a kernel may have several results, as XLA has it for all but CPUs.
        flash: whether each pass of an attention is one kernel, see `redistrib.programs.time.kernels.attention`.
        layout: for mesh axes the number of torus dimensions on which each lies; empty if unknown.
        source: where the figures come from.
        chip: the devices, on whose torus or hosts mesh axes lie; None if unknown. The speeds along a torus are those of
            its links, unless `links` have speeds of mesh axes.

    >>> from redistrib.programs.time.constants import machine
    >>> h100 = machine("h100")
    >>> h100.fuses, h100.memory
    (True, 80000000000)
    """

    name: str
    rates: Rates | None
    links: CostModel
    memory: int | None = None
    operations: Mapping[str, Rates] = field(default_factory=dict, hash=False)
    flops: Mapping[str, float] = field(default_factory=dict, hash=False)
    fuses: bool = False
    fuses_products: bool = True
    several_results: bool = True
    flash: bool = False
    layout: Mapping[str, int] = field(default_factory=dict, hash=False)
    source: str = ""
    chip: Chip | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.links.unit != "seconds":
            raise ProfileError(
                f"machine={self.links.name!r} counts {self.links.unit}, and a simulation needs seconds; take a "
                "machine with seconds, such as 'tpu' or 'gpu'"
            )

    @classmethod
    def of_chip(cls, name: str, chip: Chip, links: CostModel | None = None) -> Self:
        """The machine of a chip, whose compiler fuses as XLA does on TPUs if it has a torus, else as on GPUs.

        Its links are those of the chip where none are given.

        >>> from redistrib.cost.chips import CHIPS
        >>> Machine.of_chip("mine", CHIPS["v5p"]).chip.torus
        3
        """
        return cls(
            name,
            Rates(TPU_LAUNCH if chip.torus else GPU_LAUNCH, chip.memory_bandwidth, chip.flops["bfloat16"]),
            links or links_of(name, chip),
            chip.memory,
            flops=chip.flops,
            fuses=True,
            fuses_products=bool(chip.torus),
            source=chip.source,
            chip=chip,
        )

    @property
    def classes(self) -> Mapping[str, float]:
        """Rates of classes of work; see `Rates`."""
        return {} if self.rates is None else self.rates.classes

    def bytes_of(self, elements: int, dtype: str) -> int:
        """Bytes of so many elements in the memory of a device, and on its links.

        Raises:
            DtypeError: if the element type is unknown.
        """
        return packed_bytes(elements, dtype)

    def itemsize_of(self, dtype: str) -> float:
        """Bytes of an element, a fraction where elements are packed; see `bytes_of`."""
        return bits_of(dtype) / 8

    def rates_of(self, operation: str, dtypes: Iterable[str] = ()) -> Rates:
        """The rates of an operation.

        Args:
            operation: its name.
            dtypes: the element types of its operands; it computes in the widest.

        Raises:
            ProfileError: if there are none.
        """
        rates = self.operations.get(operation, self.rates)
        if rates is None:
            raise ProfileError(
                f"{self.name!r} has no rates for operation {operation!r}: it prices moves only; give a Machine"
            )
        by_dtype = self.flops or rates.dtypes
        if by_dtype and operation not in self.operations:
            flops = by_dtype.get(_widest(dtypes, by_dtype), rates.flops)
            return rates if flops == rates.flops else replace(rates, flops=flops)
        return rates

    def seconds_of(
        self,
        operation: str,
        dtypes: Iterable[str],
        size: int,
        flops: int,
        *,
        launches: bool = True,
        work: str = "",
    ) -> float:
        """Seconds of an operation on one device.

        Args:
            operation: its name.
            dtypes: the element types of its operands.
            size: bytes that it reads and writes.
            flops: its floating-point operations.
            launches: whether it is launched alone, and no part of another kernel.
            work: its class, see `redistrib.programs.ir.work`; a transposition is a copy.

        Raises:
            ProfileError: if the machine has no rates for it.
        """
        rates = self.rates_of(operation, dtypes)
        return rates.of_kernel(size, flops, work) - (0.0 if launches else rates.launch)


def _widest(dtypes: Iterable[str], rates: Mapping[str, float]) -> str:
    """The element type with most bits; of several the first with a rate, since indices and masks compute nothing."""
    return max(dict.fromkeys(dtypes), key=lambda dtype: (bits_of(dtype), dtype in rates), default="")
