"""Whether the values of calls and loops fit the programs that these run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from redistrib.errors import ProgramError
from redistrib.programs.ir.data import Call, Compute, Loop, ProgramData
from redistrib.programs.ir.inline import with_steps
from redistrib.programs.ir.loops import LoopForm
from redistrib.programs.ir.value import Value


def check_ends(op: Call | Loop, live: Mapping[str, Value]) -> None:
    """Check that values of a program fit the ends of a program that it runs, and the steps of a loop each other.

    Raises:
        ProgramError: if they do not.
    """
    if isinstance(op, Call):
        _check_call(op, live)
    else:
        _check_loop(op, live)


def _check_call(op: Call, live: Mapping[str, Value]) -> None:
    ends = [op.program.values[name] for name in op.program.outputs]
    pairs = [([live[name] for name in op.ins], op.program.inputs), (op.outs, ends)]
    for actual, expected in pairs:
        if len(actual) != len(expected) or not all(a.means(b) for a, b in zip(actual, expected, strict=True)):
            have, need = (", ".join(f"{v.name}: {v.form}" for v in end) or "none" for end in (actual, expected))
            raise ProgramError(op.program.name, "", "Call", f"values {have} stand for {need}")


def _check_loop(op: Loop, live: Mapping[str, Value]) -> None:
    step, form, split = op.program, op.form, op.form.held
    if op.steps < 0 or min(op.constants, op.carried) < 0 or split > len(op.ins):
        why = f"{op.steps} steps, {op.constants} constants and {op.carried} carried are no loop of {len(op.ins)} values"
        raise ProgramError(op.name, "", "Loop", why)
    (handed_on, made), (left, stacked) = (
        form.results(values) for values in ([step.values[name] for name in step.outputs], op.outs)
    )
    at_start, (_, begin, entries) = list(step.inputs), form.operands(step.inputs)
    _require_fit(op, "at the start", [live[name] for name in op.ins[:split]], at_start[:split])
    _require_fit(op, "from step to step", handed_on, begin)
    _require_fit(op, "at the end", left, handed_on)
    _require_fit(op, "as entries of", [live[name] for name in op.ins[split:]], _stacked(entries, form))
    _require_fit(op, "as entries of", stacked, _stacked(made, form))
    if op.condition is not None:
        if len(op.ins) > split or len(op.outs) > op.carried:
            raise ProgramError(op.name, "", "Loop", "its steps are not counted, so nothing can have an entry for each")
        _require_fit(op, "in the condition", list(op.condition.inputs), at_start)
        ends = [op.condition.values[name] for name in op.condition.outputs]
        if [(value.form, value.dtype) for value in ends] != [("[]", "bool")]:
            results = ", ".join(f"{value.name}: {value.form} of {value.dtype}" for value in ends) or "nothing"
            raise ProgramError(op.name, "", "Loop", f"its condition makes {results}; it must make one boolean, whole")


def _stacked(values: Sequence[Value], form: LoopForm) -> list[Value]:
    """Arrays of which each step has an entry."""
    return [replace(value, type=form.stacked(value.type)) for value in values]


def _require_fit(op: Loop, where: str, values: Sequence[Value], expected: Sequence[Value]) -> None:
    pairs = list(zip(values, expected, strict=False))
    if len(values) != len(expected) or not all(a.means(b) and a.dtype == b.dtype for a, b in pairs):
        have, need = (
            ", ".join(f"{v.name}: {v.form} of {v.dtype}" for v in end) or "none" for end in (values, expected)
        )
        raise ProgramError(op.name, "", "Loop", f"values {have} stand for {need} {where} a step")


def require_bodies(program: ProgramData) -> None:
    """Refuse a program of which a nest cannot be run.

    Raises:
        ProgramError: if a nest has no body.
    """
    for op in (op for inner in with_steps(program) for op in inner.ops):
        if isinstance(op, Compute):
            for part in op.parts:
                if part.nest.body is None:
                    raise ProgramError(op.name, "", "Nest", f"nest {part.nest.name!r} has no body; give one to run it")
