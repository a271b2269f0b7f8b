"""Where moves go: every array as each operation needs it, moved from the version of it that is nearest."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from redistrib.cost.model import CostModel
from redistrib.errors import CutError, ProgramError
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.partition.root import ROOT
from redistrib.partition.versions import Versions, distance, freed, uncut
from redistrib.programs.check import check
from redistrib.programs.groups import Group, group_of
from redistrib.programs.nest import Nest
from redistrib.programs.program import Compute, Place, Program, Value
from redistrib.programs.pullback import Part
from redistrib.programs.unify import Kernel, bindings, grid_of, mesh_of, unify

DTYPE = "float32"


@dataclass(frozen=True)
class Options:
    """What `partition` is asked for beside nests and grids; see there."""

    ranks: int | None
    inputs: dict[str, Any]
    outputs: dict[str, Any]
    root: bool
    dtype: str | dict[str, str]
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
    return check(Program(tuple(made.inputs), tuple(freed(made.known.ops, names)), names))


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

    def __post_init__(self) -> None:
        self.known = Versions(self.options.model)

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
        return {array: known[-1].type for array, known in self.known.versions.items() if known[-1].place == self.place}

    def _emit(self, name: str, parts: tuple[Part, ...], place: Place, outs: Sequence[str]) -> None:
        group = group_of(name, parts, place)
        ins = tuple((formal, self._as_needed(name, self._wanted(formal, group, place))) for formal in group.reads)
        made = []
        for array in outs:
            if array in self.known.versions:
                raise ProgramError(name, array, "SSA", "the array is written a second time; give the result a new name")
            value = Value(array, group.writes[array], place, self._dtype(array))
            self.known.versions[array] = [value]
            made.append((array, value))
        self.known.ops.append(Compute(name, parts, place, ins, tuple(made)))

    def _price(self, group: Group) -> float:
        """Elements that must be received at least before the operation can run."""
        total = 0
        for formal in group.reads:
            wanted = self._wanted(formal, group, self.place)
            array = wanted.name
            self._given(wanted)
            known = self.known.versions.get(array, [])
            total += min((distance(value, wanted) for value in known), default=0)
        return total

    def _dtype(self, array: str) -> str:
        known = self.options.dtype
        return known if isinstance(known, str) else known.get(array, DTYPE)

    def _wanted(self, formal: str, group: Group, place: Place) -> Value:
        """An array as an operation reads it."""
        array = self.stands_for.get(formal, formal)
        return Value(array, group.reads[formal], place, self._dtype(array), group.windows[formal])

    def _given(self, wanted: Value) -> None:
        """An input that begins in a way of its own is there from the start."""
        array = wanted.name
        if array in self.known.versions:
            return
        if array in self.options.inputs:
            self._input(replace(wanted, type=DistType.of(self.options.inputs[array]), place=self.place, windows=()))
        elif self.options.root:
            self._input(replace(wanted, type=uncut(wanted.shape), place=ROOT, windows=()))

    def _input(self, value: Value) -> None:
        self.inputs.append(value)
        self.known.versions[value.name] = [value]

    def _as_needed(self, operation: str, wanted: Value) -> str:
        array = wanted.name
        self._given(wanted)
        if array not in self.known.versions:
            self._input(wanted)
        first = self.known.versions[array][0]
        if first.windows and not first.means(wanted):
            raise ProgramError(
                operation, array, "Window", f"it needs {wanted.form}, and the array begins as {first.form}, as its "
                f"first reader needs it; tiles that overlap are not moved, so say in inputs= how it begins",
            )  # fmt: skip
        return self.known.moved(array, wanted).name

    def end(self, array: str, dist_type: Any) -> str:
        """The name of an output, moved to where it must be."""
        last = self.known.versions[array][0]
        wanted = replace(last, type=DistType(last.type.dims))
        if dist_type is not None:
            wanted = replace(last, type=DistType.of(dist_type), place=self.place)
        elif self.options.root:
            wanted = replace(last, type=uncut(last.type.global_shape), place=ROOT)
        return self.known.moved(array, wanted).name
