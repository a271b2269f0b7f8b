"""Machines by name, as far as moves go: two models that count elements, and latency-bandwidth profiles as defaults.

`redistrib calibrate` measures better profiles than these.

The bandwidths are the vendors' published figures. The latencies are round numbers of the order that collective
libraries show on such links; they only decide between few large and many small collectives.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike, sep
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from redistrib.cost.chips import CHIPS, V100, latencies, links_of
from redistrib.cost.exact import ExactCost
from redistrib.cost.latency import LatencyBandwidth
from redistrib.cost.model import CostModel
from redistrib.cost.paper import PaperCost
from redistrib.cost.profiles import load_profile, profile_in
from redistrib.errors import ChoiceError

PRESETS: dict[str, LatencyBandwidth] = {
    "tpu": LatencyBandwidth(
        name="tpu",
        latency=latencies(5e-6, 1e-6),
        bandwidth=200e9,
        memory_bandwidth=819e9,
        slow_bandwidth=3.125e9,
        link_bandwidth=50e9,
        source="Cloud TPU v5e system architecture: 1,600 Gbit/s interchip interconnect per chip over 4 links, "
        "819 GB/s HBM, and "
        "between slices 2 x 100 Gbit/s of data center network for the 8 chips of a host",
    ),
    "gpu": LatencyBandwidth(
        name="gpu",
        latency=latencies(12e-6, 1e-6),
        bandwidth=450e9,
        memory_bandwidth=3350e9,
        slow_bandwidth=50e9,
        devices_per_host=8,
        source="NVIDIA DGX H100: 900 GB/s NVLink both ways, 3.35 TB/s HBM3, a 400 Gbit/s adapter per GPU between hosts",
    ),
    "cpu": LatencyBandwidth(
        name="cpu",
        latency=latencies(300e-6, 100e-6, permute=1e-3),
        bandwidth=4e9,
        memory_bandwidth=2e9,
        slow_bandwidth=1e9,
        swap_bandwidth=5e8,
        source="chosen so that the plans picked come closest to the fastest of those timed, on 136 problems of 8 and "
        "24 virtual XLA:CPU devices on 2 cores, where a round is a meeting of all; between processes, 10 Gbit/s "
        "Ethernet, on which gloo sends one way at a time between two devices; run `redistrib calibrate`",
    ),
    "gloo": LatencyBandwidth(
        name="gloo",
        latency=latencies(70e-6, 30e-6, permute=100e-6),
        bandwidth=2e9,
        memory_bandwidth=4e9,
        slow_bandwidth=1e9,
        source="the ratios of an exchange of two, of one of eight and of three exchanges of two one after the other, "
        "by messages of gloo, timed on 8 ranks of 2 cores; between hosts 10 Gbit/s Ethernet",
    ),
}

MODELS: dict[str, CostModel] = {
    "paper": PaperCost(),
    "exact": ExactCost(),
    **PRESETS,
    "v100": V100,
    **{name: links_of(name, chip) for name, chip in CHIPS.items()},
}


class HasLinks(Protocol):
    """A machine of the simulator, as far as moves go."""

    @property
    def links(self) -> CostModel: ...


MachineLike: TypeAlias = CostModel | HasLinks | str | PathLike[str] | Mapping[str, Any]


def preset_of(platform: str) -> str:
    """The name of the preset of a JAX platform; that of GPUs where the platform has none."""
    return platform if platform in ("cpu", "gpu", "tpu") else "gpu"


def cost_model(machine: MachineLike) -> CostModel:
    """The cost model of a machine, which prices moves on its links.

    Args:
        machine: a cost model, or what has one as its links; a name; the path of a profile that `redistrib calibrate`
            wrote, as a text one that ends in `.json` or has a separator; or the object in it.

    Raises:
        ChoiceError: if it is none of these.
        ProfileError: if the file or the object is no profile.
    """
    if isinstance(machine, str) and machine in MODELS:
        return MODELS[machine]
    links = machine if isinstance(machine, CostModel) else getattr(machine, "links", None)
    if isinstance(links, CostModel):
        return links
    if isinstance(machine, PathLike) or (isinstance(machine, str) and (machine.endswith(".json") or sep in machine)):
        return load_profile(Path(machine))
    if isinstance(machine, Mapping):
        return profile_in(machine)
    raise ChoiceError("unknown machine", value=machine, known=tuple(MODELS))
