"""What mattered in a schedule: for each decision the next best one, and where that loses; and what pins cost."""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from redistrib.autoshard.axes import AxesProblem, Task
from redistrib.autoshard.candidates import Option
from redistrib.autoshard.deadline import NEVER, Deadline, OutOfTime
from redistrib.autoshard.descent import Found
from redistrib.autoshard.elimination import Elimination, ball
from redistrib.autoshard.exact import BALL, WITHIN
from redistrib.autoshard.fitting import Fitted, fitted
from redistrib.autoshard.isomorphism import classes_of
from redistrib.autoshard.moves import Objective
from redistrib.plans.dtypes import itemsize_of
from redistrib.programs.program import Program
from redistrib.report import rendered

SHOWN = 10  # decisions in a report


class Decision(NamedTuple):
    """One decision of a schedule.

    Attributes:
        what: the operation or array; of several that are alike, the first.
        times: for how many it stands.
        axis: the mesh axis.
        taken, other: how the axis cuts it, and the next best way, those around it decided anew for it.
        loss: what the next best way takes more: seconds, or bytes.
        where: what takes most of that.
    """

    what: str
    times: int
    axis: str
    taken: str
    other: str
    loss: float
    where: str


def decisions(task: Task, found: Found, deadline: Deadline = NEVER) -> list[Decision]:
    """The decisions about arguments and operations, those first of which the next best way is worst.

    Those along axes that there is no time for are left out.
    """
    listed = []
    with contextlib.suppress(OutOfTime):
        classes = classes_of(task)
        for axis in task.moves.mesh.axes:
            if axis.size > 1:
                problem = AxesProblem(task, found.decided, [axis.name], classes, deadline)
                listed += _along(problem, found, axis.name)
    return sorted(listed, key=lambda one: (-one.loss, one.what))


def _along(problem: AxesProblem, found: Found, axis: str) -> list[Decision]:
    tables, choice = Elimination(problem.problem, problem.deadline), list(problem.choice_of(found.decided))
    most = max((operation.nest.points * operation.nest.flops for operation in problem.graph.operations), default=0)
    nodes = dict.fromkeys(problem.node_of_input.values())
    for k, operation in enumerate(problem.graph.operations):
        if operation.nest.points * operation.nest.flops * 100 >= most:
            nodes[problem.node_of_operation[k]] = None
    listed = []
    for node in nodes:
        others = [k for k in range(tables.sizes[node]) if k != choice[node]]
        if not others:
            continue
        count, made = BALL, None
        while made is None and count:
            free = {n: range(tables.sizes[n]) for n in ball(tables, node, count)} | {node: others}
            made, count = tables.solve(free, choice, WITHIN), count // 2
        if made is None:
            continue
        other = [made.get(n, taken) for n, taken in enumerate(choice)]
        changed = [n for n, taken in enumerate(other) if taken != choice[n]]
        losses = _losses(problem, tables, changed, choice, other)
        worst = max(losses, key=lambda name: losses[name])
        options = problem.options[node]
        listed.append(
            Decision(
                problem.names[node], problem.times[node], axis, _said(options[choice[node]]),
                _said(options[other[node]]), sum(losses.values()), worst,
            )
        )  # fmt: skip
    return listed


def _losses(
    problem: AxesProblem, tables: Elimination, changed: list[int], choice: list[int], other: list[int]
) -> dict[str, float]:
    """What becomes dearer, by what it is."""
    lost: dict[str, float] = defaultdict(float)
    for node in changed:
        prices = problem.problem.nodes[node].prices
        lost[f"work of {problem.names[node]}"] += prices[other[node]] - prices[choice[node]]
    for k in sorted({k for node in changed for k in tables.touching[node]}):
        lost[f"moves of {problem.problem.flows[k].name}"] += tables.flow(k, other) - tables.flow(k, choice)
    return lost


def _said(option: Option) -> str:
    ((_, cut),) = option.cuts
    if isinstance(cut, int) and option.ins != option.outs:
        return "summands pass"
    return "whole" if cut is None else str(cut)


def table(listed: Sequence[Decision], unit: str) -> str:
    """The decisions that mattered most, as a table."""
    scale = 1e6 if unit == "seconds" else 1.0
    rows = [
        [f"{one.what}{f' and {one.times - 1} alike' if one.times > 1 else ''}", one.axis, one.taken, one.other,
         f"{one.loss * scale:,.1f}", one.where]
        for one in listed[:SHOWN]
    ]  # fmt: skip
    loses = "loses us" if unit == "seconds" else "loses bytes"
    return rendered("what mattered", ["decision", "axis", "taken", "runner-up", loses, "most of it in"], rows)


class PinCost(NamedTuple):
    """What a pin costs.

    Attributes:
        what: what is pinned.
        held, free: with all pins, and without this one, in `unit`.
        moves: what is moved for it and would not be: the value, and bytes that all devices receive.
        unit: `"seconds"`, or `"bytes"` that all devices receive.
    """

    what: str
    held: float
    free: float
    moves: tuple[tuple[str, int], ...]
    unit: Objective = "seconds"

    def __str__(self) -> str:
        moved = ", ".join(f"{name} ({size:,} bytes)" for name, size in self.moves[:3]) or "nothing else is moved"
        if self.unit == "bytes":
            return f"{self.what}: with it {self.held:,.0f} bytes received, without {self.free:,.0f}: {moved}"
        return f"{self.what}: with it {self.held * 1e3:,.3f} ms, without {self.free * 1e3:,.3f}: {moved}"


def pin_costs(made: Fitted, name: str, most: int | None, limit: float | None) -> list[PinCost]:
    """What each pin costs, by searching without it; arguments of one parameter go together."""
    task, listed = replace(made.task.whole or made.task, held={}, keep=None), []
    for what, other in _without(task).items():
        free = fitted(other, name, most, Deadline.after(limit))
        more: dict[str, int] = {}
        if made.evaluation is None and free.evaluation is None:
            before, after = _received(made.program), _received(free.program)
            more = {key: size - after.get(key, 0) for key, size in before.items() if size > after.get(key, 0)}
        moves = tuple(sorted(more.items(), key=lambda one: (-one[1], one[0])))
        listed.append(PinCost(what, made.found.price, free.found.price, moves, task.moves.objective))
    return listed


def _without(task: Task) -> dict[str, Task]:
    """The task without each of its pins."""
    found: dict[str, Task] = {}
    arguments = dict.fromkeys(str(name).partition("/")[0] for name in (*task.starts, *task.pins))
    for root in arguments:
        starts = {name: form for name, form in task.starts.items() if name.partition("/")[0] != root}
        pins: Mapping[str | int, Mapping[str, int | None]] = {
            name: dims for name, dims in task.pins.items() if str(name).partition("/")[0] != root
        }
        found[f"argument {root}"] = replace(task, starts=starts, pins=pins)
    if task.ends:
        found["results"] = replace(task, ends={})
    for k in task.work:
        work = {number: cuts for number, cuts in task.work.items() if number != k}
        found[f"operation {task.graph.operations[k].name}"] = replace(task, work=work)
    return found


def _received(program: Program) -> dict[str, int]:
    """Bytes that all devices receive, by the value as it was made, however often it is moved."""
    total: Counter[str] = Counter()
    first: dict[str, str] = {}
    for move in program.moves:
        name = first[move.out.name] = first.get(move.value, move.value)
        total[name] += sum(program.received(move).values()) * itemsize_of(move.out.dtype)
    return dict(total)
