"""Machines by name, each figure with its source. Fixed before any table was simulated; not to be tuned to one."""

from __future__ import annotations

from redistrib.cost.chips import CHIPS, V100, V100_BANDWIDTH, V100_LAUNCH
from redistrib.cost.presets import PRESETS, MachineLike, cost_model
from redistrib.programs.time.machine import Machine, Rates

# NVIDIA V100 in a DGX-2, in fp16.
V100_FLOPS = 90e12  # of 125e12 on the data sheet: the rate that large matrix products reach
V100_MEMORY = 32 * 10**9  # bytes, data sheet; section 5.2 says 32 GB

# Launches below are round figures of the order that runtimes show.
MACHINES: dict[str, Machine] = {
    "v100": Machine(
        "v100",
        Rates(V100_LAUNCH, V100_BANDWIDTH, V100_FLOPS),
        V100,
        V100_MEMORY,
        source="NVIDIA V100 data sheet, and round figures",
    ),
    "gpu": Machine(
        "gpu",
        Rates(5e-6, 3350e9, 989e12),
        PRESETS["gpu"],
        80 * 10**9,
        source="NVIDIA H100 SXM data sheet: 989 TFLOPS in bfloat16 without sparsity, 3.35 TB/s, 80 GB",
    ),
    "tpu": Machine(
        "tpu",
        Rates(2e-6, 819e9, 197e12),
        PRESETS["tpu"],
        16 * 2**30,
        source="Cloud TPU v5e system architecture: 197 TFLOPS in bfloat16, 819 GB/s, 16 GiB",
    ),
    "cpu": Machine(
        "cpu",
        Rates(20e-6, 2e9, 10e9),
        PRESETS["cpu"],
        source="round figures for one of several virtual devices on a few cores; fit your own",
    ),
}
MACHINES |= {name: Machine.of_chip(name, chip, cost_model(name)) for name, chip in CHIPS.items()}


def machine(given: MachineLike) -> Machine:
    """A machine from itself, from its name, or from what has a cost model in seconds, for moves alone.

    Raises:
        ChoiceError: if there is no such machine; see `cost_model`.
        ProfileError: if the cost model does not count seconds.

    >>> machine("v100").rates.flops
    90000000000000.0
    """
    if isinstance(given, Machine):
        return given
    if isinstance(given, str) and given in MACHINES:
        return MACHINES[given]
    links = cost_model(given)
    return Machine(links.name, None, links)
