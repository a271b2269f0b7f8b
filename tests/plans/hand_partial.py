"""Plans of partial arrays made by hand, one for every kind of step that makes sums or summands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from redistrib.plans.plan import Plan
from redistrib.plans.steps import (
    AllGather,
    AllPermute,
    AllReduce,
    AllToAll,
    DynSlice,
    Exchange,
    ReduceExchange,
    ReduceScatter,
    Step,
    Unreduce,
)
from redistrib.plans.transfers import Transfers
from redistrib.theory.placement import Placement
from tests.plans.hand import Rounds, place, plan, shares


def pulled_sums(before: Placement, after: Placement) -> ReduceExchange | Exchange:
    """Every device takes, of each summand that makes its own, what it lacks from the first device that holds it.

    All of the array goes into the first target summand where their numbers do not divide.
    """
    p, q = before.summands, after.summands
    splits = tuple(range(0, p + 1, p // q)) if p % q == 0 else (0, *[p] * q)
    rows: list[tuple[int, int, int, list[int], list[int]]] = []
    rounds = Rounds()
    for dst in range(after.devices):
        into = int(after.label[dst])
        mine = range(splits[into], splits[into + 1])
        own = (int(before.label[dst]), *before.index[dst].tolist())
        seen = {own} if own[0] in mine else set()
        for src in range(before.devices):
            slab = (int(before.label[src]), *before.index[src].tolist())
            start = np.maximum(before.start[src], after.start[dst])
            stop = np.minimum(before.start[src] + before.tile, after.start[dst] + after.tile)
            if slab in seen or slab[0] not in mine or (start >= stop).any():
                continue
            seen.add(slab)
            size = (stop - start).tolist()
            rows.append((src, dst, rounds.first(src, dst, size), start.tolist(), size))
    made = shares(*rows) if rows else Transfers.none(before.rank)
    return ReduceExchange(before, after, made, "ragged", splits)


def between(source: str, target: str, mesh: str, make: Callable[[Placement, Placement], Step]) -> Plan:
    return plan(source, target, mesh, make(place(source, mesh), place(target, mesh)))


def _scattered() -> Plan:
    groups = [[0, 1], [2, 3], [4, 5], [6, 7]]
    return between(
        "[4{x}16, 8] sum{y}", "[4{x}16, 4{y}8]", "x=4,y=2", lambda before, after: ReduceScatter(before, after, groups)
    )


def _scattered_over_two_dimensions() -> Plan:
    def make(before: Placement, after: Placement) -> Step:
        return ReduceScatter(before, after, [np.lexsort((after.index[:, 1], after.index[:, 0]))])

    return between("[4, 9] sum{x,y}", "[2{x}4, 3{y}9]", "x=2,y=3", make)


def _one_axis_of_two() -> Plan:
    """Summands over y remain. Those over x and y are numbered so that each group has a run of them."""
    before, after = place("[8] sum{x,y}", "x=2,y=2"), place("[4{x}8] sum{y}", "x=2,y=2")
    before = before.renumbered([0, 2, 1, 3])
    return plan("[8] sum{x,y}", "[4{x}8] sum{y}", "x=2,y=2", ReduceScatter(before, after, [[0, 2], [1, 3]]))


def _all_reduced() -> Plan:
    return between("[3] max{x}", "[3]", "x=2,y=2", lambda before, after: AllReduce(before, after, [[0, 2], [1, 3]]))


def _reduced_cut_added_gathered() -> Plan:
    """Replicas share the work: a slice, a reduction, a gather."""
    mesh = "x=4,y=2"
    texts = ["[16, 8] sum{x}", "[16, 4{y}8] sum{x}", "[4{x}16, 4{y}8]", "[16, 8]"]
    at = [place(text, mesh) for text in texts]
    steps = (
        DynSlice(at[0], at[1]),
        ReduceScatter(at[1], at[2], [[0, 2, 4, 6], [1, 3, 5, 7]]),
        AllGather(at[2], at[3], [[0, 1, 2, 3, 4, 5, 6, 7]]),
    )
    return plan(texts[0], texts[3], mesh, *steps)


def _moved_as_summands() -> Plan:
    """An all-to-all, a permute and an exchange of tiles that stay summands."""
    mesh = "x=2,y=2"
    texts = ["[2{x}4, 4] sum{y}", "[4, 2{x}4] sum{y}", "[4, 2{y}4] sum{x}", "[4, 4] sum{x}"]
    at = [place(text, mesh) for text in texts]
    moved = at[2].renumbered([0, 0, 1, 1])
    steps = (
        AllToAll(at[0], at[1], [[0, 2], [1, 3]]),
        AllPermute(at[1], moved, [[1, 2], [2, 1]]),
        Exchange(moved, at[3], shares((0, 1, 0, [0, 0], [4, 2]), (1, 0, 0, [0, 2], [4, 2]), (2, 3, 0, [0, 0], [4, 2]),
                                      (3, 2, 0, [0, 2], [4, 2]))),
    )  # fmt: skip
    return plan(texts[0], texts[3], mesh, *steps)


def _unsharded() -> Plan:
    return between("[2{x}8]", "[8] sum{x}", "x=4", lambda before, after: Unreduce(before, after, range(4)))  # type: ignore[arg-type]


def _masked() -> Plan:
    return between("[2{x}4]", "[2{x}4] sum{y}", "x=2,y=2", lambda before, after: Unreduce(before, after, [0, 2]))  # type: ignore[arg-type]


def _fixed() -> Plan:
    return replace(_pulled(), order="fixed", accumulate="float64")


def _pulled() -> Plan:
    return between("[4{x}16, 8] sum{y}", "[16, 1{x,y}8]", "x=4,y=2", pulled_sums)


PARTIAL: dict[str, Callable[[], Plan]] = {
    "reduce-scatter": _scattered,
    "reduce-scatter over two dimensions": _scattered_over_two_dimensions,
    "reduce-scatter of one axis of two": _one_axis_of_two,
    "all-reduce": _all_reduced,
    "slice, reduce, gather": _reduced_cut_added_gathered,
    "partial sums that move": _moved_as_summands,
    "cut to partial": _unsharded,
    "replicated to partial": _masked,
    "reduce-exchange": _pulled,
    "reduce-exchange in a fixed order": _fixed,
}
