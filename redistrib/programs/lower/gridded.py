"""Operations with grids as a program: kernels whose axes are chosen, in the walk that all programs are made by."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

from redistrib.errors import CutError, ProgramError
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.programs.ir.builder import Builder
from redistrib.programs.ir.cuts import mesh_of
from redistrib.programs.ir.graph import Array, Graph, Operation
from redistrib.programs.ir.nest import Nest
from redistrib.programs.ir.program import Compute, Place, Program, Value
from redistrib.programs.ir.value import fresh
from redistrib.programs.ir.windows import Held
from redistrib.programs.lower.arrays import Arrays
from redistrib.programs.lower.bind import BindingProblem, bind
from redistrib.programs.lower.layouts import PlacedVersions, tiles_and_halos
from redistrib.programs.lower.versions import MovePlanner
from redistrib.programs.lower.walk import GraphWalk
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
    builder = Builder("main", MovePlanner(options.model))
    bounds = bind(BindingProblem(kernels, outs, stands_for, Arrays(place, options, ends, builder.plan)))
    steps = [kernel_step(*each, stands_for, options) for each in zip(kernels, bounds, outs, strict=True)]
    lowering = GridLowering(builder, steps, place, options, ends)
    lowering.run()
    return builder.build(*lowering.results)


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


class KernelStep(NamedTuple):
    """A kernel as it is cut.

    Attributes:
        name, bound: its name and its axes.
        reads: for every array that its nests read the layout that they need; values have the names of the program.
        outs: the values that it leaves behind.
    """

    name: str
    bound: BoundKernel
    reads: Mapping[str, Value]
    outs: tuple[Value, ...]

    @property
    def ins(self) -> tuple[Value, ...]:
        """The layouts that it needs, without halos."""
        return tuple(tiles_and_halos(value)[0] for value in self.reads.values())

    @property
    def windows(self) -> tuple[tuple[Held, ...], ...]:
        """The halos."""
        return tuple(tiles_and_halos(value)[1] for value in self.reads.values())


def kernel_step(
    kernel: GriddedKernel,
    bound: BoundKernel,
    outs: Sequence[str],
    stands_for: Mapping[str, str],
    options: PartitionOptions,
) -> KernelStep:
    """A kernel with its axes, that leaves some arrays behind; see `bind.BindingProblem`."""
    group, value = bound.group, options.value
    reads = {
        formal: value(stands_for.get(formal, formal), form, bound.place, group.windows[formal])
        for formal, form in group.reads.items()
    }
    made = (value(array, group.writes[array], bound.place) for array in outs)
    return KernelStep(kernel.name, bound, reads, tuple(made))


class GridLowering(PlacedVersions[str], GraphWalk[Value, Value, KernelStep]):
    """A walk over kernels whose axes are chosen, which makes their program; outputs end after all of them.

    Args:
        builder: of the program.
        steps: the kernels, in order.
        place: all devices.
        options: how arrays begin and end.
        ends: the outputs, each with its type, or None where any type will do.

    Attributes:
        results: the outputs, once it has run.

    Raises:
        ProgramError: if an array is written twice.
    """

    ends_at_once = False

    def __init__(
        self,
        builder: Builder,
        steps: Sequence[KernelStep],
        place: Place,
        options: PartitionOptions,
        ends: Mapping[str, DistType | None],
    ) -> None:
        super().__init__(builder)
        self.results: list[Value] = []
        self._steps, self._place, self._options, self._ends = steps, place, options, ends
        self._first: dict[str, Value] = {}  # of an array that begins, the layout that its first reader needs
        made = set[str]()
        for step in steps:
            for value in step.reads.values():
                if value.name not in made:
                    self._first.setdefault(value.name, value)
            for value in step.outs:
                if value.name in made or value.name in self._first:
                    why = "the array is written a second time; give the result a new name"
                    raise ProgramError(step.name, value.name, "SSA", why)
                made.add(value.name)
        builder.reserve([*self._first, *made])

    @cached_property
    def graph(self) -> Graph:
        """The kernels as operations; the first nest of a kernel stands for all."""
        operations = [
            Operation(step.bound.parts[0].nest, "", tuple(v.name for v in step.reads.values()), _arrays(step.outs))
            for step in self._steps
        ]
        return Graph(_arrays(self._first.values()), tuple(operations), tuple(self._ends))

    def cut(self, number: int) -> KernelStep:
        """The kernel.

        Raises:
            ProgramError: if an array begins with tiles that overlap in another way: overlapping tiles are never moved.
        """
        step = self._steps[number]
        for target in step.reads.values():
            first = self.versions[target.name][0]
            if first.windows and not first.means(target):
                raise ProgramError(
                    step.name, target.name, "Window", f"it needs {target.form}, and the array begins as {first.form}, "
                    f"as its first reader needs it; tiles that overlap are not moved, so say in inputs= how it begins",
                )  # fmt: skip
        return step

    def begin(self, array: Array) -> Value:
        value = self._options.start(self._first[array.name], self._place)
        self.builder.inputs.append(value)
        return value

    def compute(self, number: int, cut: KernelStep, read: Sequence[Value]) -> list[Value]:
        ins = tuple((formal, value.name) for formal, value in zip(cut.reads, read, strict=True))
        outs = tuple((value.name, value) for value in cut.outs)
        self.builder.ops.append(Compute(cut.name, cut.bound.parts, cut.bound.place, ins, outs))
        return list(cut.outs)

    def end_form(self, output: int, name: str) -> tuple[Value, tuple[Held, ...]]:
        return tiles_and_halos(self._options.end(self.versions[name][0], self._ends[name], self._place))

    def end(self, output: int, version: Value) -> None:
        self.results.append(version)

    def form_of(self, version: Value) -> Value:
        return version

    def hand_on(self, carry: int, version: Value) -> None:
        raise AssertionError("no kernel carries a value")


def _arrays(values: Iterable[Value]) -> tuple[Array, ...]:
    return tuple(Array(value.name, value.array_shape, value.dtype) for value in values)
