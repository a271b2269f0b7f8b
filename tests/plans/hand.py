"""Plans made by hand, one for every kind of step and every way it can be used; no search takes part."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.plans.plan import Plan
from redistrib.plans.steps import AllGather, AllPermute, AllToAll, DynSlice, Exchange, Step
from redistrib.plans.transfers import Transfers
from redistrib.theory.placement import Placement, placement_of
from tests.plans.columns import table_of


def place(notation: str, mesh: str | Mesh) -> Placement:
    return placement_of(DistType.of(notation), Mesh.of(mesh))


def plan(source: str, target: str, mesh: str | Mesh, *steps: Step, target_mesh: Mesh | None = None) -> Plan:
    over = Mesh.of(mesh)
    return Plan(
        source=DistType.of(source),
        source_mesh=over,
        target=DistType.of(target),
        target_mesh=target_mesh or over,
        dtype="float32",
        itemsize=4,
        steps=steps,
        algorithm="by hand",
        cost_model="exact",
        cost=sum(sum(step.received()) for step in steps),
        unit="elements",
    )


def shares(*rows: tuple[int, int, int, list[int], list[int]]) -> Transfers:
    """Shares from rows (src, dst, round, start, size), as JSON has them."""
    src, dst, number, start, size = (list(column) for column in zip(*rows, strict=True))
    return table_of(src, dst, start, size, number)


class Rounds:
    """The rounds of an exchange: in a round a device sends once and receives once, and all boxes have one size."""

    def __init__(self) -> None:
        self._busy: set[tuple[int, str, int]] = set()
        self._sizes: dict[int, list[int]] = {}

    def first(self, src: int, dst: int, size: list[int]) -> int:
        """The first round that has room for a message; it is taken."""
        k = 0
        while not {(k, "src", src), (k, "dst", dst)}.isdisjoint(self._busy) or self._sizes.setdefault(k, size) != size:
            k += 1
        self._busy |= {(k, "src", src), (k, "dst", dst)}
        return k


def pulled(before: Placement, after: Placement) -> Exchange:
    """The direct exchange: every device takes what it lacks from the first device that holds it."""
    rows: list[tuple[int, int, int, list[int], list[int]]] = []
    rounds = Rounds()
    for dst in range(after.devices):
        seen = {tuple(before.index[dst].tolist())}
        for src in range(before.devices):
            start = np.maximum(before.start[src], after.start[dst])
            stop = np.minimum(before.start[src] + before.tile, after.start[dst] + after.tile)
            if tuple(before.index[src].tolist()) in seen or (start >= stop).any():
                continue
            seen.add(tuple(before.index[src].tolist()))
            size = (stop - start).tolist()
            rows.append((src, dst, rounds.first(src, dst, size), start.tolist(), size))
    return Exchange(before, after, shares(*rows))


def _slice() -> Plan:
    mesh = "x=2,y=4"
    return plan("[8, 8]", "[4{x}8, 2{y}8]", mesh, DynSlice(place("[8, 8]", mesh), place("[4{x}8, 2{y}8]", mesh)))


def _gather_two_dimensions() -> Plan:
    mesh = "x=2,y=3"
    cut, whole = place("[4{x}8, 2{y}6]", mesh), place("[8, 6]", mesh)
    return plan("[4{x}8, 2{y}6]", "[8, 6]", mesh, AllGather(cut, whole, [[0, 1, 2, 3, 4, 5]]))


def _gather_minor_factor() -> Plan:
    """The minor axis of one dimension goes, together with the whole of another; the major axis stays."""
    mesh = "x=2,y=3,z=2"
    cut, after = place("[1{x,y}6, 2{z}4]", mesh), place("[2{y}6, 4]", mesh)
    groups = [[0, 1, 6, 7], [2, 3, 8, 9], [4, 5, 10, 11]]
    return plan("[1{x,y}6, 2{z}4]", "[2{y}6, 4]", mesh, AllGather(cut, after, groups))


def _gather_off_axis() -> Plan:
    """Three of the six parts of an axis: no axis of the source's mesh has these groups."""
    mesh, other = Mesh.of("x=6"), Mesh.of("a=2,b=3")
    step = AllGather(place("[2{x}12]", mesh), place("[6{a}12]", other), [[0, 1, 2], [3, 4, 5]])
    return plan("[2{x}12]", "[6{a}12]", mesh, step, target_mesh=other)


def _alltoall() -> Plan:
    mesh = "x=2,y=4"
    before, after = place("[4{x}8, 2{y}8]", mesh), place("[1{y,x}8, 8]", mesh)
    groups = [[0, 1, 2, 3], [4, 5, 6, 7]]
    return plan("[4{x}8, 2{y}8]", "[1{y,x}8, 8]", mesh, AllToAll(before, after, groups))


def _alltoall_two_to_one() -> Plan:
    mesh = "a=2,b=3"
    before, after = place("[2{a}4, 6, 3{b}9]", mesh), place("[4, 1{b,a}6, 9]", mesh)
    return plan("[2{a}4, 6, 3{b}9]", "[4, 1{b,a}6, 9]", mesh, AllToAll(before, after, [[0, 1, 2, 3, 4, 5]]))


def _alltoall_shuffled() -> Plan:
    """The target's devices stand in another order, which an all-to-all absorbs in the order of its shares."""
    mesh = Mesh.of("x=4")
    other = Mesh(mesh.axes, (2, 0, 3, 1))
    before, after = place("[2{x}8, 4]", mesh), place("[8, 1{x}4]", other)
    return plan("[2{x}8, 4]", "[8, 1{x}4]", mesh, AllToAll(before, after, [[0, 1, 2, 3]]), target_mesh=other)


def _alltoall_repeated() -> Plan:
    """Shares repeat: devices 0 and 1 end with the same tile, as do 2 and 3."""
    mesh = "a=2,b=2"
    before, after = place("[1{a,b}4, 4]", mesh), place("[4, 2{a}4]", mesh)
    return plan("[1{a,b}4, 4]", "[4, 2{a}4]", mesh, AllToAll(before, after, [[0, 2, 1, 3]]))


def _alltoall_slicing() -> Plan:
    """The target cuts more than the group gathers, so shares are cut as well and the tile shrinks."""
    mesh = "a=2,b=2"
    before, after = place("[2{a}4, 4]", mesh), place("[4, 1{b,a}4]", mesh)
    return plan("[2{a}4, 4]", "[4, 1{b,a}4]", mesh, AllToAll(before, after, [[0, 2], [1, 3]]))


def _permute() -> Plan:
    mesh = "x=2,y=2"
    before, after = place("[4{x}8, 8{y}16]", mesh), place("[4{y}8, 8{x}16]", mesh)
    return plan("[4{x}8, 8{y}16]", "[4{y}8, 8{x}16]", mesh, AllPermute(before, after, [[2, 1], [1, 2]]))


def _exchange_4_to_6() -> Plan:
    mesh = "x=4,y=6"
    source, target = "[3{x}12]", "[2{y}12]"
    return plan(source, target, mesh, pulled(place(source, mesh), place(target, mesh)))


def _exchange_4_to_6_in_two_dimensions() -> Plan:
    mesh = "x=4,y=6"
    source, target = "[3{x}12, 2{y}12]", "[2{y}12, 3{x}12]"
    return plan(source, target, mesh, pulled(place(source, mesh), place(target, mesh)))


def _exchange_to_larger() -> Plan:
    mesh = "x=2,y=3"
    source, target = "[1{x,y}6, 4]", "[3{x}6, 4]"
    return plan(source, target, mesh, pulled(place(source, mesh), place(target, mesh)))


def _exchange_split_shares() -> Plan:
    """Two devices hold what one lacks; each sends half, so a share is less than what its sender could give."""
    mesh = Mesh.of("a=2,b=2")
    other = Mesh(mesh.axes, (2, 3, 0, 1))
    rows: list[tuple[int, int, int, list[int], list[int]]] = [
        (2, 0, 0, [4, 0], [2, 3]), (3, 1, 0, [6, 0], [2, 3]), (0, 2, 0, [0, 0], [2, 3]), (1, 3, 0, [2, 0], [2, 3]),
        (3, 0, 1, [6, 0], [2, 3]), (2, 1, 1, [4, 0], [2, 3]), (1, 2, 1, [2, 0], [2, 3]), (0, 3, 1, [0, 0], [2, 3]),
    ]  # fmt: skip
    exchange = Exchange(place("[4{a}8, 3]", mesh), place("[4{a}8, 3]", other), shares(*rows))
    return plan("[4{a}8, 3]", "[4{a}8, 3]", mesh, exchange, target_mesh=other)


def _exchange_ragged() -> Plan:
    mesh = "x=4,y=6"
    source, target = "[3{x}12]", "[2{y}12]"
    step = pulled(place(source, mesh), place(target, mesh))
    return plan(source, target, mesh, Exchange(step.before, step.after, step.shares, "ragged"))


def _exchange_nothing() -> Plan:
    """An exchange without shares is a slice that happens to be written so."""
    mesh = "x=2,y=2"
    before, after = place("[2{x}4]", mesh), place("[1{y,x}4]", mesh)
    return plan("[2{x}4]", "[1{y,x}4]", mesh, Exchange(before, after, Transfers.none(before.rank)))


def _three_phases() -> Plan:
    mesh = Mesh.of("x=2,y=2,z=2")
    source, target = "[4{x}8, 8]", "[8, 4{x}8]"
    sliced = place("[2{y,x}8, 8]", mesh)
    exchanged = place("[8, 2{y,x}8]", mesh)
    return plan(
        source,
        target,
        mesh,
        DynSlice(place(source, mesh), sliced),
        AllToAll(sliced, exchanged, [[0, 2, 4, 6], [1, 3, 5, 7]]),
        AllGather(exchanged, place(target, mesh), [[0, 2], [1, 3], [4, 6], [5, 7]]),
    )


def _mixed_kinds() -> Plan:
    """A permute and an exchange in one plan, over two device orders."""
    mesh = Mesh.of("x=4")
    other = Mesh(mesh.axes, (1, 2, 3, 0))
    first, second = place("[2{x}8, 4]", mesh), place("[2{x}8, 4]", other)
    pairs = [[0, 1], [1, 2], [2, 3], [3, 0]]
    last = place("[8, 1{x}4]", other)
    return plan(
        "[2{x}8, 4]", "[8, 1{x}4]", mesh, AllPermute(first, second, pairs), pulled(second, last), target_mesh=other
    )


def _nothing_to_do() -> Plan:
    return plan("[2{x}4]", "[2{x}4]", "x=2")


def _rank_0() -> Plan:
    whole = place("[]", "x=3")
    return plan("[]", "[]", "x=3", DynSlice(whole, whole), AllToAll(whole, whole, [[0], [1], [2]]))


def _no_elements() -> Plan:
    mesh = "x=2"
    before, after = place("[0{x}0, 4]", mesh), place("[0, 2{x}4]", mesh)
    return plan("[0{x}0, 4]", "[0, 2{x}4]", mesh, Exchange(before, after, Transfers.none(before.rank)))


GOOD: dict[str, Callable[[], Plan]] = {
    "slice": _slice,
    "gather two dimensions": _gather_two_dimensions,
    "gather minor factor": _gather_minor_factor,
    "gather off axis": _gather_off_axis,
    "alltoall": _alltoall,
    "alltoall two to one": _alltoall_two_to_one,
    "alltoall shuffled": _alltoall_shuffled,
    "alltoall repeated": _alltoall_repeated,
    "alltoall slicing": _alltoall_slicing,
    "permute": _permute,
    "exchange 4 to 6": _exchange_4_to_6,
    "exchange 4 to 6 in two dimensions": _exchange_4_to_6_in_two_dimensions,
    "exchange to larger": _exchange_to_larger,
    "exchange split shares": _exchange_split_shares,
    "exchange ragged": _exchange_ragged,
    "exchange nothing": _exchange_nothing,
    "three phases": _three_phases,
    "mixed kinds": _mixed_kinds,
    "nothing to do": _nothing_to_do,
    "rank 0": _rank_0,
    "no elements": _no_elements,
}


def array_for(made: Plan) -> npt.NDArray[np.int64]:
    """A global array in which every element differs, and none is the zero of an unfilled buffer."""
    return np.arange(1, int(np.prod(made.shape)) + 1, dtype=np.int64).reshape(made.shape)
