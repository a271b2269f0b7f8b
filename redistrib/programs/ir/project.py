"""Programs seen from one device: the operations of each rank, and a run in which ranks know only messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from redistrib.errors import ProgramError
from redistrib.plans import reference
from redistrib.plans.plan import Plan
from redistrib.programs.ir.data import ProgramData
from redistrib.programs.ir.direct import direct_transfers
from redistrib.programs.ir.inline import inlined
from redistrib.programs.ir.live import renames
from redistrib.programs.ir.nest import Nest
from redistrib.programs.ir.program import Compute, Loop, Move, Value
from redistrib.programs.ir.reference import Tile, Tiles, points_of, run_nests
from redistrib.theory.placement import placement_of

_Ints: TypeAlias = tuple[int, ...]


@dataclass(frozen=True)
class TileWork:
    """Nests on tiles.

    Attributes:
        name: the operation.
        nests: each with the range that this rank runs of every iteration dimension.
        ins, outs: pairs of an array of the nests and a value.
    """

    name: str
    nests: tuple[tuple[Nest, Mapping[str, range]], ...]
    ins: tuple[tuple[str, str], ...]
    outs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class CollectivePlan:
    """A plan that several ranks carry out together.

    Attributes:
        plan: the plan.
        members: the ranks, by their number in the plan.
        value, out: its operand and its result.
        tag: number of the operation; members meet under it.
    """

    plan: Plan
    members: tuple[int, ...]
    value: str
    out: str
    tag: int


@dataclass(frozen=True)
class Send:
    """A box of a tile goes to another rank.

    Attributes:
        value: the value that the tile is of.
        to: the receiver.
        offset, size: the box, in elements of the tile.
        tag: number of the operation that it belongs to.
    """

    value: str
    to: int
    offset: _Ints
    size: _Ints
    tag: int


@dataclass(frozen=True)
class Receive:
    """A tile is put together from boxes.

    Attributes:
        out: the value that the tile is of.
        shape: of the tile, in elements.
        dtype: name of the element type.
        boxes: for every box that comes the sender and where it goes.
        value: the value that the rest is taken from; empty where the rank holds none of it.
        kept: the boxes that stay: position in the operand, position in the result, and size.
        tag: number of the operation that it belongs to.
    """

    out: str
    shape: _Ints
    dtype: str
    boxes: tuple[tuple[int, _Ints], ...]
    value: str
    kept: tuple[tuple[_Ints, _Ints, _Ints], ...]
    tag: int


@dataclass(frozen=True)
class Rename:
    """A tile gets another name."""

    value: str
    out: str


@dataclass(frozen=True)
class RankLoop:
    """The operations of a rank in the steps of a loop.

    Attributes:
        op: the loop; its counts and names hold for every rank.
        step: the operations of the rank in a step.
        condition: its operations for the condition; None where the steps are counted.
        tag: number of the operation.
    """

    op: Loop
    step: RankProgram
    condition: RankProgram | None
    tag: int


RankOp: TypeAlias = "TileWork | CollectivePlan | Send | Receive | Rename | RankLoop"


@dataclass(frozen=True)
class RankProgram:
    """The operations of one rank.

    Attributes:
        device: its number in the machine.
        inputs: names of the program's inputs of which it holds a tile.
        ops: in order.
        outputs: names of the program's outputs of which it holds a tile.
    """

    device: int
    inputs: tuple[str, ...]
    ops: tuple[RankOp, ...]
    outputs: tuple[str, ...]


def project(program: ProgramData) -> dict[int, RankProgram]:
    """The program of every rank, by the device's number in the machine: operations without a part in it left out.

    >>> from redistrib import nest, partition
    >>> program = partition(nest("i->i", (8,), name="copy"), {"copy": (2,)}, root=True)  # device 0 scatters and gathers
    >>> for rank in project(program).values():
    ...     print([type(op).__name__ for op in rank.ops])
    ['Send', 'Receive', 'TileWork', 'Receive']
    ['Receive', 'TileWork', 'Send']
    """
    flat = inlined(program)
    ops: dict[int, list[RankOp]] = {device: [] for device in flat.devices}
    for tag, op in enumerate(flat.ops):
        match op:
            case Compute():
                for device, work in works(op):
                    ops[device].append(work)
            case Move():
                _project_move(op, tag, flat, ops)
            case Loop():
                _project_loop(op, tag, ops)
    return {
        device: RankProgram(
            device,
            tuple(value.name for value in flat.inputs if device in value.place.devices),
            tuple(device_ops),
            tuple(name for name in flat.outputs if device in flat.values[name].place.devices),
        )
        for device, device_ops in ops.items()
    }


def _project_loop(op: Loop, tag: int, ops: dict[int, list[RankOp]]) -> None:
    step, test = project(op.program), None if op.condition is None else project(op.condition)
    for device, operations in step.items():
        if test is not None and device not in test:
            why = f"device {device} takes no part in its condition, and cannot know how often it runs"
            raise ProgramError(op.name, "", "Loop", f"{why}; hold what is tested on all devices of the loop")
        ops[device].append(RankLoop(op, operations, None if test is None else test[device], tag))


def works(op: Compute) -> Iterator[tuple[int, TileWork]]:
    """The operands of an operation on every device."""
    cuts = [placement_of(part.cut, op.place.mesh) for part in op.parts]
    outs = tuple((array, value.name) for array, value in op.outs)
    for number, device in enumerate(op.place.devices):
        nests = tuple((part.nest, points_of(part.nest, cut, number)) for part, cut in zip(op.parts, cuts, strict=True))
        yield device, TileWork(op.name, nests, op.ins, outs)


def _project_move(op: Move, tag: int, flat: ProgramData, ops: dict[int, list[RankOp]]) -> None:
    value, out = flat.values[op.value], op.out
    if op.plan is not None:
        for device in value.place.devices:
            ops[device].append(CollectivePlan(op.plan, value.place.devices, op.value, out.name, tag))
        return
    if renames(op, flat):
        for device in value.place.devices:
            ops[device].append(Rename(op.value, out.name))
        return
    _project_sends(value, out, tag, ops)


def _project_sends(value: Value, out: Value, tag: int, ops: dict[int, list[RankOp]]) -> None:
    old, new = (dict(zip(end.place.devices, end.corner.tolist(), strict=True)) for end in (value, out))
    boxes: dict[int, list[tuple[int, _Ints]]] = {device: [] for device in out.place.devices}
    stays: dict[int, list[tuple[_Ints, _Ints, _Ints]]] = {device: [] for device in out.place.devices}
    for sender, receiver, box, _ in direct_transfers(value, out).rows():
        offset, goes = _minus(box.start, old[sender]), _minus(box.start, new[receiver])
        if sender == receiver:
            stays[receiver].append((offset, goes, box.size))
        else:
            boxes[receiver].append((sender, goes))
            ops[sender].append(Send(value.name, receiver, offset, box.size, tag))
    for device in out.place.devices:
        own_value = value.name if device in old else ""
        parts = (tuple(boxes[device]), own_value, tuple(stays[device]))
        ops[device].append(Receive(out.name, out.tile, out.dtype, *parts, tag))


def _minus(a: Sequence[int], b: Sequence[int]) -> _Ints:
    return tuple(x - y for x, y in zip(a, b, strict=True))


# ---------------------------------------------------------------------------------------------- running


class _Post:
    """Data in flight: boxes in order from each sender, and tiles that members of a collective have brought."""

    def __init__(self) -> None:
        self.boxes: dict[tuple[_Ints, int, int], list[Tile]] = {}
        self.brought: dict[tuple[_Ints, _Ints], dict[int, Tile]] = {}
        self.tiles: dict[tuple[_Ints, _Ints], dict[int, Tile]] = {}

    def has_all(self, op: Receive, device: int, at: _Ints) -> bool:
        count = Counter(sender for sender, _ in op.boxes)
        return all(len(self.boxes.get((at, sender, device), ())) >= boxes for sender, boxes in count.items())

    def meet(self, op: CollectivePlan, at: _Ints) -> None:
        key = (at, op.members)
        if key not in self.tiles and len(self.brought[key]) == len(op.members):
            tiles = reference.run(op.plan, [self.brought[key][device] for device in op.members])
            self.tiles[key] = dict(zip(op.members, tiles, strict=True))


def run_ranks(ranks: Mapping[int, RankProgram], inputs: Mapping[str, Tiles]) -> dict[str, Tiles]:
    """Run the program of every rank; a rank knows of another only its messages.

    Args:
        ranks: the programs, by device.
        inputs: the tiles of every input, by device.

    Returns:
        The tiles of every output, by device.

    Raises:
        ProgramError: if ranks wait for each other without end.

    >>> import numpy as np
    >>> from redistrib import nest, partition
    >>> program = partition(nest("i->i", (4,), name="double", fn=lambda a: 2 * a), {"double": (2,)})
    >>> run_ranks(project(program), {"a": {0: np.array([1, 2]), 1: np.array([3, 4])}})
    {'out': {0: array([2, 4]), 1: array([6, 8])}}
    """
    post = _Post()
    tiles = {device: {name: inputs[name][device] for name in rank.inputs} for device, rank in ranks.items()}
    running = {device: _steps(rank_program, tiles[device], post, ()) for device, rank_program in ranks.items()}
    while running:
        moved = False
        for device, steps in list(running.items()):
            for went_on in steps:
                if not went_on:
                    break
                moved = True
            else:
                del running[device]
                moved = True
        if not moved:
            raise ProgramError("", "", "Order", f"devices {sorted(running)} wait for messages that none of them sends")
    outputs: dict[str, Tiles] = {}
    for device, rank_program in ranks.items():
        for name in rank_program.outputs:
            outputs.setdefault(name, {})[device] = tiles[device][name]
    return outputs


def _steps(rank: RankProgram, tiles: dict[str, Tile], post: _Post, within: _Ints) -> Generator[bool]:
    """Run one rank: yields True for every operation done, False for every time it has to wait.

    `within` says in which step of which loops, so that data in flight in two steps stays separate.
    """
    for op in rank.ops:
        at = within if isinstance(op, TileWork | Rename) else (*within, op.tag)
        match op:
            case RankLoop():
                yield from _loop_steps(op, tiles, post, at)
            case TileWork():
                tiles |= run_work(op, tiles)
            case Send():
                box = tuple(slice(o, o + n) for o, n in zip(op.offset, op.size, strict=True))
                post.boxes.setdefault((at, rank.device, op.to), []).append(np.array(tiles[op.value][box]))
            case Receive():
                while not post.has_all(op, rank.device, at):
                    yield False
                tiles[op.out] = _put_together(op, rank.device, tiles, post, at)
            case CollectivePlan():
                key = (at, op.members)
                post.brought.setdefault(key, {})[rank.device] = tiles[op.value]
                post.meet(op, at)
                while key not in post.tiles:
                    yield False
                tiles[op.out] = post.tiles[key][rank.device]
            case Rename():
                tiles[op.out] = tiles[op.value]
        yield True


def _loop_steps(loop: RankLoop, tiles: dict[str, Tile], post: _Post, at: _Ints) -> Generator[bool]:
    """Run the steps of a loop on one rank; leave its carried values and its stacked results."""
    op, form = loop.op, loop.op.form
    names = [value.name for value in op.program.inputs]
    _, carried, arrays = form.operands(names)
    operands = dict(zip(names, op.ins, strict=True))
    state = {name: tiles[operands[name]] for name in names[: form.held] if operands[name] in tiles}
    left, stacked = form.results(op.outs)
    stacks: dict[int, dict[str, Tile]] = {}
    number = 0
    while True:
        if loop.condition is not None:
            test = dict(zip(loop.condition.inputs, state.values(), strict=True))
            yield from _steps(loop.condition, test, post, (*at, 2 * number))
            if not test[loop.condition.outputs[0]].item():
                break
        elif number == op.steps:
            break
        entry = number if loop.condition is not None else form.order[number]
        inner = state | {name: tiles[operands[name]][entry] for name in arrays}
        yield from _steps(loop.step, inner, post, (*at, 2 * number + 1))
        handed_on, made = form.results([inner[name] for name in op.program.outputs])
        state |= dict(zip(carried, handed_on, strict=True))
        stacks[entry] = dict(zip((out.name for out in stacked), made, strict=True))
        number += 1
    tiles |= {out.name: state[name] for out, name in zip(left, carried, strict=True)}
    for out in stacked:
        entries = [stacks[k][out.name] for k in range(op.steps)]
        tiles[out.name] = np.stack(entries) if entries else np.zeros(out.tile, dtype=out.dtype)


def run_work(work: TileWork, tiles: Mapping[str, Tile]) -> dict[str, Tile]:
    """The results of nests on the tiles of a rank, by name.

    Raises:
        ProgramError: as `run_nests` does.
    """
    results = run_nests(
        work.nests, ((array, tiles[name]) for array, name in work.ins), [array for array, _ in work.outs]
    )
    return dict(zip((name for _, name in work.outs), results, strict=True))


def _put_together(op: Receive, device: int, tiles: Mapping[str, Tile], post: _Post, at: _Ints) -> Tile:
    tile: Tile = np.zeros(op.shape, dtype=_dtype(op, device, tiles, post, at))
    for offset, goes, size in op.kept:
        tile[_box(goes, size)] = tiles[op.value][_box(offset, size)]
    for sender, goes in op.boxes:
        part = post.boxes[at, sender, device].pop(0)
        tile[_box(goes, part.shape)] = part
    return tile


def _dtype(op: Receive, device: int, tiles: Mapping[str, Tile], post: _Post, at: _Ints) -> Any:
    """The element type of arriving data; the reference takes arrays of another element type than the program says."""
    if op.boxes:
        return post.boxes[at, op.boxes[0][0], device][0].dtype
    return tiles[op.value].dtype if op.value else np.dtype(op.dtype)


def _box(offset: _Ints, size: _Ints) -> tuple[slice, ...]:
    return tuple(slice(o, o + n) for o, n in zip(offset, size, strict=True))
