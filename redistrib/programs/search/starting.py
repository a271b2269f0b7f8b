"""Where a search begins: the schedules that people write, derived from the graph.

Each axis of the mesh has a role, see `roles`. Propagation finds all other cuts. All products of roles are
ranked by an estimate that plans no move.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import accumulate
from operator import add
from typing import NamedTuple

from redistrib.cost.latency import LatencyBandwidth
from redistrib.lang.types import DistType
from redistrib.programs.schedule.conflicts import reshard_instead
from redistrib.programs.schedule.given import End, cuts_of
from redistrib.programs.schedule.propagate import Propagation
from redistrib.programs.search.deadline import NEVER, Deadline
from redistrib.programs.search.decisions import Decisions
from redistrib.programs.search.memory import last_held
from redistrib.programs.search.problem import SearchProblem
from redistrib.programs.search.roles import Roles


class Estimate(NamedTuple):
    """A rough estimate of a schedule's time and memory.

    Attributes:
        price: seconds, or bytes that all devices receive.
        peak: bytes on a device at the worst moment.
    """

    price: float
    peak: int


def pinned(problem: SearchProblem, order: Sequence[str]) -> Propagation:
    """The pins as cuts; nothing is propagated yet along axes without pins."""
    propagation = Decisions.none(problem).propagation
    for axis in order:
        problem.given.cut(propagation, axis)
        reshard_instead(propagation, axis)
    return propagation


def decided_by(problem: SearchProblem, propagation: Propagation) -> Decisions:
    """The result of propagation, with the types in which arguments begin and results end."""
    ends: dict[End, dict[str, int]] = {
        array.name: cuts_of(propagation.input_type(array.name)) for array in problem.graph.inputs
    }
    for number, name in enumerate(problem.graph.outputs):
        if number in problem.given.tied or name not in propagation.maker:
            ends[number] = dict(ends[problem.given.tied.get(number, name)])
        else:
            k, write = propagation.maker[name]
            made = propagation.part(k).signature(propagation.mesh).outs[write]
            ends[number] = cuts_of(propagation.output_type(name, made))
    return Decisions(propagation, ends)


def propagated(problem: SearchProblem, order: Sequence[str]) -> Decisions:
    """The pins, propagated axis after axis as `distribute` does it."""
    return decided_by(problem, pinned(problem, order))


def starting(problem: SearchProblem, deadline: Deadline = NEVER) -> Iterator[Decisions]:
    """The pins alone, and then every possible product of roles, those most often written first, while there is time.

    Args:
        problem: the search problem.
        deadline: after which no more are derived.
    """
    axes = [axis.name for axis in problem.moves.mesh.axes if axis.size > 1]
    base = pinned(problem, axes)
    first = decided_by(problem, base.copy())
    yield first
    if not axes or deadline.passed:
        return
    roles = Roles(problem, base, deadline)
    seen = {first.text}
    for chosen in roles.products(axes):
        propagation = roles.propagated(chosen)
        if propagation is not None:
            decisions = decided_by(problem, propagation)
            if decisions.text not in seen:
                seen.add(decisions.text)
                yield decisions
        if not deadline.left:
            return


def estimate(problem: SearchProblem, decisions: Decisions) -> Estimate:
    """Time and memory of a schedule; a move takes a latency, and the bytes a device receives over the bandwidth.

    This ranks schedules before any move is planned: plans take the time that the rank saves, and closed prices leave
    out hosts that share links.
    """
    propagation, graph, size = decisions.propagation, problem.graph, problem.moves.mesh.size
    seconds = problem.moves.objective == "seconds"
    speeds, latency = _speeds(problem) if seconds else (dict.fromkeys(problem.moves.mesh.names, 1.0 / size), 0.0)
    first_types = {
        array.name: problem.given.types.get(array.name, propagation.type_of(array.shape, decisions.ends[array.name]))
        for array in graph.inputs
    }
    forms = {name: {form} for name, form in first_types.items()}
    last = last_held(graph)
    last |= dict.fromkeys(
        (*graph.outputs, *(name for name in first_types if name not in problem.donated)), len(graph.operations)
    )
    live = [0] * (len(graph.operations) + 2)  # more than before each operation
    for name, form in first_types.items():
        live[0] += _bytes(problem, propagation, name, form)
        live[last.get(name, 0) + 1] -= _bytes(problem, propagation, name, form)
    price, extra = 0.0, [0] * len(graph.operations)
    for number, operation in enumerate(graph.operations):
        option = problem.facts.decided(propagation, number)
        price += problem.facts.times[number] * option.seconds if seconds else 0.0
        reads = [*zip(operation.ins, option.ins, strict=True)][: operation.edge.present]
        ending = (graph.operations[k] for k in graph.closing.get(number, ()))
        for array, form in zip(operation.outs, option.outs, strict=True):
            first_types[array.name], forms[array.name] = form, {form}
        reads += [(carry.ins[1], first_types[carry.outs[0].name]) for carry in ending]
        for name, form in reads:
            if form != first_types[name]:
                extra[number] += _bytes(problem, propagation, name, form)
            if form not in forms[name]:
                forms[name].add(form)
                received = problem.machine.bytes_of(_received(first_types[name], form), propagation.arrays[name].dtype)
                if received:
                    speed = min(speeds[axis] for axis in _changed(first_types[name], form))
                    price += problem.facts.moves_of(name, (number,)) * (received / speed + latency)
        for array, form in zip(operation.outs, option.outs, strict=True):
            born = graph.made_at(array.name)
            live[born] += _bytes(problem, propagation, array.name, form)
            live[max(born, last.get(array.name, born)) + 1] -= _bytes(problem, propagation, array.name, form)
    return Estimate(price, max(map(add, accumulate(live), [*extra, 0]), default=0))


def is_spread(problem: SearchProblem, decisions: Decisions) -> bool:
    """Whether, where only bytes count, every axis cuts every operation with much work: else to cut none is best."""
    axes = [axis.name for axis in problem.moves.mesh.axes if axis.size > 1]
    return problem.moves.objective == "seconds" or all(
        axis in cuts
        for cuts, heavy in zip(decisions.propagation.cuts, problem.facts.heavy, strict=True)
        if heavy
        for axis in axes
    )


def _bytes(problem: SearchProblem, propagation: Propagation, name: str, form: DistType) -> int:
    return problem.machine.bytes_of(form.local_size, propagation.arrays[name].dtype)


def _speeds(problem: SearchProblem) -> tuple[dict[str, float], float]:
    """For every axis the bytes per second of the links that its groups span, and the seconds before a byte moves."""
    links, mesh = problem.machine.links, problem.moves.mesh
    if not isinstance(links, LatencyBandwidth):
        return dict.fromkeys(mesh.names, math.inf), 0.0
    hosts = links.topology(mesh).hosts is not None
    speeds, span = {}, 1
    for axis in reversed(mesh.axes):
        span *= axis.size
        between_hosts = hosts and links.slow_bandwidth is not None and span > (links.devices_per_host or 1)
        speeds[axis.name] = (
            links.slow_bandwidth if between_hosts and links.slow_bandwidth is not None else links.bandwidth
        )
    return speeds, max((latency.launch for latency in links.latency.values()), default=0.0)


def _changed(source: DistType, target: DistType) -> set[str]:
    """The axes that cut two types otherwise."""
    before, after = cuts_of(source), cuts_of(target)
    return {axis for axis in {*before, *after} if before.get(axis) != after.get(axis)} | {*source.partial} or {
        *source.axes, *target.axes,
    }  # fmt: skip


def _received(source: DistType, target: DistType) -> int:
    """Elements that a device receives, roughly: a whole tile, unless it cuts one that it has."""
    if not source.partial and all({*s.axes} <= {*t.axes} for s, t in zip(source.dims, target.dims, strict=True)):
        return 0
    return target.local_size + (source.local_size if source.partial else 0)
