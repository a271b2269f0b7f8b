"""Live bytes: what every device holds while a program runs, and where in its memory that could lie.

A value is alive from the operation that makes it to the last that reads it, or to its `Free`. Inputs are there from the
start, and stay unless a `Free` gives them up; outputs stay to the end. What a call is the last to read ends inside it.
A move that moves nothing makes another name for the same bytes. Besides, an operation needs scratch while it runs: the
buffers of a plan, and what fused nests hand on among themselves.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from redistrib.plans.dtypes import itemsize_of
from redistrib.programs.data import Call, Compute, Free, Move, Op, ProgramData, Value, made_by, used_by
from redistrib.programs.groups import group_of
from redistrib.programs.inline import inlined


class Change(NamedTuple):
    """What an operation does to the bytes held: buffers made, bytes needed meanwhile, buffers that end with it."""

    born: tuple[Value, ...]
    scratch: int
    died: tuple[Value, ...]


def changes(
    program: ProgramData, donated: Collection[str] = (), known: dict[int, dict[str, str]] | None = None
) -> list[Change]:
    """For every operation what is made and what ends; of calls only what the caller sees, see `Call`.

    Inputs that are `donated` end with the last operation that reads them, and the others stay. For `known` see
    `same_buffer`.
    """
    shared = same_buffer(program, known)
    end = _last_uses(program, donated)
    for name, root in [(name, root) for name, root in shared.items() if name != root]:
        end[root] = max(end[root], end.pop(name))
    died: dict[int, list[Value]] = defaultdict(list)
    for root, k in end.items():
        died[k].append(program.values[root])
    return [
        Change(
            tuple(value for value in made_by(op) if shared[value.name] == value.name),
            scratch_bytes(op, program),
            tuple(died[k]),
        )
        for k, op in enumerate(program.ops)
    ]


def called_changes(
    program: ProgramData, donated: Collection[str] = (), known: dict[int, dict[str, str]] | None = None
) -> list[Change]:
    """The changes of a called program: what it is given stays its caller's, unless that donates it."""
    given = {value.name for value in program.inputs} - {*donated}
    return [
        change._replace(died=tuple(value for value in change.died if value.name not in given))
        for change in changes(program, donated, known)
    ]


Ends: TypeAlias = dict[tuple[int, tuple[int, ...]], tuple[int, ...]]


def donated_by(op: Call, died: Iterable[Value], shared: Mapping[str, str], known: Ends) -> dict[str, str]:
    """Inputs of a called program that end inside it, each with the value of the caller that ends with it.

    Args:
        op: the call.
        died: the values of the caller that it is the last to read.
        shared: of the caller, see `same_buffer`.
        known: what ends inside programs that were called before, with the same inputs given up, all by their numbers;
            it is added to.
    """
    ends = {value.name for value in died}
    if not ends:
        return {}
    roots = [shared[name] for name in op.ins]
    given = [k for k, root in enumerate(roots) if root in ends]
    times = Counter(roots[k] for k in given)
    if len(times) < len(given):
        given = [k for k in given if times[roots[k]] == 1]
    inputs, key = op.program.inputs, (id(op.program), tuple(given))
    if given and key not in known:
        changed = called_changes(op.program, [inputs[k].name for k in given])
        inside = {value.name for change in changed for value in change.died}
        known[key] = tuple(k for k in given if inputs[k].name in inside)
    return {inputs[k].name: roots[k] for k in known[key]} if given else {}


def _last_uses(program: ProgramData, donated: Collection[str]) -> dict[str, int]:
    stays = len(program.ops)
    last = dict.fromkeys((value.name for value in program.inputs), -1)
    freed: set[str] = set()
    for k, op in enumerate(program.ops):
        last.update(dict.fromkeys([value.name for value in made_by(op)], k))
        last.update(dict.fromkeys(used_by(op), k))
        if isinstance(op, Free):
            freed.add(op.value)
    stay = [value.name for value in program.inputs if value.name not in freed and value.name not in donated]
    return last | dict.fromkeys((*stay, *program.outputs), stays)


def same_buffer(program: ProgramData, known: dict[int, dict[str, str]] | None = None) -> dict[str, str]:
    """For every value the first whose bytes are its own: itself, unless a move or call only gives another name.

    What is found is added to `known`, by the ids of programs, which must outlive it.
    """
    known = {} if known is None else known
    if id(program) in known:
        return known[id(program)]
    shared = {value.name: value.name for value in program.inputs}
    handed_on: dict[int, list[_Same]] = {}
    for op in program.ops:
        shared |= {value.name: value.name for value in made_by(op)}
        if isinstance(op, Move) and renames(op, program):
            shared[op.out.name] = shared[op.value]
        elif isinstance(op, Call):
            if id(op.program) not in handed_on:
                handed_on[id(op.program)] = _handed_on(op.program, same_buffer(op.program, known))
            for one in handed_on[id(op.program)]:
                shared[op.outs[one.output].name] = shared[op.ins[one.of] if one.is_input else op.outs[one.of].name]
    known[id(program)] = shared
    return shared


class _Same(NamedTuple):
    """An output of a program whose bytes are those of an input, or of an output before it, by their numbers."""

    output: int
    is_input: bool
    of: int


def _handed_on(program: ProgramData, shared: Mapping[str, str]) -> list[_Same]:
    inputs = {value.name: k for k, value in enumerate(program.inputs)}
    first: dict[str, int] = {}
    found = []
    for k, output in enumerate(program.outputs):
        root = shared[output]
        if root in inputs:
            found.append(_Same(k, True, inputs[root]))
        elif first.setdefault(root, k) != k:
            found.append(_Same(k, False, first[root]))
    return found


def renames(op: Move, program: ProgramData) -> bool:
    """Whether every device holds already what a move gives it."""
    return op.plan is None and program.values[op.value].means(op.out)


def scratch_bytes(op: Op, program: ProgramData) -> int:
    """Bytes that every device of an operation needs while it runs, beside what it reads and makes."""
    match op:
        case Compute():
            if len(op.parts) == 1:
                return 0
            kept = {array for array, _ in op.outs}
            dtype = op.outs[0][1].dtype if op.outs else "float32"
            inside = (form for array, form in group_of(op.name, op.parts, op.place).writes.items() if array not in kept)
            return sum(form.local_size for form in inside) * itemsize_of(dtype)
        case Move():
            if op.plan is None:
                return 0
            return op.plan.peak_bytes - program.values[op.value].tile_bytes - op.out.tile_bytes
        case Call() | Free():
            return 0


def peak_bytes(program: ProgramData, donated: Collection[str] = ()) -> dict[int, int]:
    """The most bytes that each device holds at once, by its number in the machine; see `changes`."""
    live: dict[int, int] = dict.fromkeys(program.devices, 0)
    _hold(program.inputs, live, 1)
    peak = dict(live)
    _run(program, changes(program, donated), live, peak, {})
    return peak


def _run(program: ProgramData, made: Sequence[Change], live: dict[int, int], peak: dict[int, int], known: Ends) -> None:
    shared = same_buffer(program)
    for op, change in zip(program.ops, made, strict=True):
        if isinstance(op, Call):
            before = dict(live)
            donated = donated_by(op, change.died, shared, known)
            _run(op.program, called_changes(op.program, donated), live, peak, known)
            live.update(before)
        _hold(change.born, live, 1)
        for device in devices_of(op, program):
            peak[device] = max(peak[device], live[device] + change.scratch)
        _hold(change.died, live, -1)


def held_bytes(program: ProgramData) -> list[dict[int, int]]:
    """For every operation what each device holds while it runs, scratch and what calls make inside left out."""
    live: dict[int, int] = dict.fromkeys(program.devices, 0)
    _hold(program.inputs, live, 1)
    found = []
    for change in changes(program):
        _hold(change.born, live, 1)
        found.append(dict(live))
        _hold(change.died, live, -1)
    return found


def _hold(values: Iterable[Value], live: dict[int, int], sign: int) -> None:
    for value in values:
        for device in value.place.devices:
            live[device] += sign * value.tile_bytes


def devices_of(op: Op, program: ProgramData) -> tuple[int, ...]:
    """The devices that take part in an operation, ascending."""
    match op:
        case Compute():
            found = {*op.place.devices}
        case Move():
            found = {*program.values[op.value].place.devices, *op.out.place.devices}
        case Call():
            return op.program.devices
        case Free():
            found = set()
    return tuple(sorted(found))


# --------------------------------------------------------------------------------------- ahead of time


class Interval(NamedTuple):
    """Bytes that one device holds under one name from operation `first` to operation `last`, both included."""

    name: str
    first: int
    last: int
    bytes: int


@dataclass(frozen=True)
class Allocation:
    """Where one device keeps everything it holds, decided before it runs.

    Attributes:
        offsets: of every interval, in bytes from the start of the device's memory.
        intervals: what is held.
        size: bytes of memory that this takes.
        bound: bytes alive at the worst moment; nothing takes less.
    """

    offsets: tuple[int, ...]
    intervals: tuple[Interval, ...]
    size: int
    bound: int


def intervals(program: ProgramData, device: int) -> list[Interval]:
    """What a device holds, in order of creation; scratch is named after its operation, `scratch 3`."""
    flat = inlined(program)
    first = {value.name: -1 for value in flat.inputs if device in value.place.devices}
    found = []
    for k, (op, change) in enumerate(zip(flat.ops, changes(flat), strict=True)):
        first |= {value.name: k for value in change.born if device in value.place.devices}
        if change.scratch and device in devices_of(op, flat):
            found.append(Interval(f"scratch {k}", k, k, change.scratch))
        found += [
            Interval(value.name, first.pop(value.name), k, value.tile_bytes)
            for value in change.died
            if value.name in first
        ]
    found += [Interval(name, k, len(flat.ops), flat.values[name].tile_bytes) for name, k in first.items()]
    return sorted((one for one in found if one.bytes), key=lambda one: (one.first, one.last))


def allocate(held: Sequence[Interval]) -> Allocation:
    """Offsets at which no two intervals that are alive together overlap.

    Each is put into the smallest gap that takes it, in several orders: by size, by duration times size, by time. The
    smallest result is taken; finding the least is NP-hard.

    >>> from itertools import starmap
    >>> made = allocate(list(starmap(Interval, [("a", 0, 1, 4), ("b", 1, 2, 2), ("c", 2, 3, 4)])))
    >>> made.offsets, made.size, made.bound
    ((0, 4, 0), 6, 6)
    """
    orders = (
        lambda k: (-held[k].bytes, held[k].first),
        lambda k: (-held[k].bytes * (held[k].last - held[k].first + 1), held[k].first),
        lambda k: (held[k].first, -held[k].last),
        lambda k: (-held[k].last, held[k].first),
    )
    bound = _bound(held)
    best: list[int] = []
    size = -1
    for order in orders:
        offsets = _placed(held, sorted(range(len(held)), key=order))
        taken = max((at + one.bytes for at, one in zip(offsets, held, strict=True)), default=0)
        if size < 0 or taken < size:
            best, size = offsets, taken
        if size == bound:
            break
    return Allocation(tuple(best), tuple(held), size, bound)


def _bound(held: Sequence[Interval]) -> int:
    steps: dict[int, int] = defaultdict(int)
    for one in held:
        steps[one.first] += one.bytes
        steps[one.last + 1] -= one.bytes
    alive = most = 0
    for k in sorted(steps):
        alive += steps[k]
        most = max(most, alive)
    return most


def _placed(held: Sequence[Interval], order: Sequence[int]) -> list[int]:
    offsets = [0] * len(held)
    done: list[int] = []
    for k in order:
        one = held[k]
        beside = sorted(
            (offsets[j], held[j].bytes) for j in done if held[j].first <= one.last and one.first <= held[j].last
        )
        at, end, gap = -1, 0, 0
        for start, size in beside:
            if start - end >= one.bytes and (at < 0 or start - end < gap):
                at, gap = end, start - end
            end = max(end, start + size)
        offsets[k] = end if at < 0 else at
        done.append(k)
    return offsets
