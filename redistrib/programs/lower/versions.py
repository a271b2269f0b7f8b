"""Layout versions of arrays: which of them is moved where an operation needs another one."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import replace
from itertools import product

from redistrib.cache import cached
from redistrib.cost.model import CostModel
from redistrib.errors import TypeFormError
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.plans.plan import Plan
from redistrib.programs.ir.builder import Builder
from redistrib.programs.ir.program import Op, Value, is_effectful, made_by, used_by
from redistrib.synthesis.synthesize import synthesize
from redistrib.theory.bounds import least_received
from redistrib.theory.placement import lower_bound, placement_of


class MovePlanner:
    """Plans of moves, each made once.

    Args:
        model: their objective; None: moves get no plans.
    """

    def __init__(self, model: CostModel | str | None) -> None:
        self.model = model
        self._plans: dict[tuple[DistType, Mesh, DistType, Mesh, str], Plan] = {}

    def __call__(self, value: Value, out: Value) -> Plan | None:
        """The plan that moves one value to another; None where a move has no plan."""
        if self.model is None or not has_plan(value, out):
            return None
        key = (value.type, value.place.mesh, out.type, out.place.mesh, value.dtype)
        if key not in self._plans:
            self._plans[key] = synthesize(*key[:4], dtype=value.dtype, model=self.model)
        return self._plans[key]


class LayoutBuilder(Builder):
    """A builder that moves the layout version nearest to the one that an operation needs, of several places."""

    def needed(self, key: Hashable, target: Value) -> Value:
        """The layout version of an array that means `target`: there already, or moved."""
        if target.has_halos and not any(value.means(target) for value in self.versions[key]):
            self.moved(key, self.needed(key, replace(target, windows=())), target)
        usable = [value for value in self.versions[key] if not value.windows or value.means(target)]
        source = usable[nearest(usable, target)]
        if source.means(target):
            return source
        elsewhere = source.place.devices != target.place.devices or bool(target.windows)
        if elsewhere and source.type.partial:  # reduced where the summands are, before anything leaves
            self.moved(key, source, replace(source, type=_reduced(source.type, source.place.mesh)))
        else:
            self.moved(key, source, target)
        return self.needed(key, target)


def nearest(values: Sequence[Value], target: Value) -> int:
    """The number of the value from which a move to `target` receives least, of equal ones with fewest summands."""
    return min(range(len(values)), key=lambda k: (distance(values[k], target), len(values[k].type.partial)))


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
