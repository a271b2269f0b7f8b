"""What is decided before anything is propagated or searched: types of arguments and results, and pins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from redistrib.lang.types import DistType
from redistrib.programs.schedule.graph_cuts import End, cuts_of
from redistrib.programs.schedule.propagate import Propagation


@dataclass(frozen=True)
class Given:
    """What a caller decides about a graph.

    Attributes:
        types: of inputs and outputs that are given.
        pins: for other inputs and outputs the dimension that an axis cuts; None, left whole.
        work: for operations, by number, the dimension that an axis cuts.
        tied: outputs, by number, that become an input, by name, when the program runs again.
    """

    types: Mapping[End, DistType] = field(default_factory=dict)
    pins: Mapping[End, Mapping[str, int | None]] = field(default_factory=dict)
    work: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    tied: Mapping[int, str] = field(default_factory=dict)

    def cut(self, propagation: Propagation, axis: str) -> None:
        """Make these cuts along an axis; nothing is propagated."""
        whole = {end: {axis: cuts_of(form).get(axis)} for end, form in self.types.items()}
        for end, dims in {**self.pins, **whole}.items():
            if axis in dims:
                name = end if isinstance(end, str) else propagation.graph.outputs[end]
                propagation.cut_array(name, axis, dims[axis])
        for number, cuts in self.work.items():
            if axis in cuts and axis not in propagation.cuts[number]:
                propagation.cut_operation(number, axis, cuts[axis])
