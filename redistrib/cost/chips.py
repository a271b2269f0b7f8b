"""Accelerators of today: one table of published figures, each row with its source.

Arithmetic is dense (without sparsity), in operations per second by element type. Links are in bytes per second that a
device receives: of GPUs over the switch or mesh inside a host or rack and over its own adapter between them; of TPUs
one way over one link of the torus, two links along each dimension, and over the data center network between slices.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from redistrib.cost.figures import KINDS
from redistrib.cost.latency import Latency, LatencyBandwidth
from redistrib.errors import ProfileError


def latencies(launch: float, member: float, permute: float | None = None) -> dict[str, Latency]:
    """Latencies of collectives; that of a permute, by default `launch`, does not grow with its devices."""
    return dict.fromkeys(KINDS, Latency(launch, member)) | {
        "allpermute": Latency(launch if permute is None else permute)
    }


GPU_LAUNCH = 5e-6  # seconds of a kernel, a round figure of the order that runtimes show; also below
TPU_LAUNCH = 2e-6
GPU_LATENCY = latencies(12e-6, 1e-7)  # of a collective, round figures for groups of up to thousands
TPU_LATENCY = latencies(5e-6, 1e-7)

# NVIDIA V100 in a DGX-2, the machine of DistIR's evaluation (section 5).
V100_BANDWIDTH = 900e9  # bytes per second of HBM2, data sheet
V100_LINK = 50e9  # bytes per second to another device; NVLink through the switch, a third of 150e9 on the data sheet
V100_LAUNCH = 10e-6  # seconds for a kernel or a collective, a round figure
V100 = LatencyBandwidth(
    name="v100",
    latency=latencies(V100_LAUNCH, 0.0),
    bandwidth=V100_LINK,
    memory_bandwidth=V100_BANDWIDTH,
    source="NVIDIA V100 data sheet; links and launches as in redistrib/cost/chips.py",
)


@dataclass(frozen=True)
class Chip:
    """The figures of an accelerator; `redistrib.programs.time.machine.Machine.of_chip` makes a machine of them.

    Attributes:
        flops: operations per second by element type; any other type computes as bfloat16 does.
        memory: bytes.
        memory_bandwidth: bytes per second.
        link: bytes per second received inside a host, or one way over a link of the torus.
        network: bytes per second received from other hosts, racks or slices.
        group: devices of a host or rack, or of the largest slice.
        torus: dimensions of the torus; 0 for none.
        ring: devices along a dimension of the torus whose multiples close it to a ring.
        source: where the figures come from.

    Raises:
        ProfileError: if `flops` lack bfloat16, or a torus has no number of devices at which it closes.
    """

    flops: Mapping[str, float] = field(hash=False)
    memory: int
    memory_bandwidth: float
    link: float
    network: float
    group: int
    torus: int
    ring: int
    source: str

    def __post_init__(self) -> None:
        if "bfloat16" not in self.flops:
            raise ProfileError("a chip has no flops of 'bfloat16', as which types without a figure compute; give them")
        if self.torus < 0 or (self.torus > 0 and self.ring < 1):
            raise ProfileError(
                f"a torus of {self.torus} dimensions that close at multiples of {self.ring} devices is none; "
                "give ring= at least 1, or torus=0"
            )


_FLOAT8 = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3", "float8_e4m3fnuz", "float8_e5m2fnuz")


def _flops(bfloat16: float, eight: float | None = None, int8: float | None = None, **others: float) -> dict[str, float]:
    """Operations per second by element type; `eight` is of float8 and, unless given, of int8.

    Types of four bits compute as those of eight, which hold their numbers, unless they are given.
    """
    rates = {"bfloat16": bfloat16, "float16": bfloat16}
    if eight is not None:
        rates |= dict.fromkeys((*_FLOAT8, "float4_e2m1fn"), eight)
    if (integers := int8 or eight) is not None:
        rates |= dict.fromkeys(("int8", "uint8", "int4", "uint4"), integers)
    return rates | others


_BOOK = "Austin et al., How to Scale Your Model, part 2 (jax-ml.github.io/scaling-book/tpus), table of TPU specs"
_ADAPTER = "network: one 400 Gbit/s adapter for each GPU"

CHIPS: dict[str, Chip] = {
    "a100": Chip(
        _flops(312e12, None, 624e12, int4=1248e12, uint4=1248e12, float32=156e12),
        80 * 10**9, 2039e9, 300e9, 25e9, 8, 0, 0,
        "NVIDIA A100 80GB SXM data sheet: bfloat16 312, TF32 156, int8 624, int4 1,248 TFLOPS, 80 GB, 2,039 GB/s, "
        "NVLink 600 GB/s both ways; DGX A100 data sheet: 8 GPUs, an adapter of 200 Gbit/s for each",
    ),
    "h100": Chip(
        _flops(989e12, 1979e12, float32=494e12), 80 * 10**9, 3350e9, 450e9, 50e9, 8, 0, 0,
        "NVIDIA H100 SXM data sheet, half of its figures with sparsity: bfloat16 989, float8 and int8 1,979, TF32 494 "
        f"TFLOPS; 80 GB, 3.35 TB/s, NVLink 900 GB/s both ways; DGX H100: 8 GPUs; {_ADAPTER}",
    ),
    "h200": Chip(
        _flops(989e12, 1979e12, float32=494e12), 141 * 10**9, 4800e9, 450e9, 50e9, 8, 0, 0,
        "NVIDIA H200 SXM data sheet: arithmetic of the H100, 141 GB, 4.8 TB/s, NVLink 900 GB/s both ways; "
        f"DGX H200: 8 GPUs; {_ADAPTER}",
    ),
    "b200": Chip(
        _flops(2250e12, 4500e12, float4_e2m1fn=9000e12, float32=1100e12), 180 * 10**9, 8000e9, 900e9, 50e9, 8, 0, 0,
        "NVIDIA Blackwell architecture brief, HGX B200, without sparsity: bfloat16 2.25, float8 and int8 4.5, float4 "
        "9, TF32 1.1 PFLOPS; DGX B200 data sheet: 1,440 GB and 64 TB/s in 8 GPUs, NVLink 1.8 TB/s both ways; "
        f"{_ADAPTER}",
    ),
    "gb200": Chip(
        _flops(2500e12, 5000e12, float4_e2m1fn=10000e12, float32=1250e12), 186 * 10**9, 8000e9, 900e9, 50e9, 72, 0, 0,
        "NVIDIA GB200 NVL72 data sheet, 72 GPUs in a rack, half of its figures with sparsity: bfloat16 180, float8 and "
        f"int8 360, float4 720, TF32 90 PFLOPS; 13.4 TB, 576 TB/s; NVLink 130 TB/s both ways; {_ADAPTER}",
    ),
    "mi300x": Chip(
        _flops(1307.4e12, 2614.9e12, float32=163.4e12), 192 * 10**9, 5300e9, 448e9, 50e9, 8, 0, 0,
        "AMD Instinct MI300X data sheet: bfloat16 1,307.4, float8 and int8 2,614.9, float32 163.4 TFLOPS, 192 GB, "
        "5.3 TB/s, 7 Infinity Fabric links of 128 GB/s both ways; 8 GPUs on a platform; XLA asks hipBLASLt for float32 "
        f"products in float32, so that the sheet's TF32, 653.7, does not count; {_ADAPTER}",
    ),
    "v4": Chip(
        _flops(275e12, None, 275e12), 32 * 2**30, 1200e9, 45e9, 6.25e9, 4096, 3, 4,
        "Cloud TPU v4 system architecture (docs.cloud.google.com/tpu/docs/v4): bfloat16 and int8 275 TFLOPS, 32 GiB, "
        f"1,200 GB/s, 4,096 chips; links and network: {_BOOK}",
    ),
    "v5e": Chip(
        _flops(197e12, None, 393e12), 16 * 2**30, 819e9, 45e9, 3.125e9, 256, 2, 16,
        "Cloud TPU v5e system architecture: bfloat16 197, int8 393 TFLOPS, 16 GiB, 819 GB/s, 256 chips; 2 x 100 Gbit/s "
        f"for the 8 chips of a host; links: {_BOOK}",
    ),
    "v5p": Chip(
        _flops(459e12, None, 918e12), 95 * 2**30, 2765e9, 90e9, 6.25e9, 8960, 3, 4,
        "Cloud TPU v5p system architecture (docs.cloud.google.com/tpu/docs/v5p): bfloat16 and float8 459 TFLOPS, "
        f"95 GiB, 2,765 GB/s, 8,960 chips, 50 Gbit/s of network for each; int8 918 TOPS, links: {_BOOK}",
    ),
    "v6e": Chip(
        _flops(918e12, None, 1836e12), 32 * 2**30, 1640e9, 90e9, 12.5e9, 256, 2, 16,
        "Cloud TPU v6e system architecture: bfloat16 918, int8 1,836 TFLOPS, 32 GiB, 1,640 GB/s, 256 chips, 100 Gbit/s "
        f"of network for each; links: {_BOOK}",
    ),
    "tpu7x": Chip(
        _flops(2307e12, 4614e12, 2307e12), 192 * 2**30, 7380e9, 100e9, 12.5e9, 9216, 3, 4,
        "Cloud TPU7x system architecture (docs.cloud.google.com/tpu/docs/tpu7x): bfloat16 2,307, float8 4,614 TFLOPS, "
        "192 GiB, 7,380 GB/s, 9,216 chips, interconnect 1,200 GB/s both ways over 6 links, network 100 Gbit/s for "
        "each; it has no figure of int8, which counts as bfloat16",
    ),
}  # fmt: skip


def links_of(name: str, chip: Chip) -> LatencyBandwidth:
    """The links of a chip as a cost model, where nothing is known of how mesh axes lie on them.

    A torus is then as fast as all its links together, which only groups that span all its dimensions reach.
    """
    return LatencyBandwidth(
        name=name,
        latency=TPU_LATENCY if chip.torus else GPU_LATENCY,
        bandwidth=2 * chip.torus * chip.link if chip.torus else chip.link,
        memory_bandwidth=chip.memory_bandwidth,
        slow_bandwidth=chip.network,
        devices_per_host=chip.group,
        source=chip.source,
    )
