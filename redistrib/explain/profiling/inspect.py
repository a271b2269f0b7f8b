"""The figures of a compiled program: its collectives, their bytes, its largest array, its scratch.

Bytes received are counted from shapes and groups alone, with one rule per kind and n the group size:

====================  ==============================================================================
all-gather            the operands of the n-1 other members
all-to-all            (n-1)/n of the operand
collective-permute    the operand, on every device that receives from another one
all-reduce            2(n-1)/n of the operand
reduce-scatter        (n-1)/n of the operand; the TPU compiler writes it as a fusion of an all-reduce and a slice
collective-broadcast  the operand, on all members but the first
ragged-all-to-all     (n-1)/n of the operand as an upper bound: sizes are known only at run time
====================  ==============================================================================
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from redistrib.explain.profiling.hlo import (
    Groups,
    HloArray,
    HloModule,
    Instruction,
    parse_module,
    replica_groups,
    source_target_pairs,
)

_GROUPED: dict[str, Callable[[int, int], int]] = {
    # kind -> total bytes received in one group of n, each member with an operand of b bytes
    "all-gather": lambda n, b: n * (n - 1) * b,
    "all-to-all": lambda n, b: (n - 1) * b,
    "all-reduce": lambda n, b: 2 * (n - 1) * b,
    "reduce-scatter": lambda n, b: (n - 1) * b,
    "ragged-all-to-all": lambda n, b: (n - 1) * b,
    "collective-broadcast": lambda n, b: (n - 1) * b,
}
KINDS = (*_GROUPED, "collective-permute")

_SCATTERED = "all-reduce-scatter"  # head of the name of a fusion that reduces and keeps a part
_IN_PLACE = {"parameter", "constant", "bitcast", "tuple", "get-tuple-element", "while", "conditional", "call", "iota"}


class Compiled(Protocol):
    """The methods used here of the result of `jax.jit(f).lower(...).compile()`."""

    def as_text(self) -> str | None: ...

    def memory_analysis(self) -> object: ...


@dataclass(frozen=True)
class HloCollective:
    """One collective operation of a compiled program.

    Attributes:
        kind: one of `KINDS`.
        name: of the instruction.
        groups: device groups, `()` for a permute.
        pairs: (sender, receiver) of a permute, else `()`; a pair of one device with itself moves nothing.
        operands, results: per device; an asynchronous start lists operands among its results too.
        times: how often it runs: the product of the trip counts of the loops around it.
        exact: whether `times` and the bytes are exact; a loop whose trip count is unknown counts once.
    """

    kind: str
    name: str
    groups: Groups
    pairs: tuple[tuple[int, int], ...]
    operands: tuple[HloArray, ...]
    results: tuple[HloArray, ...]
    times: int
    exact: bool

    @property
    def operand_bytes(self) -> int:
        """Bytes of the operands on one device."""
        return sum(array.bytes for array in self.operands)

    @property
    def moves(self) -> tuple[tuple[int, int], ...]:
        """The pairs of a permute whose sender is not the receiver."""
        return tuple((a, b) for a, b in self.pairs if a != b)

    @property
    def received_bytes(self) -> int:
        """Bytes received from other devices, summed over all devices and all `times`."""
        if self.kind == "collective-permute":
            return self.times * len(self.moves) * self.operand_bytes
        count = _GROUPED[self.kind]
        operand = self.operand_bytes
        if self.kind == "ragged-all-to-all":  # the operand, not the output buffer or the tables
            operand = self.operands[0].bytes
        return self.times * sum(count(len(group), operand) for group in self.groups)


@dataclass(frozen=True)
class Inspection:
    """A compiled program, read back.

    Attributes:
        devices: number of devices that run it.
        collectives: in the order of the text, one entry per instruction.
        arrays: the largest array of each HLO element type that stands in a buffer, constants left out.
        scratch: bytes of temporaries per device as the compiler reports them; None where only text was given.
        copied_bytes: bytes per device written by instructions that are no collective (fusions, copies, slices).
    """

    devices: int
    collectives: tuple[HloCollective, ...]
    arrays: dict[str, HloArray]
    scratch: int | None
    copied_bytes: int

    @property
    def kinds(self) -> Counter[str]:
        """How often each kind of collective runs."""
        counts: Counter[str] = Counter()
        for collective in self.collectives:
            counts[collective.kind] += collective.times
        return counts

    @property
    def received_bytes(self) -> int:
        """Bytes received from other devices, summed over all devices."""
        return sum(collective.received_bytes for collective in self.collectives)

    @property
    def received_per_device(self) -> Fraction:
        """The mean over devices of the bytes received from others, exact."""
        return Fraction(self.received_bytes, self.devices)

    @property
    def exact(self) -> bool:
        """Whether every collective's count is exact."""
        return all(collective.exact for collective in self.collectives)

    def largest_array(self, dtypes: Collection[str] | None = None) -> HloArray | None:
        """The largest array that stands in a buffer, per device, parameters included and constants not.

        Values inside a fusion have no buffer. `dtypes` names the HLO element types of the data (`{"f32"}`), which
        leaves integer index tables aside.
        """
        arrays = [array for dtype, array in self.arrays.items() if dtypes is None or dtype in dtypes]
        return max(arrays, key=lambda array: array.bytes, default=None)


def inspect(program: Compiled | str) -> Inspection:
    """Reads a compiled program.

    Args:
        program: the result of `jax.jit(f).lower(...).compile()`, or its `as_text()`.

    Raises:
        HloTextError: if the text is no compiled HLO module, or its device groups cannot be read.
    """
    text = program if isinstance(program, str) else program.as_text() or ""
    module = parse_module(text)
    collectives: list[HloCollective] = []
    arrays: dict[str, HloArray] = {}
    copied = 0
    for visit in visits(module):
        collective = _collective(visit, module)
        if collective is not None:
            collectives.append(collective)
        if visit.fused:
            continue
        instruction = visit.instruction
        if instruction.opcode not in ("constant", "tuple", "get-tuple-element", "bitcast"):
            for array in instruction.results:
                if array.dtype not in arrays or array.bytes > arrays[array.dtype].bytes:
                    arrays[array.dtype] = array
        if collective is None and not _is_free(instruction):
            copied += visit.times * _written(module, visit.computation, instruction)
    return Inspection(module.devices, tuple(collectives), arrays, _scratch(program), copied)


def _scratch(program: Compiled | str) -> int | None:
    if isinstance(program, str):
        return None
    analysis = program.memory_analysis()
    return None if analysis is None else int(analysis.temp_size_in_bytes)  # type: ignore[attr-defined]


def _is_free(instruction: Instruction) -> bool:
    return instruction.opcode in _IN_PLACE or instruction.opcode.endswith("-done")


def _written(module: HloModule, computation: str, instruction: Instruction) -> int:
    """Bytes an instruction writes; an update in place writes the update alone."""
    if instruction.opcode == "dynamic-update-slice":
        update = module.computations[computation].instructions[instruction.operands[1]]
        return sum(array.bytes for array in update.results)
    if instruction.opcode == "fusion":
        callee = dict(instruction.callees())["calls"]
        root = module.computations[callee].root
        if root.opcode == "dynamic-update-slice":
            return _written(module, callee, root)
    return sum(array.bytes for array in instruction.results)


@dataclass(frozen=True)
class Visit:
    """An instruction that runs.

    Attributes:
        instruction, computation: the instruction, and the name of its computation.
        times: how often it runs.
        exact: whether that number is known; a loop of unknown length counts once.
        fused: whether it is inside a fusion.
    """

    instruction: Instruction
    computation: str
    times: int
    exact: bool
    fused: bool


def visits(module: HloModule) -> Iterator[Visit]:
    """Every instruction that runs, with how often; every branch of a conditional counts."""
    return _visits(module, module.entry, 1, True, fused=False)


def _visits(module: HloModule, name: str, times: int, exact: bool, fused: bool) -> Iterator[Visit]:
    computation = module.computations[name]
    for instruction in computation.instructions.values():
        yield Visit(instruction, name, times, exact, fused)
        opcode = instruction.opcode
        if opcode.endswith(("-done", "-update")):  # the start has been followed
            continue
        for role, callee in instruction.callees():
            if role == "to_apply" and opcode != "call":  # a reduction's scalar function
                continue
            trips, exact_trips = _trips(module, name, instruction) if opcode == "while" else (1, True)
            inside = fused or opcode == "fusion"
            if opcode.endswith("-start") and _canonical(opcode) is not None:
                continue  # all-to-all-start with its own computation
            yield from _visits(module, callee, times * trips, exact and exact_trips, inside)


def _canonical(opcode: str) -> str | None:
    kind = opcode.removesuffix("-start")
    return kind if kind in KINDS else None


def _collective(visit: Visit, module: HloModule) -> HloCollective | None:
    instruction = visit.instruction
    kind = _canonical(instruction.opcode)
    if kind is None:
        return None
    if kind == "all-reduce" and visit.computation.startswith(_SCATTERED):
        kind = "reduce-scatter"
    instructions = module.computations[visit.computation].instructions
    operands = tuple(array for name in instruction.operands for array in instructions[name].results)
    permute = kind == "collective-permute"
    return HloCollective(
        kind=kind,
        name=instruction.name,
        groups=() if permute else replica_groups(instruction, module.devices),
        pairs=source_target_pairs(instruction) if permute else (),
        operands=operands,
        results=instruction.results,
        times=visit.times,
        exact=visit.exact and kind != "ragged-all-to-all",
    )


def _trips(module: HloModule, computation: str, loop: Instruction) -> tuple[int, bool]:
    """Trip count of a `while`: as the compiler wrote it, else read off a counting loop, else (1, False)."""
    trips = loop.known_trip_count()
    if trips is None:
        trips = _counted_trips(module, computation, loop)
    return (1, False) if trips is None else (trips, True)


def _counted_trips(module: HloModule, computation: str, loop: Instruction) -> int | None:
    """Trips of `for i in range(start, stop)`: the condition compares element k of the state with a constant, the
    body adds a constant to it, and the state starts from a constant."""
    callees = dict(loop.callees())
    condition, body = module.computations[callees["condition"]], module.computations[callees["body"]]
    test = condition.root
    if test.opcode != "compare" or "direction=LT" not in test.attributes:
        return None
    counter, bound = test.operands
    stop = _constant(module, condition.name, bound)
    position = _element(module, condition.name, counter)
    if stop is None or position is None or body.root.opcode != "tuple":
        return None
    advance = body.instructions[body.root.operands[position]]
    if advance.opcode != "add":
        return None
    steps = [_constant(module, body.name, term) for term in advance.operands]
    moving = [term for term, value in zip(advance.operands, steps, strict=True) if value is None]
    if len(moving) != 1 or _element(module, body.name, moving[0]) != position:
        return None
    step = next(value for value in steps if value is not None)
    state = module.computations[computation].instructions[loop.operands[0]]
    if state.opcode != "tuple" or step < 1:
        return None
    start = _constant(module, computation, state.operands[position])
    return None if start is None else max(0, -(-(stop - start) // step))


def _element(module: HloModule, computation: str, name: str) -> int | None:
    """Which element of a tuple an instruction stands for."""
    instruction = _origin(module, computation, name)
    match = re.search(r"\bindex=(\d+)", instruction.attributes)
    return int(match.group(1)) if instruction.opcode == "get-tuple-element" and match else None


def _constant(module: HloModule, computation: str, name: str) -> int | None:
    """The integer that an instruction stands for."""
    instruction = _origin(module, computation, name)
    if instruction.opcode == "constant" and re.fullmatch(r"-?\d+", instruction.literal.strip()):
        return int(instruction.literal)
    return None


def _origin(module: HloModule, computation: str, name: str) -> Instruction:
    """The instruction behind copies."""
    instruction = module.computations[computation].instructions[name]
    while instruction.opcode in ("copy", "bitcast"):
        instruction = module.computations[computation].instructions[instruction.operands[0]]
    return instruction
