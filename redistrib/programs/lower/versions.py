"""Layout versions of arrays: which of them is moved where an operation needs another one."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from itertools import product
from typing import Generic, NamedTuple, TypeVar, final

from redistrib.cache import cached
from redistrib.cost.model import CostModel
from redistrib.errors import TypeFormError
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.plans.plan import Plan
from redistrib.programs.ir.program import Op, Value, is_effectful, made_by, used_by
from redistrib.programs.ir.windows import Held
from redistrib.synthesis.synthesize import synthesize
from redistrib.theory.bounds import least_received
from redistrib.theory.placement import lower_bound, placement_of

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
F = TypeVar("F")


class ReadAt(NamedTuple):
    """A read of an array, in a program of numbered operations.

    Attributes:
        at: number of the operation before which the array is moved, if it must be.
        until: of the one until which it is kept.
        reader: of the one that reads it; -1 for one that stands in no condition of a loop.
    """

    at: int = 0
    until: int = 0
    reader: int = -1

    @property
    def of_source(self) -> ReadAt:
        """That of the version which is moved for this read."""
        return ReadAt(self.at, self.at, self.reader)


ANYWHERE = ReadAt()  # in a program whose operations have no numbers


class Versions(ABC, Generic[K, V, F]):
    """Arrays and their layout versions. An array that is needed in another layout is moved once for all its readers.

    A layout is a form, of any type, and the halos beside the tiles. Tiles are moved first, and get halos then.

    Attributes:
        versions: of every array, the first as it is made.
    """

    def __init__(self) -> None:
        self.versions: dict[K, list[V]] = {}

    @abstractmethod
    def means(self, version: V, form: F, windows: tuple[Held, ...]) -> bool:
        """Whether a version has the tiles of a form, with halos."""

    @abstractmethod
    def origin(self, key: K, form: F, usable: Sequence[V], reading: ReadAt) -> V:
        """The version that is moved to a form without halos."""

    @abstractmethod
    def move(self, key: K, source: V, form: F, windows: tuple[Held, ...], reading: ReadAt) -> V:
        """The array in another layout; `source` itself where it cannot be moved."""

    def usable(self, key: K, reading: ReadAt) -> list[V]:
        """The versions that a reader may read, the first as it was made."""
        return self.versions[key]

    def shared(self, key: K, form: F, windows: tuple[Held, ...]) -> tuple[Held, ...]:
        """The halos that are received for these."""
        return windows

    def note_use(self, version: V, until: int) -> None:
        """Note that a version is read, and kept until an operation."""

    @final
    def read(self, key: K, form: F, windows: tuple[Held, ...] = (), reading: ReadAt = ANYWHERE) -> V:
        """The array in a layout, moved there where no version of it is."""
        usable = self.usable(key, reading)
        for version in usable:
            if self.means(version, form, windows):
                self.note_use(version, reading.until)
                return version
        if not windows:
            source = self.origin(key, form, usable, reading)
        elif (shared := self.shared(key, form, windows)) != windows:  # they are cut out of those
            source = self.read(key, form, shared, reading.of_source)
        else:
            source = self.read(key, form, (), reading.of_source)
        self.note_use(source, reading.at)
        moved = self.move(key, source, form, windows, reading)
        if moved is not source:
            self.versions[key].append(moved)
        return moved


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


def nearest(values: Sequence[Value], target: Value) -> int:
    """The number of the value from which a move to `target` receives least, of equal ones with fewest summands."""
    if len(values) == 1:
        return 0
    return min(range(len(values)), key=lambda k: (distance(values[k], target), len(values[k].type.partial)))


def has_plan(value: Value, out: Value) -> bool:
    """Whether a move has a plan: between the same devices, to tiles that do not overlap."""
    return value.place.devices == out.place.devices and not out.windows


def reduced(dist_type: DistType, mesh: Mesh) -> DistType:
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
