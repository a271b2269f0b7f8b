"""Links as they were timed: of every kind of collective, in groups of every size, the seconds by bytes received."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from redistrib.cost.figures import KINDS
from redistrib.cost.latency import Latency, LatencyBandwidth
from redistrib.cost.model import CostModel
from redistrib.plans.steps import Step
from redistrib.theory.topology import Topology
from redistrib.theory.weak import WeakEdge, WeakSpace

# Counts bytes received: a byte a second, and copies in no time.
_BYTES = LatencyBandwidth("bytes", {kind: Latency(0.0) for kind in KINDS}, 1.0, 1e30)


@dataclass(frozen=True, eq=False)
class FittedLinks(CostModel):
    """Between the sizes that were timed, and beyond them, seconds go along straight lines.

    A library may send more than one kind is for in groups of some sizes (gloo's reduce-scatter over four devices takes
    as long as an all-reduce), which one speed of links for all does not tell.

    Attributes:
        timed: by `"kind of members"`, such as `"all_reduce of 4"`, pairs of bytes and seconds, two at least, ascending;
            rounds of sends are `"allpermute of 2"`.
    """

    name: str
    timed: Mapping[str, Sequence[Sequence[float]]]
    unit: ClassVar[str] = "seconds"
    normal_forms_suffice: ClassVar[bool] = False

    def step(self, step: Step, itemsize: int, topology: Topology) -> float:
        received = _BYTES.step(step, itemsize, topology)
        if received < 1:
            return 0.0  # slices
        groups = getattr(step, "groups", None)
        members = 2 if groups is None else len(groups[0])
        sizes, seconds = np.array(self.timed[f"{step.kind} of {members}"]).T
        if received <= sizes[-1]:
            return float(np.interp(received, sizes, seconds))
        slope = (seconds[-1] - seconds[-2]) / (sizes[-1] - sizes[-2])
        return float(seconds[-1] + slope * (received - sizes[-1]))

    def edge(self, edge: WeakEdge, space: WeakSpace, itemsize: int, topology: Topology) -> float:
        return 0.0  # nothing is searched with these prices

    @classmethod
    def of(cls, samples: list[dict[str, Any]]) -> FittedLinks:
        """From samples, which have `kind`, `members`, `bytes` received and `seconds`."""
        timed: dict[str, list[tuple[float, float]]] = {}
        for one in samples:
            timed.setdefault(f"{one['kind']} of {one['members']}", []).append((one["bytes"], one["seconds"]))
        return cls("fitted", {name: sorted(pairs) for name, pairs in timed.items()})
