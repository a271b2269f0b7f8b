"""Liveness: which bytes every device holds while a program runs.

A value is alive from the operation that makes it to the last that reads it. Inputs are there from the start, and stay
unless they are donated: then they too end with their last reader. Outputs stay to the end. A move that moves nothing
makes an alias: another name for the same bytes, which live as long as any of their names. A carried value takes the
bytes of its initial value, where nothing else reads these. Besides, an operation needs scratch while it runs: the
buffers of a plan, and the values that fused nests pass among themselves.

Calls change none of this: live bytes are those of the program with every call inlined, see `inlined`. So an input of a
call ends inside the called program if nothing reads it afterwards, and a result that nothing reads ends there too. A
called program that does not read an input does not prolong it. The inputs that it donates do not count, as they are the
caller's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from redistrib.plans.dtypes import packed_bytes
from redistrib.programs.ir.data import Call, Compute, Loop, Move, Op, ProgramData, held_by, stored_by
from redistrib.programs.ir.groups import group_of
from redistrib.programs.ir.value import Value


class Change(NamedTuple):
    """Buffers of an operation: those it allocates, bytes needed while it runs, those that end with it."""

    born: tuple[Value, ...]
    scratch: int
    died: tuple[Value, ...]


class Context(NamedTuple):
    """The liveness of a called program's inputs in its caller.

    Attributes:
        ended: groups of inputs, by number, that share their bytes in the caller and that nothing reads after the call.
        unread: numbers of the outputs that nothing reads after the call.
    """

    ended: tuple[tuple[int, ...], ...]
    unread: tuple[int, ...]


class Lifetimes(NamedTuple):
    """When the bytes of a program's values are taken and given up.

    Attributes:
        changes: of every operation; empty for a call, as all that it changes is changed inside.
        contexts: of every call, by the number of the operation.
        at_return: buffers that end after the last operation: inputs of the caller passed on as results that it does not
            read.
    """

    changes: tuple[Change, ...]
    contexts: Mapping[int, Context]
    at_return: tuple[Value, ...]


@dataclass
class Liveness:
    """The analysis of programs and of those that they call, each made once.

    Attributes:
        programs: all that was analysed; kept alive, as results are found by their ids.
    """

    programs: list[ProgramData] = field(default_factory=list)
    _aliases: dict[int, dict[str, str]] = field(default_factory=dict)
    _reads: dict[int, frozenset[int]] = field(default_factory=dict)
    _called: dict[tuple[int, Context], Lifetimes] = field(default_factory=dict)

    def aliases(self, program: ProgramData) -> dict[str, str]:
        """For every value the first name of its bytes: its own, unless a move or a call only gives another name."""
        if id(program) not in self._aliases:
            self.programs.append(program)
            first = {value.name: value.name for value in program.inputs}
            for op in program.ops:
                first |= {value.name: value.name for value in stored_by(op)}
                if isinstance(op, Move) and renames(op, program):
                    first[op.out.name] = first[op.value]
                elif isinstance(op, Call):
                    self._name_results(op, first)
            self._aliases[id(program)] = first
        return self._aliases[id(program)]

    def _name_results(self, op: Call, first: dict[str, str]) -> None:
        """The first names of a call's results, some of which are its inputs, or the same bytes as another result."""
        inner = self.aliases(op.program)
        outside = {value.name: first[name] for value, name in zip(op.program.inputs, op.ins, strict=True)}
        for output, out in zip(op.program.outputs, op.outs, strict=True):
            first[out.name] = outside.setdefault(inner[output], out.name)

    def reads(self, program: ProgramData) -> frozenset[int]:
        """The inputs, by number, that a called program reads, or passes on."""
        if id(program) not in self._reads:
            self.programs.append(program)
            used = {*program.outputs}
            for op in program.ops:
                used.update(self._read_by(op))
            numbers = (k for k, value in enumerate(program.inputs) if value.name in used)
            self._reads[id(program)] = frozenset(numbers)
        return self._reads[id(program)]

    def _read_by(self, op: Op) -> Iterable[str]:
        """The values that an operation uses; of a call, those that the called program does."""
        return [op.ins[k] for k in self.reads(op.program)] if isinstance(op, Call) else held_by(op)

    def lifetimes(self, program: ProgramData) -> Lifetimes:
        """Of a program without callers."""
        stays = [value.name for value in program.inputs if value.name not in program.donated]
        return self._lifetimes(program, self.aliases(program), (*stays, *program.outputs))

    def called(self, program: ProgramData, context: Context) -> Lifetimes:
        """Of a called program."""
        key = (id(program), context)
        if key not in self._called:
            self._called[key] = self._in_context(program, context)
        return self._called[key]

    def _in_context(self, program: ProgramData, context: Context) -> Lifetimes:
        inputs, first = [value.name for value in program.inputs], self.aliases(program)
        same = {inputs[k]: inputs[group[0]] for group in context.ended for k in group}
        if any(name != first_name for name, first_name in same.items()):
            first = {name: same.get(first_name, first_name) for name, first_name in first.items()}
        ended, unread = {k for group in context.ended for k in group}, {*context.unread}
        stays = [name for k, name in enumerate(inputs) if k not in ended]
        stays += [name for k, name in enumerate(program.outputs) if k not in unread]
        return self._lifetimes(program, first, stays)

    def _lifetimes(self, program: ProgramData, first: Mapping[str, str], stays: Iterable[str]) -> Lifetimes:
        """Lifetimes where `stays` outlive the program."""
        last: dict[str, int] = {}
        for k, op in enumerate(program.ops):
            for value in stored_by(op):
                last[first[value.name]] = k
            for name in self._read_by(op):
                last[first[name]] = k
        count = len(program.ops)
        named = {value.name for value in program.inputs}
        for name in program.outputs:  # an input, or a value a second time, is passed on by a move at the end
            if name in named:
                last[first[name]] = count
            named.add(name)
        for name in stays:
            last.pop(first[name], None)
        first = _carried_on(program, first, last)
        died: dict[int, list[Value]] = defaultdict(list)
        for name, k in last.items():
            died[k].append(program.values[name])
        changes, contexts = list[Change](), dict[int, Context]()
        for k, op in enumerate(program.ops):
            if isinstance(op, Call):
                contexts[k] = _context(op, first, {value.name for value in died[k]})
                changes.append(_NOTHING)
            else:
                born = tuple(value for value in stored_by(op) if first[value.name] == value.name)
                changes.append(Change(born, scratch_bytes(op), tuple(died[k])))
        return Lifetimes(tuple(changes), contexts, tuple(died[count]))


_NOTHING = Change((), 0, ())


def _carried_on(program: ProgramData, first: Mapping[str, str], last: dict[str, int]) -> Mapping[str, str]:
    """First names for which a carried value takes the bytes of its initial value, if these end with the loop.

    `last` is updated: the bytes then live as long as the results of the loop.
    """
    first_names = dict(first)
    for k, op in enumerate(program.ops):
        for first_name, out in carries_on(op, program, first_names) if isinstance(op, Loop) else ():
            if last.get(first_name) == k:
                first_names = {one: first_name if same == out.name else same for one, same in first_names.items()}
                last.pop(first_name)
                if out.name in last:
                    last[first_name] = last.pop(out.name)
    return first_names


def carries_on(op: Loop, program: ProgramData, first: Mapping[str, str]) -> list[tuple[str, Value]]:
    """The carried results of a loop that can take the bytes of their initial values, by the first names of these."""
    pairs = zip(op.form.operands(op.ins)[1], op.outs, strict=False)
    reads = [first[name] for name in op.ins]
    return [
        (first[name], out)
        for name, out in pairs
        for before in (program.values[first[name]],)
        if reads.count(first[name]) == 1 and first[out.name] == out.name
        if (before.tile_bytes, before.place.devices) == (out.tile_bytes, out.place.devices)
    ]


def _context(op: Call, first: Mapping[str, str], ended: Collection[str]) -> Context:
    """The context of a call that is the last user of the bytes of these first names."""
    if not ended:
        return Context((), ())
    groups: dict[str, list[int]] = {}
    for k, name in enumerate(op.ins):
        if first[name] in ended:
            groups.setdefault(first[name], []).append(k)
    unread = (k for k, out in enumerate(op.outs) if first[out.name] in ended)
    return Context(tuple(tuple(group) for group in groups.values()), tuple(unread))


def changes(program: ProgramData) -> tuple[Change, ...]:
    """For every operation of a program without calls the buffers that it allocates and those that end with it."""
    return Liveness().lifetimes(program).changes


def aliases(program: ProgramData) -> dict[str, str]:
    """For every value the first name of its bytes, see `Liveness`."""
    return Liveness().aliases(program)


def renames(op: Move, program: ProgramData) -> bool:
    """Whether every device holds the result of a move before it."""
    return op.plan is None and program.values[op.value].means(op.out)


def scratch_bytes(op: Op) -> int:
    """Bytes that every device of an operation needs while it runs, besides its operands and results."""
    match op:
        case Compute():
            if len(op.parts) == 1:
                return 0
            kept = {array for array, _ in op.outs}
            dtype = op.outs[0][1].dtype if op.outs else "float32"
            inside = (form for array, form in group_of(op.name, op.parts, op.place).writes.items() if array not in kept)
            return packed_bytes(sum(form.local_size for form in inside), dtype)
        case Move():
            if op.plan is None:
                return 0
            plan = op.plan
            elements = plan.peak_bytes // plan.itemsize - plan.before.tile_size - plan.after.tile_size
            return packed_bytes(elements, plan.dtype)
        case Loop():
            return max(_needed_by(step, op) for step in steps_of(op))
        case Call():
            return 0


def steps_of(op: Loop) -> tuple[ProgramData, ...]:
    """The step of a loop, in which carried values and an entry of an array may end; and its condition."""
    names = tuple(value.name for value in op.program.inputs[op.constants :])
    step = replace(op.program, donated=names)
    return (step,) if op.condition is None else (step, op.condition)


def _needed_by(step: ProgramData, op: Loop) -> int:
    """Bytes that a step of a loop, or its condition, needs besides its constants and carried values.

    Both are held outside already. An entry of an array is a copy.
    """
    outside = sum(value.tile_bytes for value in step.inputs[: op.form.held])
    return max(0, max(peak_bytes(step).values(), default=0) - outside)


def devices_running(op: Op, program: ProgramData) -> tuple[int, ...]:
    """The devices that take part in an operation, ascending."""
    match op:
        case Compute():
            devices = {*op.place.devices}
        case Move():
            devices = {*program.values[op.value].place.devices, *op.out.place.devices}
        case Call():
            return op.program.devices
        case Loop():
            devices = {device for program in op.programs for device in program.devices}
    return tuple(sorted(devices))


# ------------------------------------------------------------------------------------------ bytes by device


class Moment(NamedTuple):
    """The live bytes of devices while an operation runs.

    Attributes:
        op: the operation; never a call, but the operations of called programs instead.
        devices: those that take part.
        held: bytes on each device of the program, scratch left out; changed when the next moment is asked for.
        scratch: bytes that each device that takes part needs besides.
    """

    op: Op
    devices: tuple[int, ...]
    held: Mapping[int, int]
    scratch: int


def moments(program: ProgramData) -> Iterator[Moment]:
    """Every operation in order, those of called programs included, and the live bytes of devices at it.

    >>> from redistrib import nest, partition
    >>> program = partition(nest("ij->i", (8, 8), name="sum"), {"sum": {"j": 2}})  # partial sums, then an all-reduce
    >>> [(type(moment.op).__name__, moment.held[0], moment.scratch) for moment in moments(program)]
    [('Compute', 160, 0), ('Move', 192, 64)]
    """
    liveness, live = Liveness(), dict.fromkeys(program.devices, 0)
    _add(program.inputs, live, 1)

    def walk(program: ProgramData, lives: Lifetimes) -> Iterator[Moment]:
        for k, (op, change) in enumerate(zip(program.ops, lives.changes, strict=True)):
            if isinstance(op, Call):
                yield from walk(op.program, liveness.called(op.program, lives.contexts[k]))
                continue
            _add(change.born, live, 1)
            yield Moment(op, devices_running(op, program), live, change.scratch)
            _add(change.died, live, -1)
        _add(lives.at_return, live, -1)

    yield from walk(program, liveness.lifetimes(program))


def peak_bytes(program: ProgramData) -> dict[int, int]:
    """The most bytes that each device holds at once, by its number in the machine.

    >>> from redistrib import nest, partition
    >>> product = nest("ij,jk->ik", (8, 8, 8))
    >>> peak_bytes(partition(product, {"matmul": {"i": 2}})), peak_bytes(partition(product, {"matmul": {"j": 2}}))
    ({0: 512, 1: 512}, {0: 1280, 1: 1280})
    """
    peak = dict.fromkeys(program.devices, 0)
    _add(program.inputs, peak, 1)
    for moment in moments(program):
        for device in moment.devices:
            peak[device] = max(peak[device], moment.held[device] + moment.scratch)
    return peak


def _add(values: Iterable[Value], live: dict[int, int], sign: int) -> None:
    for value in values:
        size = sign * value.tile_bytes
        for device in value.place.devices:
            live[device] += size


def highest_peak_bytes(program: ProgramData) -> int:
    """Bytes that the fullest device holds at the worst moment."""
    return max(peak_bytes(program).values(), default=0)
