"""How the work of every operation is cut: examples over the axis `d`, and one other dimension over the axis `t`.

The first operation that multiplies examples by a matrix without a type yet cuts the columns of the matrix. Its readers
keep the cut: they cut the rows of the next matrix and compute partial sums, which are reduced at once. That is the
tensor parallelism of Shoeybi et al. (2019), derived from the accesses alone.

Cuts are chosen here and not by `schedule.propagate`: the two rank candidates differently, and the kept layouts of
DistIR's grids follow this ranking.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from redistrib.errors import ProgramError
from redistrib.lang.mesh import Axis, Mesh
from redistrib.lang.types import DistType
from redistrib.programs.ir.cuts import cut_of
from redistrib.programs.ir.nest import Access, Nest
from redistrib.programs.ir.pullback import ScheduledNest
from redistrib.programs.ir.windows import slides
from redistrib.programs.stages.roles import BatchedLoop, BatchedProgram, BatchStep

DATA, TENSOR = "d", "t"


class CutOperation(NamedTuple):
    """An operation and its cut.

    Attributes:
        part: the nest, of one microbatch, and its cut.
        ins: for every array that it reads the type that it needs.
        outs: for every array that it writes the type of the result, which may be a partial sum.
        loop: of a loop whose steps are cut as other operations are, the loop; None for all others.
        step: the cuts of a step of it.
    """

    part: ScheduledNest
    ins: dict[str, DistType]
    outs: dict[str, DistType]
    loop: BatchedLoop | None = None
    step: Cutter | None = None


@dataclass
class Cutter:
    """Cuts of a program's operations, for so many replicas, tensor parts and microbatches.

    Attributes:
        batch: the program.
        data, tensor, microbatches: into how many parts.
        tensor_dims: dimensions of inputs that are cut over `t`, given; None leaves one whole.
        shard: whether complete sums, and results of them, are cut over the replicas as well.
        sums_sharded: whether sums are so from each microbatch on.
        inputs_sharded: whether inputs without examples are so too.
        types: of every value as it is made, once reduced; sums over examples keep their summands. Inputs may have one
            from the start.
        cuts: of the operations that were cut, by number.
        cache: the cuts of operations by all that they depend on.
    """

    batch: BatchedProgram
    data: int
    tensor: int
    microbatches: int
    tensor_dims: Mapping[str, int | None]
    shard: bool = False
    sums_sharded: bool = False
    inputs_sharded: bool = False
    types: dict[str, DistType] = field(default_factory=dict)
    cuts: dict[int, CutOperation] = field(default_factory=dict)
    cache: dict[tuple[object, ...], CutOperation] = field(default_factory=dict)

    def __post_init__(self) -> None:
        axes = ((DATA, self.data), (TENSOR, self.tensor))
        self.mesh = Mesh(tuple(Axis(name, size) for name, size in axes if size > 1))
        self.size = {name: size for name, size in axes if size > 1}
        self.entries = {  # arrays of which the steps of a loop outside microbatches read one entry each
            step.reads[value.name]
            for step in self.batch.steps
            if step.kind == "final" and isinstance(step.loop, BatchedLoop)
            for k, value in enumerate(step.loop.batch.inputs)
            if step.loop.form.is_stacked(k) and value.name in step.reads
        }
        for value in self.batch.inputs:
            shape, role = value.type.global_shape, self.batch.roles[value.name]
            if value.name in self.types:
                continue
            if role.kind == "batched":
                self._check_divides(value.name, shape[role.dim])
                shape = (*shape[: role.dim], shape[role.dim] // self.microbatches, *shape[role.dim + 1 :])
                self.types[value.name] = self._type(shape, {role.dim: [DATA]})
            elif value.name in self.tensor_dims:
                dim = self.tensor_dims[value.name]
                form = self._type(shape, {} if dim is None else {dim: [TENSOR]}, value.name)
                self.types[value.name] = self.sharded(form, value.name) if self.inputs_sharded else form
        # Operations outside microbatches come after them all. Constants are cut as their first reader needs them.
        for kinds in (("batched",), ("final",), ("constant",)):
            for k, step in enumerate(self.batch.steps):
                if step.kind in kinds and k not in self.cuts:
                    self._cut(k, step)

    def _check_divides(self, name: str, examples: int) -> None:
        if examples % (self.data * self.microbatches):
            raise ProgramError(
                "", name, "Layout", f"{examples} examples are not {self.microbatches} microbatches of {self.data} parts"
            )

    def _type(self, shape: Sequence[int], axes: Mapping[int, Sequence[str]], name: str = "") -> DistType:
        above_one = {k: [axis for axis in names if axis in self.size] for k, names in axes.items()}
        for k, names in above_one.items():
            parts = math.prod(self.size[axis] for axis in names)
            if shape[k] % parts:
                raise ProgramError("", name, "Layout", f"dimension {k} of {tuple(shape)} has no {parts} equal parts")
        return DistType.cut(shape, above_one, self.mesh)

    def completed(self, name: str) -> DistType:
        """The type of a sum over examples once it is complete."""
        whole = DistType(self.types[name].dims)
        return self.sharded(whole, name) if self.shard else whole

    def sharded(self, whole: DistType, name: str = "") -> DistType:
        """The type cut over the replicas as well, along the first dimension that takes it; else as it is.

        Args:
            whole: the type.
            name: of the value; a dimension of entries that a loop reads one by one is not cut.
        """
        replicas = self.size.get(DATA, 1)
        if replicas == 1 or DATA in whole.axes:
            return whole
        axes = {k: dim.axes for k, dim in enumerate(whole.dims)}
        for k, dim in enumerate(whole.dims):
            if dim.tile % replicas == 0 and not (k == 0 and name in self.entries):
                return DistType.cut(whole.global_shape, axes | {k: (DATA, *dim.axes)}, self.mesh)
        return whole

    def whole(self, form: DistType) -> DistType:
        """The type with nothing cut over the replicas."""
        axes = {k: [axis for axis in dim.axes if axis != DATA] for k, dim in enumerate(form.dims)}
        return DistType.cut(form.global_shape, axes, self.mesh)

    def nest(self, step: BatchStep, microbatch: int = 0) -> Nest:
        """The operations on one microbatch."""
        if not step.batch or self.microbatches == 1:
            return step.nest
        over = step.nest.ranges[step.nest.position[step.batch]][1]
        count = len(over) // self.microbatches
        first = microbatch * count if step.batch in step.nest.indexed else 0
        part = over[first : first + count]
        ranges = tuple((name, part if name == step.batch else size) for name, size in step.nest.ranges)
        return replace(step.nest, ranges=ranges)

    def cut_of(self, number: int, microbatch: int = 0) -> ScheduledNest:
        """The cut of an operation on a microbatch."""
        step, part = self.batch.steps[number], self.cuts[number].part
        return part if step.batch not in step.nest.indexed else replace(part, nest=self.nest(step, microbatch))

    # ------------------------------------------------------------------------------------------ choosing

    def _cut(self, number: int, step: BatchStep) -> None:
        types: dict[str, DistType | None] = {}
        for array, name in step.reads.items():
            types[array] = self.types.get(name)
            if self.batch.roles[name].kind == "summed" and step.linear is None:
                types[array] = self.completed(name)
        key = (id(step.nest), step.batch, *types.values())
        if key not in self.cache:
            self.cache[key] = self._chosen(step, types)
        self._decided(number, self.cache[key])

    def _decided(self, number: int, cut: CutOperation) -> None:
        step = self.batch.steps[number]
        self.cuts[number] = cut
        for array, value in step.op.outs:
            keeps = self.batch.roles[value.name].kind == "summed"
            self.types[value.name] = cut.outs[array] if keeps else DistType(cut.outs[array].dims)
        for array, name in step.reads.items():
            if name not in self.types:
                self._first_needed(name, cut.ins[array])

    def _first_needed(self, name: str, form: DistType) -> None:
        """The cut of an input, or a constant, is that of its first reader; so is that of a constant's operands."""
        number = self.batch.makers.get(name)
        if number is None:
            self.types[name] = self.sharded(form, name) if self.inputs_sharded else form
            return
        step = self.batch.steps[number]
        nest = self.nest(step)
        array = next(array for array, value in step.op.outs if value.name == name)
        access = next(access for access in nest.writes if access.array == array)
        axes = {names[0]: dim.axes for names, dim in zip(access.dims, form.dims, strict=True) if names and dim.axes}
        rows = {step.batch: (DATA,)} if step.batch and self.data > 1 else {}
        cut = self._tried(nest, axes) or self._tried(nest, rows) or self._tried(nest, {})
        assert cut is not None  # nothing is cut, or its examples, for which replicas exist
        self._decided(number, cut)

    def _chosen(self, step: BatchStep, types: Mapping[str, DistType | None]) -> CutOperation:
        if isinstance(step.loop, BatchedLoop):
            return self._in_steps(step, step.loop, types)
        if step.linear is not None:
            return self._passing(step, step.linear, types)
        nest = self.nest(step)
        axes: dict[str, tuple[str, ...]] = {}
        if step.batch:
            axes[step.batch] = (DATA,) if self.data > 1 else ()
            self._check_divides(step.op.name, step.nest.size(step.batch))
        cut_operation = self._tried(nest, axes)
        if cut_operation is None:
            raise ProgramError(step.op.name, "", "Layout", f"its work is not cut over {self.data} replicas")
        for axis in [TENSOR, *([] if step.batch else [DATA])]:
            if axis not in self.size:
                continue
            for name in self._candidates(nest, types, axis, step):
                tried = axes | {name: (axis, *axes.get(name, ()))}
                finer = self._tried(nest, tried)
                if finer is not None:
                    axes, cut_operation = tried, finer
                    break
        return cut_operation

    def _passing(self, step: BatchStep, group: int, types: Mapping[str, DistType | None]) -> CutOperation:
        """An operation that passes sums over examples, and their summands along the axes of all of them."""
        nest = step.nest
        summed = [types[nest.reads[read].array] for read in nest.linear[group]]
        axes = [axis for axis in self.mesh.names if all(form is None or axis in form.partial for form in summed)]
        carried = tuple(tuple(axes) if g == group else () for g in range(len(nest.linear)))
        of_tensor = [] if TENSOR in axes or TENSOR not in self.size else self._candidates(nest, types, TENSOR, step)
        for cut in [*({name: (TENSOR,)} for name in of_tensor), {}]:
            passing = self._tried(nest, cut, carried)
            if passing is not None:
                return passing
        raise ProgramError(step.op.name, "", "Layout", "its sums over examples cannot stay parts of sums")

    def _in_steps(self, of: BatchStep, loop: BatchedLoop, types: Mapping[str, DistType | None]) -> CutOperation:
        """A loop whose steps are cut one operation after the other."""
        names, loop_form = [value.name for value in loop.batch.inputs], loop.form
        _, carried, entries = loop_form.operands(names)
        stacked = {*entries}
        forms = {name: form for name in names if (form := types.get(name)) is not None}
        begin = {
            name: DistType(form.dims[1:] if name in stacked else form.dims)
            for name, form in forms.items()
            if loop.batch.roles[name].kind != "summed"  # a sum begins with zeros in the layout of the sum
        }
        step = Cutter(loop.batch, self.data, self.tensor, self.microbatches, {}, types=begin)
        for value in loop.batch.inputs:  # those that nothing reads
            step.types.setdefault(value.name, DistType.cut(value.type.global_shape, {}, self.mesh))
        ins = {name: loop_form.stacked(step.types[name]) if name in stacked else step.types[name] for name in names}
        _, made = loop_form.results(loop.batch.outputs)
        ends = [*(step.types[name] for name in carried), *(loop_form.stacked(step.types[name]) for name in made)]
        outs = {access.array: form for access, form in zip(of.nest.writes, ends, strict=True)}
        return CutOperation(ScheduledNest(of.nest, DistType.cut(of.nest.sizes, {}, self.mesh)), ins, outs, loop, step)

    def _candidates(self, nest: Nest, types: Mapping[str, DistType | None], axis: str, step: BatchStep) -> list[str]:
        """Iteration dimensions that may be cut, the best first: those that cut the most bytes of operands."""
        weight: dict[str, int] = {}
        for access in nest.reads:
            form = types[access.array]
            for names, dim in zip(access.dims, form.dims if form else (), strict=False):
                if names and axis in dim.axes:
                    weight[names[0]] = weight.get(names[0], 0) + (form.global_size if form else 0)
        if weight or axis == DATA or not step.batch:
            return sorted(weight, key=lambda name: -weight[name])
        read = {name for access in nest.reads if types[access.array] is not None for name in access.names}
        written = {name for access in nest.writes for name in access.names}
        summed = read & {*nest.combiner}
        free = [access for access in nest.reads if types[access.array] is None and summed.intersection(access.names)]
        return [
            dim[0] for access in free for dim in access.dims if dim and dim[0] in written and not read & set(dim)
        ]  # fmt: skip

    def _tried(
        self, nest: Nest, axes: Mapping[str, Sequence[str]], carried: tuple[tuple[str, ...], ...] = ()
    ) -> CutOperation | None:
        """The operation cut so, with summands in its linear groups of reads; None where it cannot be."""
        cut = cut_of(nest, axes, self.mesh)
        dims = [name for name, names in axes.items() if names]
        if cut is None or any(slides(access, dims) for access in nest.reads):
            return None
        part = ScheduledNest(nest, cut, carried if any(carried) else ())
        try:
            ins, outs = part.signature(self.mesh)
        except ProgramError:
            return None
        return CutOperation(part, _by_array(nest.reads, ins), _by_array(nest.writes, outs))


def _by_array(accesses: Sequence[Access], forms: Sequence[DistType]) -> dict[str, DistType]:
    return {access.array: form for access, form in zip(accesses, forms, strict=True)}
