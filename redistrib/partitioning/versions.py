"""Every array in the types that it has been needed in, and the moves that made one of another."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import product
from typing import TypeAlias

from redistrib.cost.model import CostModel
from redistrib.errors import TypeFormError
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.plans.plan import Plan
from redistrib.programs.program import Move, Op, Value, is_effectful, made_by, used_by
from redistrib.synthesis.synthesize import synthesize
from redistrib.theory.bounds import least_received
from redistrib.theory.placement import lower_bound, placement_of

Plans: TypeAlias = dict[tuple[DistType, Mesh, DistType, Mesh, str], Plan]


@dataclass
class Versions:
    """Operations in the making, and what there is of each array.

    Attributes:
        model: what the plans of moves minimise; None: moves get no plans.
        keep: for how many operations a version that was moved is kept; None: to the end.
        sources: for an array as it is wanted, the type of the version to move, where it is not as it was made; None:
            the nearest is moved.
        ops: the operations so far.
        versions: for every array its values, the first as it was made.
        plans: of moves, by the types and meshes of both ends and the element type; several programs may share them.
        again: makes an array as it is wanted without moving anything, where it can; None where it cannot.
    """

    model: CostModel | str | None
    keep: int | None = None
    ops: list[Op] = field(default_factory=list)
    versions: dict[str, list[Value]] = field(default_factory=dict)
    sources: Mapping[tuple[str, DistType], DistType] | None = None
    again: Callable[[str, Value], Value | None] = field(default=lambda array, wanted: None)
    plans: Plans = field(default_factory=dict)
    _used: dict[str, int] = field(default_factory=dict)

    def moved(self, array: str, wanted: Value) -> Value:
        """The array as it is wanted: a version that is so, or the nearest one, moved."""
        known = self.versions[array]
        nearest = self._nearest(array, wanted)
        self._used[nearest.name] = len(self.ops)
        if nearest.means(wanted):
            return nearest
        made = None if self.sources is not None else self.again(array, replace(wanted, name=f"{array}.{len(known)}"))
        if made is not None:
            known.append(made)
            return made
        out = replace(wanted, name=f"{array}.{len(known)}")
        elsewhere = nearest.place.devices != wanted.place.devices or bool(wanted.windows)
        if elsewhere and nearest.type.partial:  # reduced where the summands are, before anything leaves
            out = replace(nearest, name=out.name, type=_reduced(nearest.type, nearest.place.mesh))
        self.ops.append(Move(nearest.name, out, self.plan(nearest, out)))
        known.append(out)
        return self.moved(array, wanted)

    def _nearest(self, array: str, wanted: Value) -> Value:
        kept = [one for one in self._kept(self.versions[array]) if not one.windows or one.means(wanted)]
        if self.sources is None:
            return min(kept, key=lambda value: distance(value, wanted))
        same = next((value for value in kept if value.means(wanted)), None)
        if same is None and (array, wanted.type) in self.sources:
            return self.moved(array, replace(wanted, type=self.sources[array, wanted.type]))
        return same or kept[0]

    def _kept(self, known: list[Value]) -> list[Value]:
        if self.keep is None:
            return known
        oldest = len(self.ops) - self.keep
        return [known[0], *(value for value in known[1:] if self._used.get(value.name, len(self.ops)) >= oldest)]

    def plan(self, value: Value, out: Value) -> Plan | None:
        """The plan that makes one value of another; None where a move is made without one."""
        if self.model is None or not has_plan(value, out):
            return None
        key = (value.type, value.place.mesh, out.type, out.place.mesh, value.dtype)
        if key not in self.plans:
            self.plans[key] = synthesize(*key[:4], dtype=value.dtype, model=self.model)
        return self.plans[key]


def has_plan(value: Value, out: Value) -> bool:
    """Whether a move has a plan: between the same devices, to tiles that do not overlap."""
    return value.place.devices == out.place.devices and not out.windows


def _reduced(dist_type: DistType, mesh: Mesh) -> DistType:
    """The whole tiles that summands are reduced to with the least received: each axis cuts a dimension or none."""
    before = placement_of(dist_type, mesh)
    found = []
    for choice in product((None, *range(dist_type.rank)), repeat=len(dist_type.partial)):
        axes = {i: dim.axes for i, dim in enumerate(dist_type.dims)}
        for axis, i in zip(dist_type.partial, choice, strict=True):
            if i is not None:
                axes[i] = (axis, *axes[i])
        try:
            found.append(DistType.cut(dist_type.global_shape, axes, mesh))
        except TypeFormError:
            continue
    return min(found, key=lambda reduced: least_received(before, placement_of(reduced, mesh)))


def distance(value: Value, wanted: Value) -> int:
    """Elements that a move receives; at least, between the same devices. Summands are counted as an all-reduce."""
    if value.means(wanted):
        return 0
    added = 2 * value.type.local_size * value.place.mesh.size if value.type.partial else 0
    if value.place.devices != wanted.place.devices or wanted.windows or value.windows:
        return added + math.prod(wanted.tile) * len(wanted.place.devices)
    return added or max(1, _lacking(value.type, value.place.mesh, wanted.type, wanted.place.mesh))


@lru_cache(maxsize=1 << 14)
def _lacking(source: DistType, source_mesh: Mesh, target: DistType, target_mesh: Mesh) -> int:
    """Elements that all devices together lack of the target."""
    return sum(lower_bound(placement_of(source, source_mesh), placement_of(target, target_mesh)))


def still_read(ops: Sequence[Op], outputs: Sequence[str]) -> list[Op]:
    """The operations without those that make what nothing reads: constants that were made again for all who do.

    Operations with effects stay.
    """
    used, kept = set(outputs), []
    for op in reversed(ops):
        if is_effectful(op) or any(value.name in used for value in made_by(op)):
            used.update(used_by(op))
            kept.append(op)
    return kept[::-1]
