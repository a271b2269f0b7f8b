"""Operations with grids as a program: every operation after the moves that give its arrays the layouts it needs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from redistrib.errors import CutError, ProgramError
from redistrib.lang.mesh import Mesh
from redistrib.programs.ir.builder import Builder
from redistrib.programs.ir.cuts import mesh_of
from redistrib.programs.ir.nest import Nest
from redistrib.programs.ir.program import Place, Program, Value
from redistrib.programs.ir.value import fresh
from redistrib.programs.lower.arrays import Arrays
from redistrib.programs.lower.bind import BindingProblem, bind
from redistrib.programs.lower.layouts import Layouts
from redistrib.programs.lower.versions import MovePlanner
from redistrib.programs.schedule.grids import BoundKernel, GriddedKernel, bindings, grid_of
from redistrib.programs.schedule.options import PartitionOptions


def partitioned(
    nests: tuple[Nest, ...],
    grids: Mapping[str, Sequence[int] | Mapping[str, int]],
    groups: Mapping[str, Sequence[str]],
    options: PartitionOptions,
) -> Program:
    """A checked program; see `redistrib.programs.run.partition`."""
    _check_shapes(nests)
    read = dict.fromkeys(access.array for nest in nests for access in nest.reads)
    written = list(dict.fromkeys(access.array for nest in nests for access in nest.writes))
    stands_for: dict[str, str] = {}
    kernels = _kernels(tuple(_distinct_reads(nest, stands_for) for nest in nests), grids, groups)
    ranks = options.ranks or max((kernel.ranks for kernel in kernels), default=1)
    place = Place(_machine(kernels, ranks))
    ends = options.outputs or dict.fromkeys(array for array in written if array not in read)
    for array in (*ends, *options.inputs):
        if array not in {*read, *written}:
            raise ProgramError(
                "", array, "SSA", f"there is no such array; there are {', '.join(dict.fromkeys((*read, *written)))}"
            )
    outs = _left_behind(kernels, stands_for, ends, written)
    builder = Builder("main", MovePlanner(options.model), (*read, *written))
    insertion = Insertion(place, options, stands_for, Layouts(builder))
    arrays = Arrays(place, options, ends, builder.plan)
    bounds = bind(BindingProblem(kernels, outs, stands_for, arrays))
    for kernel, bound, written_by in zip(kernels, bounds, outs, strict=True):
        insertion.add(kernel.name, bound, written_by)
    return builder.build(*(insertion.end(array, dist_type) for array, dist_type in ends.items()))


def _left_behind(
    kernels: Sequence[GriddedKernel], stands_for: Mapping[str, str], ends: Iterable[str], written: Sequence[str]
) -> list[list[str]]:
    """For every kernel the arrays that it writes and that a later kernel reads, or that are outputs."""
    needed, outs = set(ends), []
    for kernel in reversed(kernels):
        inside = {access.array for nest in kernel.nests for access in nest.writes}
        outs.append(sorted(inside & needed, key=written.index))
        needed |= {stands_for.get(access.array, access.array) for nest in kernel.nests for access in nest.reads}
    return outs[::-1]


def _distinct_reads(nest: Nest, stands_for: dict[str, str]) -> Nest:
    """The nest with different names for its reads; `stands_for` gets the array of each new name."""
    names: set[str] = set()
    reads = []
    for access in nest.reads:
        name = fresh(access.array, names)
        if name != access.array:
            stands_for[name] = access.array
        reads.append(replace(access, array=name))
    return replace(nest, reads=tuple(reads))


def _check_shapes(nests: Sequence[Nest]) -> None:
    shapes: dict[str, tuple[Nest, tuple[int, ...]]] = {}
    for nest in nests:
        for access in (*nest.reads, *nest.writes):
            first, shape = shapes.setdefault(access.array, (nest, nest.shape(access)))
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
) -> list[GriddedKernel]:
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
        GriddedKernel(kernel, tuple(inside), tuple(grid_of(nest, grids) for nest in inside))
        for kernel, inside in members.items()
    ]


def _machine(kernels: Sequence[GriddedKernel], ranks: int) -> Mesh:
    """The mesh of the devices: an axis for each number of the largest grid, or prime axes if other grids need them."""
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
class Insertion:
    """Operations whose axes are chosen, added to a program.

    Attributes:
        place: all devices.
        options: how arrays begin and end.
        stands_for: the array, for each second name that a nest reads an array under.
        layouts: the layout versions of all arrays.
    """

    place: Place
    options: PartitionOptions
    stands_for: Mapping[str, str]
    layouts: Layouts

    def add(self, name: str, bound: BoundKernel, outs: Sequence[str]) -> None:
        """Add an operation, and before it the moves that it needs."""
        group = bound.group
        reads = []
        for formal, form in group.reads.items():
            array = self.stands_for.get(formal, formal)
            target = self.options.value(array, form, bound.place, group.windows[formal])
            self._begin(name, target)
            reads.append((formal, array, target))
        for array in outs:
            if array in self.layouts.versions:
                raise ProgramError(name, array, "SSA", "the array is written a second time; give the result a new name")
        writes = [(array, self.options.value(array, group.writes[array], bound.place)) for array in outs]
        self.layouts.add(name, bound.parts, bound.place, reads, writes)
        for array, value in writes:
            self.layouts.hold(array, value)

    def _begin(self, operation: str, target: Value) -> None:
        """Add an input for an array that nothing has written or read yet.

        Raises:
            ProgramError: if it begins with tiles that overlap in another way: overlapping tiles are never moved.
        """
        array, versions = target.name, self.layouts.versions
        if array not in versions:
            self.layouts.begin(array, self.options.start(target, self.place))
        first = versions[array][0]
        if first.windows and not first.means(target):
            raise ProgramError(
                operation, array, "Window", f"it needs {target.form}, and the array begins as {first.form}, as its "
                f"first reader needs it; tiles that overlap are not moved, so say in inputs= how it begins",
            )  # fmt: skip

    def end(self, array: str, dist_type: Any) -> Value:
        """An output, moved to its place and type."""
        target = self.options.end(self.layouts.versions[array][0], dist_type, self.place)
        return self.layouts.needed(array, target)
