"""Steps that replace a tile where it lies: plans of several steps in source and target memory alone.

The first step reads the source and writes the target's memory; every later one trades boxes inside it, a little at a
time. That works because what a device sends in one turn lies exactly where what it receives in that turn must go.
So the order of boxes inside that memory is found backwards: at the end it is the target tile's own, and before a
step every box lies where the one that comes in its place shall lie. Such a layout is pieces of the tile, each
shifted as a whole.

Kept because nothing else carries several all-to-alls in source and target alone, as the limit of
`tests/mpi/programs/memory.py` asks: one tile less, in as long as datatypes take with that tile, and 1.4 times packed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

from mpi4py import MPI

from redistrib.backends.mpi.arrays import dtype_of
from redistrib.backends.mpi.messages import TAG, Runner
from redistrib.backends.mpi.stage import Stage
from redistrib.plans.plan import Plan
from redistrib.plans.steps import AllGather, AllPermute, AllToAll, DynSlice, Exchange, Step
from redistrib.plans.strided import Bytes, Ints, copy, pair
from redistrib.plans.transfers import stays, transfers
from redistrib.theory.boxes import Box

# Bytes that travel at once: more is no faster, and less is taken where the memory limit asks for it.
MOST = 1 << 20
LEAST = 1 << 12


@dataclass(frozen=True)
class Piece:
    """A box of the global array, and how far from there its home in a memory is.

    The memory is addressed as the tile that it will hold in the end; the box shifted is a box of that tile.
    """

    box: Box
    shift: Ints

    @property
    def home(self) -> Box:
        """The box of the final tile whose memory holds this one."""
        return self.box.moved(self.shift)


Layout: TypeAlias = tuple[Piece, ...]


@dataclass(frozen=True)
class Turn:
    """One box out, one box in, at most; both of one size where there are both."""

    to: int
    sends: Box | None
    of: int
    receives: Box | None


def turns(step: Step, device: int) -> list[Turn]:
    """What a device does in a step, in an order that partners agree on."""
    moved = transfers(step, device)
    sends, receives = moved.sends(device), moved.receives(device)
    if isinstance(step, AllGather | AllToAll):
        order = step.group_of(device)
        out, into, own = dict(sends), dict(receives), order.index(device)
        partners = [order[(t - own) % len(order)] for t in range(len(order))]  # mine in turn t has me in turn t
        return [Turn(m, out.get(m), m, into.get(m)) for m in partners if m != device]
    sent = dict(zip(moved.round[moved.sender == device].tolist(), sends, strict=True))
    received = dict(zip(moved.round[moved.receiver == device].tolist(), receives, strict=True))
    nothing = (device, None)
    return [Turn(*sent.get(r, nothing), *received.get(r, nothing)) for r in sorted({*sent, *received})]


# ----------------------------------------------------------------------------------------------- layouts


def within(layout: Layout, box: Box) -> list[Piece]:
    """The parts of a layout inside a box."""
    met = [Piece(piece.box.meet(box), piece.shift) for piece in layout]
    return [piece for piece in met if piece.box.volume]


def _holds(layout: Layout, box: Box) -> bool:
    return sum(piece.box.volume for piece in within(layout, box)) == box.volume


def _renamed(layout: Layout, old: Box, new: Box) -> list[Piece]:
    """The homes of a box, renamed to be those of another box of the same size."""
    by = tuple(n - o for o, n in zip(old.start, new.start, strict=True))
    return [
        Piece(piece.box.moved(by), tuple(shift - d for shift, d in zip(piece.shift, by, strict=True)))
        for piece in within(layout, old)
    ]


def layout_before(step: Step, device: int, after: Layout) -> Layout | None:
    """The layout that a step must find to leave `after`, both in one memory; None where there is none.

    Boxes that a later slice throws away have no home; they are received all the same, and dropped.
    """
    before = step.before.box(device)
    if isinstance(step, DynSlice):
        return tuple(within(after, before))
    if isinstance(step, AllGather):  # the own tile stays where it is; all of it is sent
        return tuple(within(after, before)) if _holds(after, before) else None
    if isinstance(step, Exchange):
        return None  # a share may be larger than what comes in its turn
    kept = stays(step).row(device)
    found = within(after, kept)
    own = turns(step, device)
    last = {turn.sends.start: k for k, turn in enumerate(own) if turn.sends is not None}
    for k, turn in enumerate(own):
        if turn.sends is None:
            continue
        if kept.volume and turn.sends.start == kept.start:
            if not _holds(after, turn.sends):
                return None
        elif last[turn.sends.start] == k:  # a box sent to several gives way in its last turn
            if turn.receives is None or not _holds(after, turn.receives):
                return None
            found += _renamed(after, turn.receives, turn.sends)
    return tuple(found)


def layouts(plan: Plan, device: int) -> list[Layout] | None:
    """The layout of the target's memory after every step that moves data; None if some step cannot replace.

    Of the first step only what it leaves matters, since it reads the source.
    """
    tile = plan.after.box(device)
    layout: Layout | None = (Piece(tile, (0,) * len(tile.size)),)
    moving = [k for k, step in enumerate(plan.steps) if not isinstance(step, DynSlice)]
    found: list[Layout] = []
    for k in range(len(plan.steps) - 1, moving[0] - 1, -1):
        assert layout is not None
        if k in moving:
            found.append(layout)
        if k == moving[0]:
            break
        layout = layout_before(plan.steps[k], device, layout)
        if layout is None:
            return None
    return found[::-1]


def in_place_stages(plan: Plan, device: int) -> list[Stage]:
    """The stages of a plan that knows no memory but source and target."""
    stages: list[Stage] = []
    for step in plan.steps:
        if not isinstance(step, DynSlice):
            first = not stages
            stages.append(
                Stage(
                    step,
                    "source" if first else "target",
                    "target",
                    plan.before if first else plan.after,
                    plan.after,
                    device,
                    dtype_of(plan.dtype),
                )
            )
    return stages


# ----------------------------------------------------------------------------------------------- running


class InPlace(Runner):
    """A stage as small messages, each packed before what replaces it is unpacked."""

    name = "in_place"

    def __init__(self, stage: Stage, comm: MPI.Intracomm, before: Layout, after: Layout, most: int) -> None:
        super().__init__(stage)
        self.comm = comm
        self.before, self.after = before, after
        self.elements = max(1, most // stage.itemsize)
        self.turns = turns(stage.step, stage.device)
        self.scratch = 2 * self.elements * stage.itemsize

    def bind(self, scratch: Bytes) -> None:
        self.out, self.into = scratch[: self.scratch // 2], scratch[self.scratch // 2 : self.scratch]

    def run(self, source: Bytes, target: Bytes) -> None:
        if self.stage.reads != self.stage.writes:
            self._bring(source, target)
        for turn in self.turns:
            box = turn.sends or turn.receives
            if box is None:
                continue
            for start, size in parts(box.size, self.elements):
                requests = []
                part = Box(start, size)  # counted from the first element of what is sent, or received
                nbytes = part.volume * self.stage.itemsize
                if turn.receives is not None:
                    requests.append(self.comm.Irecv([self.into, nbytes, MPI.BYTE], turn.of, TAG))
                if turn.sends is not None:
                    self._move(
                        self.before, source, self.stage.source, Box(start, size).moved(turn.sends.start), self.out, True
                    )
                    requests.append(self.comm.Isend([self.out, nbytes, MPI.BYTE], turn.to, TAG))
                MPI.Request.Waitall(requests)
                if turn.receives is not None:
                    received = part.moved(turn.receives.start)
                    self._move(self.after, target, self.stage.target(), received, self.into, False)

    def _bring(self, source: Bytes, target: Bytes) -> None:
        """Copy what the device keeps into the memory in which all later steps work."""
        for box in self.stage.kept:
            for piece in within(self.after, box):
                seen = self.stage.source.moved(piece.shift)
                of, to = pair(piece.home, seen, self.stage.target(), self.stage.itemsize)
                copy(target, to, source, of)

    def _move(self, layout: Layout, memory: Bytes, tile: Box, box: Box, staging: Bytes, packs: bool) -> None:
        """Copy a box from its homes in a tile's memory to contiguous staging memory, or back."""
        for piece in within(layout, box):
            at_home, staged = pair(piece.home, tile, box.moved(piece.shift), self.stage.itemsize)
            if packs:
                copy(staging, staged, memory, at_home)
            else:
                copy(memory, at_home, staging, staged)


def parts(size: Ints, most: int) -> Iterator[tuple[Ints, Ints]]:
    """A box cut into boxes of at most so many elements: first elements and extents, alike on both sides of a message.

    >>> list(parts((2, 5), 2))
    [((0, 0), (1, 2)), ((0, 2), (1, 2)), ((0, 4), (1, 1)), ((1, 0), (1, 2)), ((1, 2), (1, 2)), ((1, 4), (1, 1))]
    """
    cut, inner = len(size), 1
    while cut > 0 and inner * size[cut - 1] <= most:
        cut -= 1
        inner *= size[cut]
    if cut == 0:
        yield (0,) * len(size), size
        return
    width = most // inner
    for outer in product(*(range(n) for n in size[: cut - 1])):
        for at in range(0, size[cut - 1], width):
            count = min(width, size[cut - 1] - at)
            start = (*outer, at, *(0,) * (len(size) - cut))
            yield start, (*(1,) * (cut - 1), count, *size[cut:])


@dataclass(frozen=True)
class Replacement:
    """A plan in source and target memory alone, for one device.

    Attributes:
        stages: one for every step that moves data.
        layouts: of the target's memory after every stage.
        gathers: how many stages at the end only fill in the tile; datatypes do that without staging.
        share: bytes of the largest box that this device sends or receives before that.
    """

    stages: tuple[Stage, ...]
    layouts: tuple[Layout, ...]
    gathers: int
    share: int

    def runner(self, k: int, comm: MPI.Intracomm, staging: int) -> InPlace:
        """The runner of one stage, with so many bytes of staging memory."""
        stage = self.stages[k]
        tile = stage.held.box(stage.device)
        before = self.layouts[k - 1] if k else (Piece(tile, (0,) * len(tile.size)),)
        return InPlace(stage, comm, before, self.layouts[k], staging // 2)


def replacement(plan: Plan, device: int) -> Replacement | None:
    """How a plan runs in source and target memory alone; None if it cannot on this device."""
    moves = (DynSlice, AllGather, AllToAll, AllPermute, Exchange)
    if plan.before.summands > 1 or not all(isinstance(step, moves) for step in plan.steps):
        return None
    found = layouts(plan, device)
    if found is None:
        return None
    stages = in_place_stages(plan, device)
    gathers = 0
    for step in reversed(plan.steps):
        if not isinstance(step, AllGather):
            break
        gathers += 1
    early = stages[: len(stages) - gathers]
    boxes = [box for stage in early for _, box in stage.sends + stage.receives]
    share = max((box.volume for box in boxes), default=0) * plan.itemsize
    return Replacement(tuple(stages), tuple(found), gathers, share)
