"""Where moves go: every array as each operation needs it, moved from the version of it that is nearest."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from redistrib.cost.model import CostModel
from redistrib.errors import CutError, ProgramError
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DimType, DistType
from redistrib.partition.root import ROOT
from redistrib.programs.check import Group, check, group_of
from redistrib.programs.nest import Nest
from redistrib.programs.program import Compute, Free, Move, Op, Place, Program, Value, made_by, used_by
from redistrib.programs.pullback import Part
from redistrib.programs.unify import Kernel, bindings, grid_of, mesh_of, unify
from redistrib.synthesis.synthesize import synthesize
from redistrib.theory.bounds import least_received
from redistrib.theory.placement import lower_bound, placement_of


@dataclass(frozen=True)
class Options:
    """What `partition` is asked for beside nests and grids; see there."""

    ranks: int | None
    inputs: dict[str, Any]
    outputs: dict[str, Any]
    root: bool
    dtype: str
    model: CostModel | str


def partitioned(
    nests: tuple[Nest, ...],
    grids: Mapping[str, Sequence[int] | Mapping[str, int]],
    groups: Mapping[str, Sequence[str]],
    options: Options,
) -> Program:
    """A checked program; see `redistrib.partition.partition`."""
    _check_shapes(nests)
    read = dict.fromkeys(access.array for nest in nests for access in nest.reads)
    written = list(dict.fromkeys(access.array for nest in nests for access in nest.writes))
    stands_for: dict[str, str] = {}
    kernels = _kernels(tuple(_apart(nest, stands_for) for nest in nests), grids, groups)
    ranks = options.ranks or max((kernel.ranks for kernel in kernels), default=1)
    place = Place(_machine(kernels, ranks))
    made = _Insertion(place, options, stands_for)
    ends = options.outputs or dict.fromkeys(array for array in written if array not in read)
    for array in (*ends, *options.inputs):
        if array not in {*read, *written}:
            raise ProgramError(
                "", array, "SSA", f"there is no such array; there are {', '.join(dict.fromkeys((*read, *written)))}"
            )
    for k, kernel in enumerate(kernels):
        inside = {access.array for nest in kernel.nests for access in nest.writes}
        later = (access.array for kernel in kernels[k + 1 :] for nest in kernel.nests for access in nest.reads)
        after = {stands_for.get(array, array) for array in later}
        made.add(kernel, sorted(inside & (after | set(ends)), key=written.index))
    names = tuple(made.end(array, dist_type) for array, dist_type in ends.items())
    return check(Program(tuple(made.inputs), tuple(_freed(made.ops, names)), names))


def _apart(nest: Nest, stands_for: dict[str, str]) -> Nest:
    """The nest with a name of its own for every access to an array that it reads more than once."""
    names: set[str] = set()
    reads = []
    for access in nest.reads:
        name = access.array
        while name in names:
            name += "'"
        names.add(name)
        if name != access.array:
            stands_for[name] = access.array
        reads.append(replace(access, array=name))
    return replace(nest, reads=tuple(reads))


def _check_shapes(nests: Sequence[Nest]) -> None:
    known: dict[str, tuple[Nest, tuple[int, ...]]] = {}
    for nest in nests:
        for access in (*nest.reads, *nest.writes):
            first, shape = known.setdefault(access.array, (nest, nest.shape(access)))
            if shape != nest.shape(access):
                raise ProgramError(
                    nest.name,
                    access.array,
                    "Nest",
                    f"the array has shape {nest.shape(access)} here and {shape} in operation {first.name!r}",
                )


def _kernels(
    nests: tuple[Nest, ...],
    grids: Mapping[str, Sequence[int] | Mapping[str, int]],
    groups: Mapping[str, Sequence[str]],
) -> list[Kernel]:
    names = [nest.name for nest in nests]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ProgramError(twice, "", "Schedule", "two operations have this name; give each its own")
    for name in [*grids, *(member for members in groups.values() for member in members)]:
        if name not in names:
            raise CutError(name, "", "Schedule", f"there is no such operation; there are {', '.join(names)}")
    member_of = {member: name for name, members in groups.items() for member in members}
    order = dict.fromkeys(member_of.get(name, name) for name in names)
    members = {kernel: [nest for nest in nests if member_of.get(nest.name, nest.name) == kernel] for kernel in order}
    return [
        Kernel(kernel, tuple(inside), tuple(grid_of(nest, grids) for nest in inside))
        for kernel, inside in members.items()
    ]


def _machine(kernels: Sequence[Kernel], ranks: int) -> Mesh:
    """The axes of the devices: of the largest grid, cut into prime ones if another grid cannot be made of them."""
    for kernel in kernels:
        if kernel.ranks > ranks:
            raise CutError(
                kernel.name, "", "Schedule", f"its grids take {kernel.ranks} devices and there are {ranks}; "
                f"take a smaller grid, or ranks={kernel.ranks}",
            )  # fmt: skip
    grids = [(nest, grid) for kernel in kernels for nest, grid in zip(kernel.nests, kernel.grids, strict=True)]
    grids = [(nest, grid) for nest, grid in grids if ranks % math.prod(grid) == 0]
    largest = max((grid for _, grid in grids), key=math.prod, default=())
    mesh = mesh_of(largest, ranks)
    if all(next(bindings(nest, grid, mesh), None) for nest, grid in grids):
        return mesh
    return mesh.prime().mesh


@dataclass
class _Insertion:
    place: Place
    options: Options
    stands_for: dict[str, str]
    inputs: list[Value] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    versions: dict[str, list[Value]] = field(default_factory=dict)

    def add(self, kernel: Kernel, outs: Sequence[str]) -> None:
        """An operation, and before it the moves that it needs."""
        place = self.place
        parts = unify(kernel, place, lambda parts: self._price(group_of(kernel.name, parts, place)), self._known)
        if parts is None:  # no axes make its grid: it has a mesh of its own, on as many devices as it takes
            largest = max(kernel.grids, key=math.prod)
            place = Place(mesh_of(largest, math.prod(largest)), self.place.devices[: kernel.ranks])
            parts = unify(kernel, place, lambda parts: 0, {})
        if parts is None:
            grids = ", ".join(map(str, kernel.grids))
            raise CutError(kernel.name, "", "Schedule", f"no one mesh makes the grids {grids} of its nests")
        self._emit(kernel.name, parts, place, outs)

    @property
    def _known(self) -> dict[str, DistType]:
        """The types of arrays on the common mesh."""
        return {array: known[-1].type for array, known in self.versions.items() if known[-1].place == self.place}

    def _emit(self, name: str, parts: tuple[Part, ...], place: Place, outs: Sequence[str]) -> None:
        group = group_of(name, parts, place)
        ins = tuple((array, self._as_needed(array, needed, place)) for array, needed in group.reads.items())
        made = []
        for array in outs:
            if array in self.versions:
                raise ProgramError(name, array, "SSA", "the array is written a second time; give the result a new name")
            value = Value(array, group.writes[array], place, self.options.dtype)
            self.versions[array] = [value]
            made.append((array, value))
        self.ops.append(Compute(name, parts, place, ins, tuple(made)))

    def _price(self, group: Group) -> float:
        """Elements that must be received at least before the operation can run."""
        total = 0
        for formal, needed in group.reads.items():
            array = self.stands_for.get(formal, formal)
            wanted = Value(array, needed, self.place, self.options.dtype)
            self._given(array, needed.global_shape)
            known = self.versions.get(array, [])
            total += min((_distance(value, wanted) for value in known), default=0)
        return total

    def _given(self, array: str, shape: tuple[int, ...]) -> None:
        """An input that begins in a way of its own is there from the start."""
        if array in self.versions:
            return
        if array in self.options.inputs:
            self._input(Value(array, DistType.of(self.options.inputs[array]), self.place, self.options.dtype))
        elif self.options.root:
            self._input(Value(array, _uncut(shape), ROOT, self.options.dtype))

    def _input(self, value: Value) -> None:
        self.inputs.append(value)
        self.versions[value.name] = [value]

    def _as_needed(self, formal: str, needed: DistType, place: Place) -> str:
        array = self.stands_for.get(formal, formal)
        self._given(array, needed.global_shape)
        if array not in self.versions:
            self._input(Value(array, needed, place, self.options.dtype))
        return self._moved(array, Value(array, needed, place, self.options.dtype)).name

    def _moved(self, array: str, wanted: Value) -> Value:
        known = self.versions[array]
        nearest = min(known, key=lambda value: _distance(value, wanted))
        if nearest.means(wanted):
            return nearest
        out = replace(wanted, name=f"{array}.{len(known)}")
        elsewhere = nearest.place.devices != wanted.place.devices
        if elsewhere and nearest.type.partial:  # reduced where the summands are, before anything leaves
            out = replace(nearest, name=out.name, type=_reduced(nearest.type, nearest.place.mesh))
        self.ops.append(move(nearest, out, self.options.model))
        known.append(out)
        return self._moved(array, wanted)

    def end(self, array: str, dist_type: Any) -> str:
        """The name of an output, moved to where it must be."""
        last = self.versions[array][0]
        wanted = replace(last, type=DistType(last.type.dims))
        if dist_type is not None:
            wanted = replace(last, type=DistType.of(dist_type), place=self.place)
        elif self.options.root:
            wanted = replace(last, type=_uncut(last.type.global_shape), place=ROOT)
        return self._moved(array, wanted).name


def move(value: Value, out: Value, model: CostModel | str) -> Move:
    """The move from one value to another, planned."""
    if value.place.devices != out.place.devices:
        return Move(value.name, out, None)
    ends = (value.type, value.place.mesh, out.type, out.place.mesh)
    return Move(value.name, out, synthesize(*ends, dtype=value.dtype, model=model))


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


def _distance(value: Value, wanted: Value) -> int:
    """Elements that a move receives at least; summands are counted as an all-reduce."""
    if value.means(wanted):
        return 0
    added = 2 * value.placement.tile_size * value.place.mesh.size if value.type.partial else 0
    if value.place.devices != wanted.place.devices:
        return added + wanted.placement.tile_size * len(wanted.place.devices)
    return added or max(1, sum(lower_bound(value.placement, wanted.placement)))


def _uncut(shape: Sequence[int]) -> DistType:
    return DistType(tuple(DimType(size, (), size) for size in shape))


def _freed(ops: Sequence[Op], outputs: Sequence[str]) -> list[Op]:
    """The operations, each followed by a `Free` of what it reads last, inputs and outputs excepted."""
    last = {name: k for k, op in enumerate(ops) for name in used_by(op)}
    made = {value.name for op in ops for value in made_by(op)} - set(outputs)
    result: list[Op] = []
    for k, op in enumerate(ops):
        result.append(op)
        result += [Free(name) for name in dict.fromkeys(used_by(op)) if name in made and last[name] == k]
    return result
