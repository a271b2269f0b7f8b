"""Layout versions of arrays: which of them is moved where an operation needs another one."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import TypeAlias

from redistrib.cache import cached
from redistrib.cost.model import CostModel
from redistrib.errors import TypeFormError
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.plans.plan import Plan
from redistrib.programs.ir.builder import Builder
from redistrib.programs.ir.program import Op, Value, is_effectful, made_by, used_by
from redistrib.programs.ir.windows import Held
from redistrib.synthesis.synthesize import synthesize
from redistrib.theory.bounds import least_received
from redistrib.theory.placement import lower_bound, placement_of

Plans: TypeAlias = dict[tuple[DistType, Mesh, DistType, Mesh, str], Plan]


class LayoutBuilder(Builder):
    """A builder that moves the layout version nearest to the type that an operation needs.

    Attributes:
        rematerialise: computes an array once more in a layout; None where it cannot.
        outside: of the step of a loop, the builder around the loop; None elsewhere. An array from there
            is moved there, once, and is equal at every step.
        constants: values from outside that the operations read, by name.
        halos: for an array in a type the halos that operations share: those of each are cut out of them.
    """

    def __init__(
        self,
        model: CostModel | str | None,
        keep: int | None = None,
        *,
        name: str = "main",
        sources: Mapping[tuple[str, DistType], DistType] | None = None,
        plans: Plans | None = None,
        reserved: Iterable[str] = (),
    ) -> None:
        """An empty program.

        Args:
            model: the objective of the plans of moves; None: moves get no plans.
            keep: for how many operations a version that was moved is kept; None: to the end.
            name: of the program.
            sources: for an array and a needed type, the type of the version to move, where that is not the
                first; None: the nearest is moved.
            plans: of moves, by the types and meshes of both ends and the element type; several programs may share them.
            reserved: names that no version gets.
        """
        super().__init__(name, self.planned, reserved)
        self.model, self.keep, self.sources = model, keep, sources
        self.rematerialise: Callable[[Hashable, Value], Value | None] = lambda key, target: None
        self._plans: Plans = {} if plans is None else plans
        self._used: dict[str, int] = {}
        self.halos: Mapping[tuple[str, DistType], tuple[Held, ...]] = {}
        self.outside: LayoutBuilder | None = None
        self.constants: dict[str, Value] = {}

    def inside(self, name: str) -> LayoutBuilder:
        """An empty builder of the step of a loop, which moves as this one does."""
        step = LayoutBuilder(self.model, self.keep, name=name, sources=self.sources, plans=self._plans)
        step.outside, step.halos = self, self.halos
        return step

    def needed(self, key: Hashable, target: Value) -> Value:
        """The layout version of an array that means `target`: there already, computed again, or moved."""
        if self.outside is not None and key not in self.versions:
            value = self.outside.needed(key, target)
            self.constants[value.name] = value
            return value
        if target.has_halos and not any(value.means(target) for value in self._kept(self.versions[key])):
            shared = replace(target, windows=self.halos.get((str(key), target.type), target.windows))
            equal_windows = shared.windows == target.windows
            self.moved(key, self.needed(key, replace(target, windows=()) if equal_windows else shared), target)
        nearest = self._nearest(key, target)
        self._used[nearest.name] = len(self.ops)
        if nearest.means(target):
            return nearest
        if self.sources is None:
            computed = self.rematerialise(key, target)
            if computed is not None:
                self.versions[key].append(computed)
                return computed
        elsewhere = nearest.place.devices != target.place.devices or bool(target.windows)
        if elsewhere and nearest.type.partial:  # reduced where the summands are, before anything leaves
            self.moved(key, nearest, replace(nearest, type=_reduced(nearest.type, nearest.place.mesh)))
        else:
            self.moved(key, nearest, target)
        return self.needed(key, target)

    def _nearest(self, key: Hashable, target: Value) -> Value:
        usable = [value for value in self._kept(self.versions[key]) if not value.windows or value.means(target)]
        if self.sources is None:
            return min(usable, key=lambda value: (distance(value, target), len(value.type.partial)))
        same = next((value for value in usable if value.means(target)), None)
        source = self.sources.get((self.versions[key][0].name, target.type))
        if same is None and source is not None:
            return self.needed(key, replace(target, type=source))
        return same or usable[0]

    def _kept(self, versions: list[Value]) -> list[Value]:
        if self.keep is None:
            return versions
        oldest = len(self.ops) - self.keep
        return [versions[0], *(value for value in versions[1:] if self._used.get(value.name, len(self.ops)) >= oldest)]

    def planned(self, value: Value, out: Value) -> Plan | None:
        """The plan that moves one value to another; None where a move has no plan."""
        if self.model is None or not has_plan(value, out):
            return None
        key = (value.type, value.place.mesh, out.type, out.place.mesh, value.dtype)
        if key not in self._plans:
            self._plans[key] = synthesize(*key[:4], dtype=value.dtype, model=self.model)
        return self._plans[key]


def has_plan(value: Value, out: Value) -> bool:
    """Whether a move has a plan: between the same devices, to tiles that do not overlap."""
    return value.place.devices == out.place.devices and not out.windows


def _reduced(dist_type: DistType, mesh: Mesh) -> DistType:
    """The type without partial sums whose reduction receives least: each partial axis cuts a dimension or none."""
    before = placement_of(dist_type, mesh)
    candidates = []
    for choice in product((None, *range(dist_type.rank)), repeat=len(dist_type.partial)):
        axes = {i: dim.axes for i, dim in enumerate(dist_type.dims)}
        for axis, i in zip(dist_type.partial, choice, strict=True):
            if i is not None:
                axes[i] = (axis, *axes[i])
        try:
            candidates.append(DistType.cut(dist_type.global_shape, axes, mesh))
        except TypeFormError:
            continue
    return min(candidates, key=lambda reduced: least_received(before, placement_of(reduced, mesh)))


def distance(value: Value, target: Value) -> int:
    """Elements that a move receives: a lower bound between the same devices, an all-reduce for partial sums.

    It is 0 only where nothing has to be done, also for arrays without elements.
    """
    if value.means(target):
        return 0
    reduced = 2 * value.type.local_size * value.place.mesh.size if value.type.partial else 0
    if value.place.devices != target.place.devices or target.windows or value.windows:
        return max(1, reduced + math.prod(target.tile) * len(target.place.devices))
    return reduced or max(1, _missing(value.type, value.place.mesh, target.type, target.place.mesh))


@cached(1 << 14)
def _missing(source: DistType, source_mesh: Mesh, target: DistType, target_mesh: Mesh) -> int:
    """Elements of the target that the devices do not have yet, all devices together."""
    return sum(lower_bound(placement_of(source, source_mesh), placement_of(target, target_mesh)))


def still_read(ops: Sequence[Op], outputs: Sequence[str]) -> list[Op]:
    """The operations whose results are read, in order; constants that were rematerialised for every reader go.

    Operations with effects stay.
    """
    used, needed_ops = set(outputs), []
    for op in reversed(ops):
        if is_effectful(op) or any(value.name in used for value in made_by(op)):
            used.update(used_by(op))
            needed_ops.append(op)
    return needed_ops[::-1]
