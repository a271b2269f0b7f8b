"""What `rd.distribute`, `rd.search` and `rd.pipeline` are asked alike, as one value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from redistrib.cost.model import CostModel
from redistrib.cost.presets import MachineLike, cost_model, preset_of
from redistrib.lang.mesh import Mesh
from redistrib.programs.ir.graph import Array
from redistrib.programs.rules.traced import TraceOptions
from redistrib.programs.run.devices import machine_on
from redistrib.programs.schedule.tactics import matching
from redistrib.programs.time.machine import Machine
from redistrib.programs.time.torus_layout import laid_as
from redistrib.sizes import parse_size


@dataclass(frozen=True)
class ProgramOptions:
    """What is asked of the program of a function, whether a schedule cuts it, a search or stages.

    Attributes:
        given: the machine, as the caller gives it; None for the preset of the devices' platform.
        tracing: how the function is traced; it names the platform.
        most: bytes that a device may hold; None for no limit.
        donate: arguments that are given up, by name.
    """

    given: MachineLike | None
    tracing: TraceOptions
    most: int | None = None
    donate: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, given: MachineLike | None, tracing: TraceOptions, memory_limit: int | str | None, donate: Sequence[str]
    ) -> ProgramOptions:
        """The options as a caller gives them: a limit with a unit, and a name alone.

        Raises:
            ChoiceError: if the limit is no size.
        """
        most = None if memory_limit is None else parse_size(memory_limit)
        return cls(given, tracing, most, (donate,) if isinstance(donate, str) else tuple(donate))

    def donated(self, inputs: Sequence[Array]) -> tuple[str, ...]:
        """The inputs that are given up, each once.

        Raises:
            CutError: if a name is that of no argument.
        """
        return tuple(dict.fromkeys(array.name for name in self.donate for array in matching(name, inputs)))

    def laid(self, mesh: Mesh, layout: Mapping[str, int]) -> ProgramOptions:
        """The same, where the axes of a mesh lie so on the torus of the machine."""
        machine = laid_as(self.machine, mesh, layout)
        return self if self.given is None or machine is self.machine else replace(self, given=machine)

    @cached_property
    def links(self) -> CostModel:
        """The costs of moves, by which they are planned."""
        return cost_model(self.given or preset_of(self.tracing.platform))

    @cached_property
    def machine(self) -> Machine:
        """The machine on which time and memory are predicted."""
        return machine_on(self.given, self.tracing.platform)
