"""Whether a program is right: single assignment, types that follow from cuts, plans that fit, no talk inside groups."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from redistrib.errors import ProgramError, TypeFormError
from redistrib.lang.types import require_even
from redistrib.programs.ir.check_calls import check_ends
from redistrib.programs.ir.data import Compute, Move, ProgramData, called_by, made_by, name_of, used_by
from redistrib.programs.ir.groups import Group, group_of
from redistrib.programs.ir.value import Place, Value

_Program = TypeVar("_Program", bound=ProgramData)


def check(program: _Program) -> _Program:
    """The program, once it is found right.

    Raises:
        ProgramError: a subclass for each rule of derivation; the class itself for a program that does not fit together.

    >>> from redistrib import nest, partition
    >>> check(partition(nest("ij,jk->ik", (8, 8, 8)), {"matmul": {"i": 4}})).outputs
    ('out',)
    """
    _check(program, set())
    return program


def _check(program: ProgramData, checked: set[int]) -> None:
    """Check a program, but for called programs that were checked before."""
    live: dict[str, Value] = {}
    groups: dict[tuple[int, Place], Group] = {}
    for value in program.inputs:
        _define(value, live, "an input")
    wrong = [name for k, name in enumerate(program.donated) if name not in live or name in program.donated[:k]]
    if wrong:
        raise ProgramError("", wrong[0], "SSA", f"it is donated twice, or is no input; donate {', '.join(live)}, once")
    for op in program.ops:
        name = name_of(op)
        for used in used_by(op):
            if used not in live:
                why = "the value is not defined before; order the operations so that it is there"
                raise ProgramError(name, used, "SSA", why)
        match op:
            case Compute():
                group = groups.get((id(op.parts), op.place)) or group_of(op.name, op.parts, op.place)
                groups[id(op.parts), op.place] = group
                _check_compute(op, group, live)
            case Move():
                _check_move(op, live[op.value])
            case _:
                for inner in called_by(op):
                    if id(inner) not in checked:
                        _check(inner, checked)
                check_ends(op, live)
        for value in made_by(op):
            _define(value, live, name)
    for output in program.outputs:
        if output not in live:
            raise ProgramError("", output, "SSA", "the program ends with a value that it does not hold")
        if live[output].windows:
            raise ProgramError("", output, "Window", "the program ends with tiles that overlap; end with whole ones")
    checked.add(id(program))


def _define(value: Value, live: dict[str, Value], by: str) -> None:
    if value.name in live:
        raise ProgramError(by, value.name, "SSA", "the value is defined a second time; give every result a new name")
    try:
        require_even("a program", value.type)
        value.type.check(value.place.mesh)
    except TypeFormError as error:
        raise ProgramError(by, value.name, "SSA", str(error)) from error
    if value.windows and (len(value.windows) != value.type.rank or value.type.partial):
        raise ProgramError(by, value.name, "Window", f"{value.form} has not one window for each dimension of tiles")
    live[value.name] = value


def _check_compute(op: Compute, group: Group, live: dict[str, Value]) -> None:
    reads = dict(op.ins)
    if set(reads) != set(group.reads) or len(reads) != len(op.ins):
        raise ProgramError(op.name, "", "SSA", f"it reads {', '.join(group.reads) or 'nothing'}, given {list(reads)}")
    for array, needed in group.reads.items():
        value, windows = live[reads[array]], group.windows.get(array, ())
        if not value.holds(needed, op.place, windows):
            target = replace(value, type=needed, windows=windows)
            raise ProgramError(
                op.name, array, "Nest", f"it needs {target.form} on {op.place}, and value {value.name!r} is "
                f"{value.form} on {value.place}; move the value first",
            )  # fmt: skip
    for array, value in op.outs:
        if array not in group.writes:
            raise ProgramError(op.name, array, "SSA", "the operation does not write this array")
        form = group.writes[array]
        if not value.holds(form, op.place):
            why = f"it makes {form}, and value {value.name!r} is {value.type}"
            raise ProgramError(op.name, array, "Nest", why)


def _check_move(op: Move, value: Value) -> None:
    name, out = name_of(op), op.out
    if (value.shape, value.dtype) != (out.shape, out.dtype):
        why = f"{value.form} of {value.dtype} cannot become {out.form} of {out.dtype}"
        raise ProgramError(name, out.name, "Move", why)
    if value.windows and not value.means(out) and not out.is_part_of(value):
        why = "tiles that overlap are read and not moved; move what they were made of"
        raise ProgramError(name, value.name, "Window", why)
    if op.plan is None:
        alike = value.place.devices == out.place.devices and not out.windows
        if (alike and not value.means(out)) or (not alike and (value.type.partial or out.type.partial)):
            raise ProgramError(name, out.name, "Move", f"no plan is given from {value.form} to {out.form}")
        return
    if out.windows:
        raise ProgramError(name, out.name, "Window", "no plan makes tiles that overlap; leave the plan out")
    if value.place.devices != out.place.devices:
        raise ProgramError(name, out.name, "Move", "a plan moves data between the same devices; leave the plan out")
    plan = op.plan
    for end, form, mesh in ((value, plan.source, plan.source_mesh), (out, plan.target, plan.target_mesh)):
        place = end.place if mesh == end.place.mesh else Place(mesh, end.place.devices)
        if not end.holds(form, place):
            raise ProgramError(name, end.name, "Move", f"the value is {end.type}, and its plan has {form}")
