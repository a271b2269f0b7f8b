"""Every array in the types that it has been needed in, and the moves that made one of another."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from redistrib.cost.model import CostModel
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DimType, DistType
from redistrib.plans.plan import Plan
from redistrib.programs.program import Free, Move, Op, Value, made_by, used_by
from redistrib.synthesis.synthesize import synthesize
from redistrib.theory.bounds import least_received
from redistrib.theory.placement import lower_bound, placement_of


@dataclass
class Versions:
    """Operations in the making, and what there is of each array.

    Attributes:
        model: what the plans of moves minimise.
        keep: for how many operations a version that was moved is kept; None: to the end.
        sources: for an array as it is wanted, the type of the version to move, where it is not as it was made; None:
            the nearest is moved.
        ops: the operations so far.
        versions: for every array its values, the first as it was made.
        again: makes an array as it is wanted without moving anything, where it can; None where it cannot.
    """

    model: CostModel | str
    keep: int | None = None
    ops: list[Op] = field(default_factory=list)
    versions: dict[str, list[Value]] = field(default_factory=dict)
    sources: Mapping[tuple[str, DistType], DistType] | None = None
    again: Callable[[str, Value], Value | None] = field(default=lambda array, wanted: None)
    _used: dict[str, int] = field(default_factory=dict)
    _plans: dict[tuple[DistType, Mesh, DistType, Mesh, str], Plan] = field(default_factory=dict)

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
        self.ops.append(self._move(nearest, out))
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

    def _move(self, value: Value, out: Value) -> Move:
        if value.place.devices != out.place.devices or out.windows:
            return Move(value.name, out, None)
        key = (value.type, value.place.mesh, out.type, out.place.mesh, value.dtype)
        if key not in self._plans:
            self._plans[key] = synthesize(*key[:4], dtype=value.dtype, model=self.model)
        return Move(value.name, out, self._plans[key])


def _reduced(dist_type: DistType, mesh: Mesh) -> DistType:
    """The whole tiles that summands are reduced to with the least received: each axis cuts a dimension or none."""
    before = placement_of(dist_type, mesh)
    found = []
    for choice in product((None, *range(dist_type.rank)), repeat=len(dist_type.partial)):
        dims = list(dist_type.dims)
        for axis, i in zip(dist_type.partial, choice, strict=True):
            if i is not None:
                dims[i] = DimType(dims[i].tile // mesh.axis(axis).size, (axis, *dims[i].axes), dims[i].size)
        if all(dim.tile * math.prod(mesh.axis(name).size for name in dim.axes) == dim.size for dim in dims):
            found.append(DistType(tuple(dims)))
    return min(found, key=lambda reduced: least_received(before, placement_of(reduced, mesh)))


def distance(value: Value, wanted: Value) -> int:
    """Elements that a move receives; at least, between the same devices. Summands are counted as an all-reduce."""
    if value.means(wanted):
        return 0
    added = 2 * value.placement.tile_size * value.place.mesh.size if value.type.partial else 0
    if value.place.devices != wanted.place.devices or wanted.windows or value.windows:
        return added + math.prod(wanted.tile) * len(wanted.place.devices)
    return added or max(1, sum(lower_bound(value.placement, wanted.placement)))


def uncut(shape: Sequence[int]) -> DistType:
    """The type that is whole on every device."""
    return DistType(tuple(DimType(size, (), size) for size in shape))


def still_read(ops: Sequence[Op], outputs: Sequence[str]) -> list[Op]:
    """The operations without those that make what nothing reads: constants that were made again for all who do."""
    used, kept = set(outputs), []
    for op in reversed(ops):
        if any(value.name in used for value in made_by(op)):
            used.update(used_by(op))
            kept.append(op)
    return kept[::-1]


def freed(ops: Sequence[Op], outputs: Sequence[str]) -> list[Op]:
    """The operations, each followed by a `Free` of what it reads last, inputs and outputs excepted."""
    last = {name: k for k, op in enumerate(ops) for name in used_by(op)}
    made = {value.name for op in ops for value in made_by(op)} - set(outputs)
    result: list[Op] = []
    for k, op in enumerate(ops):
        result.append(op)
        result += [Free(name) for name in dict.fromkeys(used_by(op)) if name in made and last[name] == k]
    return result
