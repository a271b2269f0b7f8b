"""The figures of a machine for the latency-bandwidth model, and their JSON form, a profile."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Self

from redistrib.cost.collective import Latency
from redistrib.cost.fields import figure, figures, typed
from redistrib.cost.model import CostModel
from redistrib.errors import ProfileError
from redistrib.errors.base import cut, shown
from redistrib.lang.mesh import MOST_DEVICES

FORMAT = "redistrib-profile"
VERSION = 1
KINDS = ("allgather", "alltoall", "allpermute")
REDUCTIONS = ("reduce_scatter", "all_reduce")  # optional: by default the latency of an all-to-all, and of a gather

# Absent from a profile where None.
_LATER = ("host_bandwidth", "link_bandwidth", "swap_bandwidth", "storage_bandwidth")

_LARGEST = 1e30  # of a figure, and the inverse of the smallest bandwidth: sums and ratios stay finite


@dataclass(frozen=True)
class Figures(CostModel):
    """The measured figures of a machine: seconds of calls, speeds of links and of local copies.

    Attributes:
        name: recorded in plans.
        latency: per kind ("allgather", "alltoall", "allpermute"; a round of an exchange is an "allpermute"). Those of
            "reduce_scatter" and "all_reduce" may be missing: then a reduce-scatter has that of an all-to-all, and an
            all-reduce those of a reduce-scatter and an all-gather.
        bandwidth: bytes per second a device receives over the fast links.
        memory_bandwidth: bytes per second of a local copy (read and written once).
        slow_bandwidth: bytes per second a device receives over links between hosts; None where there are none.
        devices_per_host: consecutive device numbers that share fast links, where the topology is unknown.
        axis_bandwidth: bytes per second per mesh axis, for meshes whose axes have links of different speed; an
            axis not named has `bandwidth`. It overrides `devices_per_host`.
        fused_exchange: whether the backend carries a whole exchange in one call, as MPI's Alltoallw and the ragged
            all-to-all of TPUs and GPUs do, and not in rounds; exchanges are then planned as `"ragged"`.
        source: origin of the figures.
        transports: seconds of a launch, of a further member and of a received byte, by name of a transport. A backend
            with several transports chooses by them; prices of plans do not depend on them.
        host_bandwidth: bytes per second in each direction through the link that the devices of a host share;
            `slow_bandwidth` is then the speed of one device alone. None where every device has a link.
        swap_bandwidth: bytes per second, each way, between two devices of different hosts that send to one another,
            where no other device of their hosts can take part; None where this is as fast as one way alone.
        link_bandwidth: bytes per second over one link of a torus in one direction. For a known torus it overrides
            `bandwidth`; None for other networks.
        storage_bandwidth: bytes per second that a host reads from the storage of weights; None where that was not
            measured. No price of a plan depends on it.
    """

    name: str
    latency: Mapping[str, Latency]
    bandwidth: float
    memory_bandwidth: float
    slow_bandwidth: float | None = None
    devices_per_host: int | None = None
    axis_bandwidth: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    fused_exchange: bool = False
    source: str = ""
    transports: Mapping[str, tuple[float, ...]] = field(default_factory=lambda: MappingProxyType({}))
    host_bandwidth: float | None = None
    link_bandwidth: float | None = None
    swap_bandwidth: float | None = None
    storage_bandwidth: float | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        missing = [kind for kind in KINDS if kind not in self.latency]
        if missing:
            raise ProfileError(
                f"profile {shown(self.name)} has no latency for {missing[0]!r}; it needs one for each of {KINDS}"
            )
        speeds = [self.bandwidth, self.memory_bandwidth, *self.axis_bandwidth.values()]
        others = (self.slow_bandwidth, *(getattr(self, name) for name in _LATER))
        speeds += [speed for speed in others if speed is not None]
        for speed in speeds:
            if not 1 / _LARGEST <= speed <= _LARGEST:
                raise ProfileError(
                    f"profile {shown(self.name)} has a bandwidth of {shown(speed)}; a bandwidth is a positive number "
                    f"of bytes per second, from {1 / _LARGEST:g} to {_LARGEST:g}"
                )
        for kind in (kind for kind in (*KINDS, *REDUCTIONS) if kind in self.latency):
            latency = self.latency[kind]
            if not (0 <= latency.launch <= _LARGEST and 0 <= latency.member <= _LARGEST):
                raise ProfileError(
                    f"profile {shown(self.name)} has for {kind!r} the latency {shown(latency)}; "
                    f"a latency is a number of seconds from 0 to {_LARGEST:g}"
                )
        for name, seconds in self.transports.items():
            if not all(0 <= figure <= _LARGEST for figure in seconds):
                raise ProfileError(
                    f"profile {shown(self.name)} has for transport {shown(name)} the figures {shown(seconds)}; "
                    f"each is a number of seconds from 0 to {_LARGEST:g}"
                )
        if self.devices_per_host is not None and not 1 <= self.devices_per_host <= MOST_DEVICES:
            raise ProfileError(
                f"profile {shown(self.name)} has {shown(self.devices_per_host)} devices per host; "
                f"a host has from 1 to {MOST_DEVICES}"
            )

    def __hash__(self) -> int:
        return hash((self.name, self.bandwidth, self.memory_bandwidth, self.slow_bandwidth, self.devices_per_host))

    def to_json(self) -> str:
        """The profile as JSON text; `from_json` reads it back."""
        data = {
            "format": FORMAT,
            "version": VERSION,
            "name": self.name,
            "latency": {kind: [lat.launch, lat.member] for kind, lat in self.latency.items()},
            "bandwidth": self.bandwidth,
            "memory_bandwidth": self.memory_bandwidth,
            "slow_bandwidth": self.slow_bandwidth,
            "devices_per_host": self.devices_per_host,
            "axis_bandwidth": dict(self.axis_bandwidth),
            "one_call": self.fused_exchange,
            "source": self.source,
        }
        if self.transports:
            data["transports"] = {name: list(figures) for name, figures in self.transports.items()}
        later = {name: getattr(self, name) for name in _LATER}
        data |= {name: speed for name, speed in later.items() if speed is not None}
        return json.dumps(data, indent=2)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """A profile from JSON text.

        Raises:
            ProfileError: if the text is no profile of this version.
        """
        try:
            data = json.loads(text)
        except (ValueError, TypeError) as error:
            raise ProfileError(f"a profile must be JSON, but {error}") from None
        except RecursionError:
            raise ProfileError(
                "a profile must be JSON that is 3 deep, but this is nested too deep to be read"
            ) from None
        if not isinstance(data, dict) or data.get("format") != FORMAT or data.get("version") != VERSION:
            raise ProfileError(f"this is no {FORMAT} of version {VERSION}; write one with `redistrib calibrate`")
        axes = typed(data, "axis_bandwidth", dict)
        older: dict[str, Any] = {"transports": {}} | dict.fromkeys(_LATER)
        data = older | data
        transports = typed(data, "transports", dict)
        return cls(
            name=typed(data, "name", str),
            latency={
                kind: Latency(*figures(pair, f"the latency of {cut(kind)}"))
                for kind, pair in typed(data, "latency", dict).items()
            },
            bandwidth=typed(data, "bandwidth", int, float),
            memory_bandwidth=typed(data, "memory_bandwidth", int, float),
            slow_bandwidth=typed(data, "slow_bandwidth", int, float, type(None)),
            devices_per_host=typed(data, "devices_per_host", int, type(None)),
            axis_bandwidth={axis: figure(speed, f"the bandwidth of axis {cut(axis)}") for axis, speed in axes.items()},
            fused_exchange=typed(data, "one_call", bool, type(None)) or False,
            source=typed(data, "source", str),
            transports={
                name: tuple(figures(value, f"the seconds of transport {cut(name)}", 3))
                for name, value in transports.items()
            },
            **{name: typed(data, name, int, float, type(None)) for name in _LATER},
        )
