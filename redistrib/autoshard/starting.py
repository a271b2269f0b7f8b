"""Where a search begins: the schedules that people write, derived from the graph.

Each axis of the mesh has a role. It cuts the examples (data parallel), the examples and the weights as they are stored
(fully sharded data parallel), or the weights of products in pairs, the first by what it keeps and the second by what
it sums over (tensor parallel, Shoeybi et al. 2019). What follows from that is found by propagation. All products of
roles are ranked by an estimate that plans no move.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, product
from operator import add
from typing import Literal, NamedTuple, TypeAlias

from redistrib.autoshard.axes import dim_of
from redistrib.autoshard.candidates import Option, of_decided
from redistrib.autoshard.classes import classes_of
from redistrib.autoshard.deadline import NEVER, Deadline
from redistrib.autoshard.memory import last_held
from redistrib.autoshard.problem import Decisions, SearchProblem
from redistrib.cost.latency import LatencyBandwidth
from redistrib.errors import ProgramError
from redistrib.lang.types import DistType
from redistrib.partitioning.conflicts import reshard_instead
from redistrib.partitioning.propagate import Propagation
from redistrib.plans.dtypes import itemsize_of

Role: TypeAlias = Literal["sharded", "tensor", "data"]
ROLES: tuple[Role, ...] = ("sharded", "tensor", "data")
TRIALS = 24  # dimensions of arguments of which it is tried how much work follows from cutting them
NEARLY = 0.9  # of the most work that a dimension cuts: by custom examples are the first dimension of those
SPREADS = 200_000  # weights times operations, above which weights of layers that are alike are cut alike


class Estimate(NamedTuple):
    """What a schedule takes, roughly.

    Attributes:
        price: seconds, or bytes that all devices receive.
        peak: bytes on a device at the worst moment.
    """

    price: float
    peak: int


def pinned(problem: SearchProblem, order: Sequence[str]) -> Propagation:
    """What is pinned, cut; nothing follows from it yet along axes that nothing is pinned along."""
    propagation = Decisions.none(problem).propagation
    pins: dict[str | int, Mapping[str, int | None]] = {**problem.pins}
    for number, form in problem.ends.items():
        pins[number] = {axis: dim_of(form, axis) for axis in propagation.mesh.names}
    for name, form in problem.starts.items():
        pins[name] = {axis: dim_of(form, axis) for axis in propagation.mesh.names}
    for axis in order:
        for end, dims in pins.items():
            if axis in dims:
                propagation.cut_array(end if isinstance(end, str) else problem.graph.outputs[end], axis, dims[axis])
        for number, cuts in problem.work.items():
            if axis in cuts and axis not in propagation.cuts[number]:
                propagation.cut_operation(number, axis, cuts[axis])
        reshard_instead(propagation, axis)
    return propagation


def decided_by(problem: SearchProblem, propagation: Propagation) -> Decisions:
    """What propagation came to, with the types that arguments begin and results end in."""
    for k, operation in enumerate(problem.graph.operations):
        if operation.role == "leave":  # as it is carried
            carry = problem.graph.makers[operation.ins[0]][0]
            propagation.cuts[k], propagation.carries[k] = (
                dict(propagation.cuts[carry]),
                dict(propagation.carries[carry]),
            )
    ins = {array.name: _at(propagation.input_type(array.name)) for array in problem.graph.inputs}
    outs = []
    for number, name in enumerate(problem.graph.outputs):
        if number in problem.tied:
            outs.append(dict(ins[problem.tied[number]]))
        elif name in propagation.maker:
            k, write = propagation.maker[name]
            outs.append(_at(propagation.output_type(name, propagation.part(k).signature(propagation.mesh).outs[write])))
        else:
            outs.append(dict(ins[name]))
    return Decisions(propagation, ins, outs)


def propagated(problem: SearchProblem, order: Sequence[str]) -> Decisions:
    """What is pinned, spread axis after axis as `distribute` spreads it."""
    return decided_by(problem, pinned(problem, order))


def _at(form: DistType) -> dict[str, int]:
    return {axis: number for number, dim in enumerate(form.dims) for axis in dim.axes}


def starting(problem: SearchProblem, deadline: Deadline = NEVER) -> Iterator[Decisions]:
    """What is pinned, and then every product of roles that can be, those most often written first, while there is time.

    Args:
        problem: what is searched.
        deadline: after which no more are derived.
    """
    axes = [axis.name for axis in problem.moves.mesh.axes if axis.size > 1]
    base = pinned(problem, axes)
    first = decided_by(problem, base.copy())
    yield first
    if not axes or deadline.passed:
        return
    roles = _Roles(problem, base, deadline)
    seen = {first.text}
    for chosen in sorted(product(ROLES, repeat=len(axes)), key=lambda roles_of_axes: len({*roles_of_axes}) == 1):
        propagation = roles.propagated(dict(zip(axes, chosen, strict=True)))
        if propagation is not None:
            decisions = decided_by(problem, propagation)
            if decisions.text not in seen:
                seen.add(decisions.text)
                yield decisions
        if not deadline.left:
            return


@dataclass
class _Roles:
    """Roles of axes, applied to a propagation of the pins."""

    problem: SearchProblem
    base: Propagation
    deadline: Deadline
    examples: dict[int, list[tuple[str, int]]] = field(default_factory=dict)
    weights: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        graph, state = self.problem.graph, {*self.problem.tied.values()}
        self.arguments = [array for array in graph.inputs if array.name not in state]
        whole = state or {array.name for array in graph.inputs}
        axis = max(self.base.mesh.axes, key=lambda one: one.size)
        ranked = self._ranked(axis.name)
        if not state and ranked:
            cut = self._with(axis.name, *ranked[0])
            whole = {name for name in whole if cut is not None and not cut.input_type(name).axes}
        self.weights = [array.name for array in graph.inputs if array.name in whole and array.shape]

    def propagated(self, roles: Mapping[str, Role]) -> Propagation | None:
        """The propagation of roles of all axes; None where one cannot be."""
        propagation = self.base.copy()
        for axis, role in roles.items():
            if role != "tensor" and not self._data(propagation, axis):
                return None
        for axis, role in roles.items():
            if role == "tensor":
                self._tensor(propagation, axis)
        for axis, role in roles.items():
            if role == "sharded":
                self._sharded(propagation, axis)
        for axis in roles:
            reshard_instead(propagation, axis)
        return propagation

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
                        times * operation.nest.points * operation.nest.flops
                        for operation, times, cuts in zip(
                            self.problem.graph.operations, self.problem.times, propagation.cuts, strict=True
                        )
                        if axis in cuts
                    )
            most = max(work.values(), default=0)
            self.examples[size] = sorted(
                (place for place, place_work in work.items() if place_work >= NEARLY * most > 0),
                key=lambda place: place[1],
            )
        return self.examples[size]

    def _with(self, axis: str, name: str, dim: int) -> Propagation | None:
        propagation = self.base.copy()
        return propagation if _cut(propagation, name, axis, dim) else None

    def _tensor(self, propagation: Propagation, axis: str) -> None:
        """Cut weights, in the order that they are first read in, by a dimension that their product keeps."""
        graph, cut_like, pending = self.problem.graph, dict[int, int | None](), False
        is_large = len(self.weights) * len(graph.operations) > SPREADS
        numbers: Sequence[int] = classes_of(self.problem).inputs if is_large else range(len(graph.inputs))
        classes = dict(zip((array.name for array in graph.inputs), numbers, strict=True))
        first = {name: self._product(name) for name in self.weights}
        for name in sorted((name for name in self.weights if first[name]), key=lambda name: first[name] or (0, 0, 0)):
            number, read, stacked = first[name] or (0, 0, 0)
            if classes[name] in cut_like:
                like_dim = cut_like[classes[name]]
                pending |= like_dim is not None and _cut(propagation, name, axis, like_dim, spread=False)
                continue
            if pending:
                propagation.spread(axis)
            taken, pending = None, False
            nest = graph.operations[number].nest
            for dim, names in enumerate(nest.reads[read].dims):
                kept = any(letter in access.names for access in nest.writes for letter in names)
                if kept and axis not in propagation.cuts[number] and _cut(propagation, name, axis, stacked + dim):
                    taken = stacked + dim
                    break
            cut_like[classes[name]] = taken
        propagation.spread(axis)

    def _product(self, name: str) -> tuple[int, int, int] | None:
        """The first operation with much work that sums over what it reads of a weight, and the number of the read.

        Of weights that are stacked for the steps of loops it reads entries; the third number is that of the dimensions
        that these have less.
        """
        for number, read in self.base.readers.get(name, ()):
            operation = self.problem.graph.operations[number]
            if self.problem.heavy[number] and operation.nest.combine:
                return number, read, 0
            if operation.role == "entry" and (found := self._product(operation.outs[0].name)):
                return found[0], found[1], found[2] + 1
        return None

    def _is_stacked(self, name: str) -> bool:
        """Whether a weight has an entry for each step of a loop."""
        readers = self.base.readers.get(name, ())
        return bool(readers) and all(self.problem.graph.operations[k].role == "entry" for k, _ in readers)

    def _sharded(self, propagation: Propagation, axis: str) -> None:
        """Cut weights as they are stored, each by the first dimension that nothing else cuts, or the first at all.

        That of the steps of a loop comes last: cut by it, all steps would be gathered before the loop.
        """
        for name in self.weights:
            stacked = self._is_stacked(name)
            listed = enumerate(propagation.input_type(name).dims)
            dims = sorted(listed, key=lambda one: (stacked and not one[0], bool(one[1].axes), one[0]))
            for dim, _ in dims:
                if _cut(propagation, name, axis, dim, spread=False):
                    break
        propagation.spread(axis)


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


def estimate(problem: SearchProblem, decisions: Decisions) -> Estimate:
    """What a schedule takes, and holds; a move takes a latency, and what a device receives over the bandwidth."""
    propagation, graph, size = decisions.propagation, problem.graph, problem.moves.mesh.size
    seconds = problem.moves.objective == "seconds"
    speeds, latency = _speeds(problem) if seconds else (dict.fromkeys(problem.moves.mesh.names, 1.0 / size), 0.0)
    options: dict[object, Option] = {}
    first_types = {
        array.name: problem.starts.get(array.name, propagation.type_of(array.shape, decisions.ins[array.name]))
        for array in graph.inputs
    }
    forms = {name: {form} for name, form in first_types.items()}
    last = last_held(graph)
    last |= dict.fromkeys(
        (*graph.outputs, *(name for name in first_types if name not in problem.donated)), len(graph.operations)
    )
    held = [0] * (len(graph.operations) + 2)  # more than before each operation
    for name, form in first_types.items():
        held[0] += _bytes(propagation, name, form)
        held[last.get(name, 0) + 1] -= _bytes(propagation, name, form)
    price, extra = 0.0, [0] * len(graph.operations)
    for number, operation in enumerate(graph.operations):
        key = (problem.kinds[number], repr((propagation.cuts[number], propagation.carries[number])))
        if key not in options:
            options[key] = of_decided(propagation, number, problem.machine if seconds else None, problem.kernel(number))
        option = options[key]
        price += problem.times[number] * option.seconds
        reads = [*zip(operation.ins, option.ins, strict=True)][: {"leave": 0, "carry": 1}.get(operation.role)]
        ending = (graph.operations[k] for k in graph.closing.get(number, ()))
        for array, form in zip(operation.outs, option.outs, strict=True):
            first_types[array.name], forms[array.name] = form, {form}
        reads += [(carry.ins[1], first_types[carry.outs[0].name]) for carry in ending]
        for name, form in reads:
            if form != first_types[name]:
                extra[number] += _bytes(propagation, name, form)
            if form not in forms[name]:
                forms[name].add(form)
                received = _received(first_types[name], form) * itemsize_of(propagation.arrays[name].dtype)
                if received:
                    speed = min(speeds[axis] for axis in _changed(first_types[name], form))
                    price += problem.moves_of(name, (number,)) * (received / speed + latency)
        for array, form in zip(operation.outs, option.outs, strict=True):
            born = graph.made_at(array.name)
            held[born] += _bytes(propagation, array.name, form)
            held[max(born, last.get(array.name, born)) + 1] -= _bytes(propagation, array.name, form)
    return Estimate(price, max(map(add, accumulate(held), [*extra, 0]), default=0))


def is_spread(problem: SearchProblem, decisions: Decisions) -> bool:
    """Whether, where only bytes count, every axis cuts every operation with much work: else to cut none is best."""
    axes = [axis.name for axis in problem.moves.mesh.axes if axis.size > 1]
    return problem.moves.objective == "seconds" or all(
        axis in cuts
        for cuts, heavy in zip(decisions.propagation.cuts, problem.heavy, strict=True)
        if heavy
        for axis in axes
    )


def _bytes(propagation: Propagation, name: str, form: DistType) -> int:
    return form.local_size * itemsize_of(propagation.arrays[name].dtype)


def _speeds(problem: SearchProblem) -> tuple[dict[str, float], float]:
    """For every axis the bytes per second of the links that its groups span, and the seconds before a byte moves."""
    links, mesh = problem.machine.links, problem.moves.mesh
    if not isinstance(links, LatencyBandwidth):
        return dict.fromkeys(mesh.names, math.inf), 0.0
    hosts = links.topology(mesh).hosts is not None
    speeds, span = {}, 1
    for axis in reversed(mesh.axes):
        span *= axis.size
        apart = hosts and links.slow_bandwidth is not None and span > (links.devices_per_host or 1)
        speeds[axis.name] = links.slow_bandwidth if apart and links.slow_bandwidth is not None else links.bandwidth
    return speeds, max((one.launch for one in links.latency.values()), default=0.0)


def _changed(source: DistType, target: DistType) -> set[str]:
    """The axes that cut two types otherwise."""
    before, after = _at(source), _at(target)
    return {axis for axis in {*before, *after} if before.get(axis) != after.get(axis)} | {*source.partial} or {
        *source.axes, *target.axes,
    }  # fmt: skip


def _received(source: DistType, target: DistType) -> int:
    """Elements that a device receives, roughly: a whole tile, unless it cuts one that it has."""
    if not source.partial and all({*s.axes} <= {*t.axes} for s, t in zip(source.dims, target.dims, strict=True)):
        return 0
    return target.local_size + (source.local_size if source.partial else 0)
