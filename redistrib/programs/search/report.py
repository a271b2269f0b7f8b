"""The decisions that matter in a schedule: for each the runner-up, and where that loses; and the price of pins."""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from redistrib.programs.ir.program import Program
from redistrib.programs.schedule.graph_cuts import End
from redistrib.programs.search.axes import AxesProblem
from redistrib.programs.search.candidates import Option
from redistrib.programs.search.classes import classes_of
from redistrib.programs.search.constants import SHOWN
from redistrib.programs.search.deadline import NEVER, Deadline, OutOfTime
from redistrib.programs.search.elimination import Elimination
from redistrib.programs.search.evaluation import evaluated
from redistrib.programs.search.exact import runner_up
from redistrib.programs.search.fitting import feasible_result
from redistrib.programs.search.found import FeasibleResult, SearchResult
from redistrib.programs.search.moves import Objective
from redistrib.programs.search.problem import SearchProblem
from redistrib.report import rendered, seconds_text

UNFIT = "does not fit"  # in place of what a runner-up loses


class Decision(NamedTuple):
    """One decision of a schedule.

    Attributes:
        name: the operation or array; of several that share the decision, the first.
        times: for how many it stands.
        axis: the mesh axis.
        taken, other: how the axis cuts it, and the next best way, those around it decided anew for it.
        loss: by how much the runner-up is worse: seconds, or bytes; less than zero where it is better.
        where: the operation that loses most of that.
        fits: whether a runner-up that is better fits the memory limit; one that is worse is no choice anyway.

    >>> import jax.numpy as jnp
    >>> import redistrib as rd
    >>> found = rd.search(lambda x, w: x @ w, (jnp.ones((64, 8)), jnp.ones((8, 8))), {"d": 4}, progress=False)
    >>> {decision.axis for decision in found[0].decisions}
    {'d'}
    """

    name: str
    times: int
    axis: str
    taken: str
    other: str
    loss: float
    where: str
    fits: bool = True


def ranked_decisions(
    problem: SearchProblem, result: SearchResult, most: int | None = None, deadline: Deadline = NEVER
) -> list[Decision]:
    """The decisions about arguments and operations, those first of which the next best way is worst.

    Those of which it is better and does not fit come last; those along axes that there is no time for are left out.

    Args:
        problem: the search problem.
        result: its schedule.
        most: bytes that a device may hold; None for no limit.
        deadline: after which no more are looked at.
    """
    listed = []
    with contextlib.suppress(OutOfTime):
        classes = classes_of(problem)
        for axis in problem.moves.mesh.axes:
            if axis.size > 1:
                axes_problem = AxesProblem(problem, result.decisions, [axis.name], classes, deadline)
                listed += _along(axes_problem, result, axis.name, most)
    return sorted(listed, key=lambda decision: (not decision.fits, -decision.loss, decision.name))


def _along(axes_problem: AxesProblem, result: SearchResult, axis: str, most: int | None) -> list[Decision]:
    tables, choice = (
        Elimination(axes_problem.choices, axes_problem.deadline),
        list(axes_problem.choice_of(result.decisions)),
    )
    heaviest = max((operation.nest.work for operation in axes_problem.graph.operations), default=0)
    nodes = dict.fromkeys(axes_problem.node_of_input.values())
    for k, operation in enumerate(axes_problem.graph.operations):
        if operation.nest.work * 100 >= heaviest:
            nodes[axes_problem.node_of_operation[k]] = None
    listed = []
    for node in nodes:
        alternatives = [k for k in range(tables.sizes[node]) if k != choice[node]]
        if not alternatives:
            continue
        solution = runner_up(tables, choice, node, alternatives)
        if solution is None:
            continue
        other = list(solution)
        changed = [n for n, taken in enumerate(other) if taken != choice[n]]
        losses = _losses(axes_problem, tables, changed, choice, other)
        worst = max(losses, key=lambda name: losses[name])
        options = axes_problem.options[node]
        loss, fits, problem = sum(losses.values()), True, axes_problem.problem
        if problem.overlap or (most is not None and loss < 0):  # bytes, and seconds beside each other, do not add up
            axes_problem.deadline.check()
            evaluation = evaluated(problem, axes_problem.chosen(solution), most)
            loss = evaluation.price(problem.moves.objective) - result.price
            fits = most is None or loss >= 0 or evaluation.memory <= most
        listed.append(
            Decision(
                axes_problem.names[node], axes_problem.times[node], axis, _shown(options[choice[node]]),
                _shown(options[other[node]]), loss, worst, fits,
            )
        )  # fmt: skip
    return listed


def _losses(
    axes_problem: AxesProblem, tables: Elimination, changed: list[int], choice: list[int], other: list[int]
) -> dict[str, float]:
    """The operations and moves that become dearer, by kind."""
    lost: dict[str, float] = defaultdict(float)
    for node in changed:
        prices = axes_problem.choices.nodes[node].prices
        lost[f"work of {axes_problem.names[node]}"] += prices[other[node]] - prices[choice[node]]
    for k in sorted({k for node in changed for k in tables.touching[node]}):
        lost[f"moves of {axes_problem.choices.edges[k].name}"] += tables.edge(k, other) - tables.edge(k, choice)
    return lost


def _shown(option: Option) -> str:
    ((_, cut),) = option.cuts
    if isinstance(cut, int) and option.ins != option.outs:
        return "summands pass"
    return "whole" if cut is None else str(cut)


def table(listed: Sequence[Decision], unit: str) -> str:
    """The decisions that mattered most, as a table."""
    scale = 1e6 if unit == "seconds" else 1.0
    rows = [
        [
            decision.name + (f" and {decision.times - 1} alike" if decision.times > 1 else ""),
            decision.axis,
            decision.taken,
            decision.other,
            f"{decision.loss * scale:,.1f}" if decision.fits else UNFIT,
            decision.where,
        ]
        for decision in listed
    ]
    loses = "loses us" if unit == "seconds" else "loses bytes"
    columns = ["decision", "axis", "taken", "runner-up", loses, "most of it in"]
    return rendered("what mattered", columns, rows, most=SHOWN)


class PinCost(NamedTuple):
    """The price of a pin.

    Attributes:
        name: the pinned array or argument.
        held, free: with all pins, and without this one, in `unit`.
        moves: the moves that only the pin causes: the value, and bytes that all devices receive.
        unit: `"seconds"`, or `"bytes"` that all devices receive.

    >>> import jax.numpy as jnp
    >>> import redistrib as rd
    >>> args = jnp.ones((64, 8)), jnp.ones((8, 8))
    >>> found = rd.search(lambda x, w: x @ w, args, {"d": 4}, progress=False, pins=[rd.along("d", {"x": 1})])
    >>> [(cost.name, cost.held > cost.free) for cost in found[0].pin_costs()]
    [('argument x', True)]
    """

    name: str
    held: float
    free: float
    moves: tuple[tuple[str, int], ...]
    unit: Objective = "seconds"

    def __str__(self) -> str:
        moved = ", ".join(f"{name} ({size:,} bytes)" for name, size in self.moves[:3]) or "nothing else is moved"
        if self.unit == "bytes":
            return f"{self.name}: with it {self.held:,.0f} bytes received, without {self.free:,.0f}: {moved}"
        return f"{self.name}: with it {seconds_text(self.held)}, without {seconds_text(self.free)}: {moved}"


def pin_costs(base: FeasibleResult, name: str, most: int | None, limit: float | None) -> list[PinCost]:
    """The price of each pin, by a search without it; arguments of one parameter share a pin."""
    problem, listed = base.problem.whole or base.problem, []
    for name, other in _without(problem).items():
        free = feasible_result(other, name, most, Deadline.after(limit))
        more: dict[str, int] = {}
        if base.is_simulated and free.is_simulated:
            before, after = _received(base.program), _received(free.program)
            more = {key: size - after.get(key, 0) for key, size in before.items() if size > after.get(key, 0)}
        moves = tuple(sorted(more.items(), key=lambda entry: (-entry[1], entry[0])))
        listed.append(PinCost(name, base.result.price, free.result.price, moves, problem.moves.objective))
    return listed


def _without(problem: SearchProblem) -> dict[str, SearchProblem]:
    """The problem without each of its pins."""
    given, variants = problem.given, dict[str, SearchProblem]()
    groups: dict[str, set[End]] = {}
    for end in sorted((*given.types, *given.pins), key=lambda end: isinstance(end, int)):
        group = f"argument {end.partition('/')[0]}" if isinstance(end, str) else "results"
        groups.setdefault(group, set()).add(end)
    for group, ends in groups.items():
        types = {end: form for end, form in given.types.items() if end not in ends}
        pins = {end: dims for end, dims in given.pins.items() if end not in ends}
        variants[group] = replace(problem, given=replace(given, types=types, pins=pins))
    for k in given.work:
        work = {number: cuts for number, cuts in given.work.items() if number != k}
        variants[f"operation {problem.graph.operations[k].name}"] = replace(problem, given=replace(given, work=work))
    return variants


def _received(program: Program) -> dict[str, int]:
    """Bytes that all devices receive, by the value as it was made, however often it is moved."""
    total: Counter[str] = Counter()
    first: dict[str, str] = {}
    for move in program.moves:
        name = first[move.out.name] = first.get(move.value, move.value)
        total[name] += program.received_bytes_of(move)
    return dict(total)
