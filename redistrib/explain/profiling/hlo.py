"""The text of a compiled HLO module as values: computations, instructions, shapes and device groups.

This module reads; it does not interpret. `inspect` gives collectives their meaning. The text comes from
`jax.jit(...).lower(...).compile().as_text()`, on any platform.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from redistrib.errors import HloTextError

Groups = tuple[tuple[int, ...], ...]

_ARRAY = re.compile(r"([a-z]\w*)\[([^\]]*)\](\{[^{}]*\})?")
_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{\s*$")
_INSTRUCTION = re.compile(r"^\s*(ROOT )?%?([\w.\-]+) = ")
_OPCODE = re.compile(r"\s*([\w\-]+)\(")
_REFERENCE = re.compile(r"%([\w.\-]+)")
_CALLEE = re.compile(r"\b(calls|to_apply|body|condition|true_computation|false_computation)=%?([\w.\-]+)")
_CALLEES = re.compile(r"\b(called_computations|branch_computations)=\{([^}]*)\}")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_EXPLICIT = re.compile(r"replica_groups=\{((?:\{[\d,]*\},?)*)\}")
_IOTA = re.compile(r"replica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_MESH = re.compile(
    r"replica_groups=mesh\[([^\]]*)\](?:,\s*device_ids=(\([^()]*(?:\([\d,]*\))?[^()]*\)|\[[^\]]*\]))?\s*\{([^}]*)\}"
)
_PAIRS = re.compile(r"source_target_pairs=\{((?:\{\d+,\d+\},?)*)\}")
_BITS = re.compile(r"(?:bf|[sufc])(\d+)")


@dataclass(frozen=True)
class HloArray:
    """An array type.

    Attributes:
        dtype: element type in HLO's spelling: `f32`, `bf16`, `pred`.
        shape: extents, in elements.
        bits: bits that one element takes in a buffer: types below a byte take a byte unless the layout packs them.
    """

    dtype: str
    shape: tuple[int, ...]
    bits: int

    @property
    def bytes(self) -> int:
        """Bytes of the array, without padding of the layout."""
        return -(-math.prod(self.shape) * self.bits // 8)

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class Instruction:
    """One instruction.

    Attributes:
        name, opcode: as in the text.
        results: the arrays of its result, tuples flattened.
        operands: names of instructions of the same computation.
        attributes: the rest of the line.
        literal: the text between the parentheses of a constant or a parameter, else the operands' text.
        is_root: whether it is the result of its computation.
    """

    name: str
    opcode: str
    results: tuple[HloArray, ...]
    operands: tuple[str, ...]
    attributes: str
    literal: str
    is_root: bool

    def callees(self) -> Iterator[tuple[str, str]]:
        """(role, computation) for every computation it calls; the role is the attribute's name."""
        for role, name in _CALLEE.findall(self.attributes):
            yield role, name
        for role, names in _CALLEES.findall(self.attributes):
            for name in names.split(","):
                yield role, name.strip().lstrip("%")

    def known_trip_count(self) -> int | None:
        """Iterations of a `while`, where the compiler wrote them down."""
        match = _TRIPS.search(self.attributes)
        return int(match.group(1)) if match else None


@dataclass(frozen=True)
class Computation:
    """A named list of instructions, in the order of the text; the compiled order where the module is scheduled."""

    name: str
    instructions: Mapping[str, Instruction] = field(default_factory=dict)

    @property
    def root(self) -> Instruction:
        for instruction in self.instructions.values():
            if instruction.is_root:
                return instruction
        raise HloTextError(f"the computation {self.name} has no ROOT instruction")


@dataclass(frozen=True)
class HloModule:
    """A whole module.

    Attributes:
        devices: number of devices that run it: partitions times replicas.
        entry: name of the computation that runs first.
        computations: by name.
    """

    devices: int
    entry: str
    computations: Mapping[str, Computation]


def parse_module(text: str) -> HloModule:
    """Reads the text of a module.

    Raises:
        HloTextError: if it is not the text of a compiled HLO module.
    """
    header = next((line for line in text.splitlines() if line.startswith("HloModule")), None)
    if header is None:
        raise HloTextError("the text holds no line that starts with 'HloModule'; pass compiled.as_text()")
    devices = 1
    for key in ("num_partitions", "replica_count"):
        match = re.search(rf"\b{key}=(\d+)", header)
        devices *= int(match.group(1)) if match else 1
    computations: dict[str, Computation] = {}
    entry = ""
    current: dict[str, Instruction] | None = None
    for line in _logical_lines(text):
        if current is None:
            match = _COMPUTATION.match(line)
            if match and " = " not in line.split("->")[0]:
                current = {}
                computations[match.group(2)] = Computation(match.group(2), current)
                entry = match.group(2) if match.group(1) else entry
        elif line.startswith("}"):
            current = None
        else:
            instruction = _parse_instruction(line)
            if instruction is not None:
                current[instruction.name] = instruction
    if not entry:
        raise HloTextError("the module has no ENTRY computation; pass the whole of compiled.as_text()")
    return HloModule(devices, entry, computations)


def _logical_lines(text: str) -> Iterator[str]:
    """Lines of the text, with literals that span several lines joined."""
    pending = ""
    for line in text.splitlines():
        pending = f"{pending} {line.strip()}" if pending else line
        if _INSTRUCTION.match(pending) and pending.count("(") > pending.count(")"):
            continue
        yield pending
        pending = ""
    if pending:
        yield pending


def _balanced(text: str, start: int) -> int:
    """Position just after the parenthesis that closes the one at `start`."""
    depth = 0
    for position in range(start, len(text)):
        if text[position] == "(":
            depth += 1
        elif text[position] == ")":
            depth -= 1
            if depth == 0:
                return position + 1
    raise HloTextError(f"unbalanced parentheses in {text.strip()[:80]!r}")


def _parse_instruction(line: str) -> Instruction | None:
    match = _INSTRUCTION.match(line)
    if match is None:
        return None
    start = match.end()
    stop = _balanced(line, start) if line[start] == "(" else line.index(" ", start)
    opcode = _OPCODE.match(line, stop)
    if opcode is None:
        raise HloTextError(f"no operation in the instruction {line.strip()[:80]!r}")
    close = _balanced(line, opcode.end() - 1)
    literal = line[opcode.end() : close - 1]
    return Instruction(
        name=match.group(2),
        opcode=opcode.group(1),
        results=tuple(_arrays(line[start:stop])),
        operands=tuple(_REFERENCE.findall(literal)),
        attributes=line[close:],
        literal=literal,
        is_root=match.group(1) is not None,
    )


def _arrays(text: str) -> Iterator[HloArray]:
    for dtype, extents, layout in _ARRAY.findall(text):
        shape = tuple(int(e.strip().removeprefix("<=")) for e in extents.split(",") if e.strip())
        yield HloArray(dtype, shape, _bits(dtype, layout))


def _bits(dtype: str, layout: str) -> int:
    if dtype == "pred":
        return 8
    match = _BITS.match(dtype)
    if match is None:  # token, opaque
        return 0
    packed = re.search(r"E\((\d+)\)", layout)
    return int(packed.group(1)) if packed else max(8, int(match.group(1)))


def source_target_pairs(instruction: Instruction) -> tuple[tuple[int, int], ...]:
    """(sender, receiver) of a collective permute."""
    match = _PAIRS.search(instruction.attributes)
    if match is None:
        raise HloTextError(f"the {instruction.opcode} {instruction.name} has no source_target_pairs")
    numbers = [int(n) for n in re.findall(r"\d+", match.group(1))]
    return tuple(zip(numbers[::2], numbers[1::2], strict=True))


def replica_groups(instruction: Instruction, devices: int) -> Groups:
    """The device groups of a collective, from any of the three notations of HLO.

    Explicit `{{0,1},{2,3}}`; iota `[4,2]<=[2,4]T(1,0)`; or over a mesh, `mesh['a'=4,'b'=2] {'a':(2)2}`, where `(2)2` is
    the part of size 2 of axis `a` below its leading part of size 2. None or `{}` means one group of all devices.

    Raises:
        HloTextError: if the groups are written in another notation.
    """
    attributes = instruction.attributes
    if match := _IOTA.search(attributes):
        return _rows(_iota(match.group(2), match.group(3)).reshape(_integers(match.group(1))))
    if match := _MESH.search(attributes):
        return _mesh_groups(match.group(1), match.group(2), match.group(3), devices)
    if match := _EXPLICIT.search(attributes):
        groups = tuple(tuple(_integers(g)) for g in re.findall(r"\{([\d,]*)\}", match.group(1)))
        return groups or (tuple(range(devices)),)
    if "replica_groups=" in attributes:
        written = attributes.split("replica_groups=", 1)[1][:80]
        raise HloTextError(f"replica groups of {instruction.name} are written in an unknown way: {written!r}")
    return (tuple(range(devices)),)


def _integers(text: str) -> list[int]:
    return [int(n) for n in text.split(",") if n]


def _iota(extents: str, order: str | None) -> np.ndarray:
    shape = _integers(extents)
    numbers = np.arange(math.prod(shape)).reshape(shape)
    return numbers.transpose(_integers(order)) if order else numbers


def _rows(table: np.ndarray) -> Groups:
    return tuple(tuple(int(d) for d in row) for row in table)


def _mesh_groups(axes: str, device_ids: str | None, chosen: str, devices: int) -> Groups:
    names = [(name, int(size)) for name, size in re.findall(r"'([^']*)'=(\d+)", axes)]
    numbers = np.arange(devices)
    if device_ids is not None:
        iota = re.search(r"\[([\d,]+)\](?:T\(([\d,]+)\))?", device_ids)
        listed = _integers(re.sub(r"[^\d,]", "", device_ids)) if iota is None or "(" not in device_ids else None
        numbers = np.array(listed) if listed is not None else _iota(iota.group(1), iota.group(2))  # type: ignore[union-attr]
    # Cut every axis at the borders of the chosen parts, so that each part is a run of whole dimensions.
    parts = [
        (name, int(above or 1), int(size) if size else None)
        for name, above, size in re.findall(r"'([^']*)'(?::\((\d+)\)(\d+))?", chosen)
    ]
    extents: list[int] = []
    place: dict[tuple[str, int], int] = {}  # (axis, product of its extents above) -> dimension
    stop: dict[tuple[str, int], int] = {}
    for name, size in names:
        borders = {1, size}
        for axis, above, extent in parts:
            if axis == name:
                borders |= {above, above * (extent or size)}
        cuts = sorted(borders)
        for high, low in pairwise(cuts):
            place[name, high] = len(extents)
            stop[name, low] = len(extents) + 1
            extents.append(low // high)
    sizes = dict(names)
    members: list[int] = []
    for axis, above, extent in parts:
        last = above * (extent or sizes[axis])
        if last > above:
            members += range(place[axis, above], stop[axis, last])
    rest = [d for d in range(len(extents)) if d not in members]
    table = numbers.reshape(extents).transpose(rest + members)
    return _rows(table.reshape(math.prod(extents[d] for d in rest), -1))
