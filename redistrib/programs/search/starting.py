"""Where a search begins: the schedules that people write, derived from the graph.

Each axis of the mesh has a role, see `roles`. Propagation finds all other cuts. Products of roles come in the
order in which `Roles.products` lists them, whatever they cost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from redistrib.programs.schedule.conflicts import reshard_instead
from redistrib.programs.schedule.graph_cuts import End, cuts_of
from redistrib.programs.schedule.propagate import Propagation
from redistrib.programs.search.deadline import NEVER, Deadline
from redistrib.programs.search.problem import SearchProblem
from redistrib.programs.search.roles import Roles


def pinned(problem: SearchProblem, order: Sequence[str]) -> Propagation:
    """The pins as cuts; nothing is propagated yet along axes without pins."""
    propagation = problem.undecided()
    for axis in order:
        problem.given.cut(propagation, axis)
        reshard_instead(propagation, axis)
    return propagation


def decided_by(problem: SearchProblem, propagation: Propagation) -> Propagation:
    """The propagation, in which it is decided how arguments begin and results end."""
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
    propagation.ends = ends
    return propagation


def propagated(problem: SearchProblem, order: Sequence[str]) -> Propagation:
    """The pins, propagated axis after axis as `distribute` does it."""
    return decided_by(problem, pinned(problem, order))


def starting(problem: SearchProblem, deadline: Deadline = NEVER) -> Iterator[Propagation]:
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
    yielded = [first]
    for chosen in roles.products(axes):
        propagation = roles.propagated(chosen)
        if propagation is not None:
            decisions = decided_by(problem, propagation)
            if not any(map(decisions.agrees_with, yielded)):
                yielded.append(decisions)
                yield decisions
        if not deadline.left:
            return


def is_spread(problem: SearchProblem, decisions: Propagation) -> bool:
    """Whether, where only bytes count, every axis cuts every operation with much work: else to cut none is best."""
    axes = [axis.name for axis in problem.moves.mesh.axes if axis.size > 1]
    return problem.moves.objective == "seconds" or all(
        axis in cuts for cuts, heavy in zip(decisions.cuts, problem.facts.heavy, strict=True) if heavy for axis in axes
    )
