"""Roles of a mesh axis in the schedules that people write, derived from the graph.

===========  ===========================================================================================================
role         the dimensions that the axis cuts
===========  ===========================================================================================================
`data`       the examples: the first dimension of an argument that nearly all work follows from
`sharded`    the examples, and the weights as they are stored (fully sharded data parallel)
`tensor`     the weights of products in pairs, the first along its kept and the second along its summed dimension
             (Shoeybi et al. 2019)
`sequence`   the same, and between the pairs the sequence (Korthikanti et al. 2022)
`context`    the sequence, in attention that of the queries (context parallel)
`expert`     the examples, and in products with weights of experts the experts (Lepikhin et al. 2020)
===========  ===========================================================================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Literal, TypeAlias

from redistrib.errors import ProgramError
from redistrib.programs.ir.nest import Nest
from redistrib.programs.schedule.conflicts import reshard_instead
from redistrib.programs.schedule.propagate import Propagation
from redistrib.programs.search.constants import NEARLY, SOME, TRIALS
from redistrib.programs.search.deadline import Deadline
from redistrib.programs.search.problem import SearchProblem

Step: TypeAlias = Callable[[Propagation, str], bool]  # a part of a role along an axis; whether there is a place for it
AxisRole: TypeAlias = Literal["sharded", "tensor", "data", "sequence", "context", "expert"]
ROLES: tuple[AxisRole, ...] = ("sharded", "tensor", "data", "sequence", "context", "expert")
LATER: tuple[AxisRole, ...] = ("sequence", "context", "expert")  # tried after the others


@dataclass
class Roles:
    """Roles of axes, applied to a propagation of the pins."""

    problem: SearchProblem
    base: Propagation
    deadline: Deadline
    examples: dict[int, list[tuple[str, int]]] = field(default_factory=dict)
    weights: list[str] = field(default_factory=list)
    experts: dict[int, dict[int, str]] = field(default_factory=dict)
    work: dict[int, dict[tuple[str, int], int]] = field(default_factory=dict)
    alone: dict[tuple[str, str, int], Propagation | None] = field(default_factory=dict)
    reached: dict[tuple[tuple[Step, str], ...], Propagation | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        graph, state = self.problem.graph, {*self.problem.given.tied.values()}
        self.arguments = [array for array in graph.inputs if array.name not in state]
        whole = state or {array.name for array in graph.inputs}
        axis = max(self.base.mesh.axes, key=lambda mesh_axis: mesh_axis.size)
        ranked = self._ranked(axis.name)
        cut = self._with(axis.name, *ranked[0]) if ranked else None
        if cut is not None:  # a cache of decoding is state, and has examples
            whole = {array.name for array in graph.inputs if not cut.input_type(array.name).axes}
        self.weights = [array.name for array in graph.inputs if array.name in whole and array.shape]

    def products(self, axes: Sequence[str]) -> Iterator[dict[str, AxisRole]]:
        """A role for each axis, in all ways that the program has a place for; those most often written first.

        The second is fully sharded data parallel over all axes: it holds little, and is often found late otherwise.
        On more than two axes one of them has a role of `LATER`. Whether there is a place for these is asked last.
        """

        def later(chosen: Sequence[AxisRole]) -> int:
            return sum(role in LATER for role in chosen)

        first = [role for role in ROLES if role not in LATER]
        chosen_roles = sorted(product(first, repeat=len(axes)), key=lambda combination: len({*combination}) == 1)
        if len(axes) > 1:
            everywhere = tuple(ROLES[0] for _ in axes)
            chosen_roles.remove(everywhere)
            chosen_roles.insert(1, everywhere)
        for chosen in chosen_roles:
            yield dict(zip(axes, chosen, strict=True))
        size = min(self.base.mesh.axis(axis).size for axis in axes)
        has_sequence, has_experts = self._sequence(size) is not None, bool(self._experts(size))
        roles = [*first, *(role for role in LATER if (has_experts if role == "expert" else has_sequence))]
        chosen_roles = sorted(
            (chosen for chosen in product(roles, repeat=len(axes)) if later(chosen)),
            key=lambda combination: (later(combination), len({*combination}) == 1),
        )
        for chosen in chosen_roles:
            if len(axes) <= 2 or later(chosen) <= 1:
                yield dict(zip(axes, chosen, strict=True))

    def propagated(self, roles: Mapping[str, AxisRole]) -> Propagation | None:
        """The propagation of roles of all axes; None where one cannot be.

        Roles that begin alike share what they begin with.
        """
        steps = [(step, axis) for each in self._steps for axis, role in roles.items() for step in each.get(role, ())]
        propagation = self.base
        for count, (step, axis) in enumerate(steps, 1):
            done = tuple(steps[:count])
            if done not in self.reached:
                after = propagation.copy()
                self.reached[done] = after if step(after, axis) else None
            if (reached := self.reached[done]) is None:
                return None
            propagation = reached
        propagation = propagation.copy()
        for axis in roles:
            reshard_instead(propagation, axis)
        return propagation

    @cached_property
    def _steps(self) -> tuple[Mapping[AxisRole, tuple[Step, ...]], ...]:
        """What each role does: all of one stage for all axes, before those of the next."""
        data = (self._data,)
        return (
            {"expert": (self._along_experts,)},
            {"context": (self._along_sequence,), "sharded": data, "data": data, "expert": data},
            {"tensor": (self._tensor,), "sequence": (self._tensor, self._along_sequence)},
            {"sharded": (self._sharded,)},
        )

    def _along_experts(self, propagation: Propagation, axis: str) -> bool:
        """Cut the experts of all products that have them."""
        for number, dim in self._experts(self.base.mesh.axis(axis).size).items():
            if propagation.may_cut(number, axis, dim):
                propagation.cut_operation(number, axis, dim)
        return True

    def _sequence(self, size: int) -> tuple[str, int] | None:
        """The dimension after that of the examples, if an axis of some size cuts some work by it; None for the features
        of an array, which come last."""
        axis = next(mesh_axis.name for mesh_axis in self.base.mesh.axes if mesh_axis.size == size)
        ranked = self._ranked(axis)
        if not ranked:
            return None
        name, dim = ranked[0][0], ranked[0][1] + 1
        array, work = self.base.arrays[name], self.work[size]
        is_last = dim == len(array.shape) - 1 and not array.dtype.startswith(("int", "uint", "bool"))
        enough = work.get((name, dim), 0) >= SOME * work[ranked[0]]
        return (name, dim) if dim < len(array.shape) and not is_last and enough else None

    def _along_sequence(self, propagation: Propagation, axis: str) -> bool:
        """Cut the sequence of every argument that has one as the first has it."""
        place = self._sequence(self.base.mesh.axis(axis).size)
        if place is None or not _cut(propagation, place[0], axis, place[1]):
            return False
        name, dim = place
        length = propagation.arrays[name].shape[: dim + 1]
        for array in self.arguments:
            if array.name != name and array.shape[: dim + 1] == length and array.name not in self.weights:
                _cut(propagation, array.name, axis, dim)
        return True

    def _experts(self, size: int) -> dict[int, str]:
        """Products that a dimension of a weight runs along from one expert to the next: the operations, by number, each
        with the dimension. All arrays of this product have it: it is neither kept from one factor nor summed over."""
        if size not in self.experts:
            axis = next(mesh_axis.name for mesh_axis in self.base.mesh.axes if mesh_axis.size == size)
            dims_of: dict[int, str] = {}
            operations = self.problem.graph.operations
            for name in self.weights:
                number, read, stacked = self._product(name) or (-1, 0, 0)
                if number < 0 or number in dims_of:
                    continue
                nest = operations[number].nest
                for dim, names in enumerate(nest.reads[read].dims):
                    if len(names) == 1 and len(nest.reads) > 1 and _is_everywhere(nest, names[0]):
                        dims_of |= self._products_along(axis, name, stacked + dim)
                        break
            self.experts[size] = dims_of
        return self.experts[size]

    def _products_along(self, axis: str, name: str, dim: int) -> dict[int, str]:
        """The products with much work that a dimension of an argument runs along, each with that dimension."""
        propagation, operations = self._with(axis, name, dim), self.problem.graph.operations
        return {
            k: cuts[axis]
            for k, cuts in enumerate(propagation.cuts if propagation is not None else ())
            if axis in cuts and self.problem.facts.heavy[k]
            and operations[k].nest.combine and len(operations[k].nest.reads) > 1
            and _is_everywhere(operations[k].nest, cuts[axis])
        }  # fmt: skip

    def _data(self, propagation: Propagation, axis: str) -> bool:
        """Cut a dimension of an argument that nearly all work follows from, the first that the axis still divides."""
        if any(propagation.pins.get(array.name, {}).get(axis) is not None for array in self.arguments):
            return True
        return any(_cut(propagation, name, axis, dim) for name, dim in self._ranked(axis))

    def _ranked(self, axis: str) -> list[tuple[str, int]]:
        """Dimensions of arguments that nearly most work is cut by when an axis cuts them, the foremost first."""
        size = self.base.mesh.axis(axis).size
        if size not in self.examples:
            places = [(array.name, dim) for array in self.arguments for dim in range(len(array.shape))]
            work: dict[tuple[str, int], int] = {}
            for name, dim in places[-TRIALS:]:
                if work and self.deadline.passed:
                    break
                propagation = self._with(axis, name, dim)
                if propagation is not None:
                    work[name, dim] = sum(
                        times * operation.nest.work
                        for operation, times, cuts in zip(
                            self.problem.graph.operations, self.problem.facts.times, propagation.cuts, strict=True
                        )
                        if axis in cuts
                    )
            most = max(work.values(), default=0)
            self.work[size] = work
            self.examples[size] = sorted(
                (place for place, place_work in work.items() if place_work >= NEARLY * most > 0),
                key=lambda place: (place[1], -work[place]),
            )
        return self.examples[size]

    def _with(self, axis: str, name: str, dim: int) -> Propagation | None:
        """The propagation of the pins and one cut of an argument, not to be changed."""
        if (axis, name, dim) not in self.alone:
            propagation = self.base.copy()
            self.alone[axis, name, dim] = propagation if _cut(propagation, name, axis, dim) else None
        return self.alone[axis, name, dim]

    def _tensor(self, propagation: Propagation, axis: str) -> bool:
        """Cut weights, in the order that they are first read in, by a dimension that their product keeps."""
        operations = self.problem.graph.operations
        first = {name: product for name in self.weights if (product := self._product(name)) is not None}
        for name, (number, read, stacked) in sorted(first.items(), key=lambda entry: entry[1]):
            nest = operations[number].nest
            for dim, names in enumerate(nest.reads[read].dims):
                in_result = any(letter in access.names for access in nest.writes for letter in names)
                if in_result and axis not in propagation.cuts[number] and _cut(propagation, name, axis, stacked + dim):
                    break
        propagation.spread(axis)
        return True

    def _product(self, name: str) -> tuple[int, int, int] | None:
        """The first operation with much work that sums over a dimension of a weight, and the number of that read.

        Of weights that are stacked for the steps of loops it reads entries; the third number is that of the dimensions
        that these have less.
        """
        for number, read in self.base.readers.get(name, ()):
            operation = self.problem.graph.operations[number]
            if self.problem.facts.heavy[number] and operation.nest.combine:
                return number, read, 0
            if operation.edge.slices and (inside := self._product(operation.outs[0].name)):
                return inside[0], inside[1], inside[2] + 1
        return None

    def _is_stacked(self, name: str) -> bool:
        """Whether a weight has an entry for each step of a loop."""
        readers = self.base.readers.get(name, ())
        return bool(readers) and all(self.problem.graph.operations[k].edge.slices for k, _ in readers)

    def _sharded(self, propagation: Propagation, axis: str) -> bool:
        """Cut weights as they are stored, each by the first dimension that nothing else cuts, or the first at all.

        That of the steps of a loop comes last: cut by it, all steps would be gathered before the loop.
        """
        for name in self.weights:
            stacked = self._is_stacked(name)
            listed = enumerate(propagation.input_type(name).dims)
            dims = sorted(listed, key=lambda entry: (stacked and not entry[0], bool(entry[1].axes), entry[0]))
            for dim, _ in dims:
                if _cut(propagation, name, axis, dim, spread=False):
                    break
        propagation.spread(axis)
        return True


def _cut(propagation: Propagation, name: str, axis: str, dim: int, spread: bool = True) -> bool:
    """Cut an argument, where a pin does not say otherwise and the axes divide it; whether it is cut now."""
    if axis in propagation.pins.get(name, {}):
        return False
    parts = math.prod(propagation.mesh.axis(a).size for a in (*propagation.input_type(name).dims[dim].axes, axis))
    if propagation.arrays[name].shape[dim] % parts or not propagation.arrays[name].shape[dim]:
        return False
    try:
        propagation.cut_array(name, axis, dim)
    except ProgramError:
        return False
    if spread:
        propagation.spread(axis)
    return True


def _is_everywhere(nest: Nest, dim: str) -> bool:
    """Whether every array of an operation has a dimension that it runs along, by itself."""
    return all((dim,) in access.dims for access in (*nest.reads, *nest.writes))
