"""Corruptions of plans of partial arrays, and of what is said about their summands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from redistrib.plans.plan import Plan
from redistrib.plans.steps import AllGather, AllReduce, ReduceExchange, ReduceScatter, Step, Unreduce
from redistrib.theory.placement import Placement
from tests.plans.columns import columns_of, table_of
from tests.plans.corrupt import Corruption, forged
from tests.plans.hand import place, plan, shares
from tests.plans.hand_partial import PARTIAL, between


def changed(name: str, number: int = 1, **changes: Any) -> Callable[[], Plan]:
    """A correct plan, one step of which is changed."""

    def make() -> Plan:
        made = PARTIAL[name]()
        steps = list(made.steps)
        steps[number - 1] = replace(steps[number - 1], **changes)
        return replace(made, steps=tuple(steps))

    return make


def labelled(placement: Placement, label: Sequence[int]) -> Placement:
    """Other summands on the devices."""
    return replace(placement, summand=np.array(label))


def share(name: str, row: int, number: int = 1, **changes: Any) -> Callable[[], Plan]:
    """A correct plan, one share of which is changed, or left out if nothing is said of it."""

    def make() -> Plan:
        step = PARTIAL[name]().steps[number - 1]
        assert isinstance(step, ReduceExchange)
        columns = columns_of(step.shares)
        for column, value in changes.items():
            columns[column][row] = value
        if not changes:
            columns = {column: np.delete(value, row, axis=0) for column, value in columns.items()}
        return changed(name, number, shares=table_of(**columns))()

    return make


def one(source: str, target: str, mesh: str, make: Callable[[Placement, Placement], Step]) -> Callable[[], Plan]:
    return lambda: between(source, target, mesh, make)


def _whole_in_the_middle(made: Callable[[Placement], Placement]) -> Callable[[], Plan]:
    """A permute that moves nothing, to a placement whose summands cannot be."""

    def make() -> Plan:
        before = place("[4] sum{x}", "x=4")
        made_up = made(before)
        return plan("[4] sum{x}", "[4] sum{x}", "x=4", Unreduce(before, made_up, range(4)))  # type: ignore[arg-type]

    return make


def _forged_summand(placement: Placement) -> Placement:
    found = forged(placement)
    for name, value in (("summand", np.array([0, 1, 2, 7])), ("summands", 4), ("reduction", "sum")):
        object.__setattr__(found, name, value)
    return found


def _twice_reduced() -> Plan:
    mesh, texts = "x=2,y=2", ["[8] sum{x,y}", "[8] sum{y}", "[8]"]
    at = [place(text, mesh) for text in texts]
    at[0] = at[0].renumbered([0, 2, 1, 3])
    groups = [[0, 2], [1, 3]], [[0, 1], [2, 3]]
    made = plan(texts[0], texts[2], mesh, *(AllReduce(at[k], at[k + 1], groups[k]) for k in range(2)))
    return replace(made, order="fixed")


def _added_twice() -> Plan:
    mesh, texts = "x=2,y=2", ["[8] sum{x,y}", "[8] sum{y}", "[8]"]
    at = [place(text, mesh) for text in texts]
    rows = [(0, 1, 0), (1, 0, 0), (2, 3, 0), (3, 2, 0)], [(0, 2, 0), (2, 0, 0), (1, 3, 0), (3, 1, 0)]
    steps = []
    for k in range(2):
        src, dst, number = (np.array(column) for column in zip(*rows[1 - k], strict=True))
        table = table_of(src, dst, np.zeros((4, 1)), np.full((4, 1), 8), number)
        steps.append(ReduceExchange(at[k], at[k + 1], table))
    made = plan(texts[0], texts[2], mesh, *steps)
    return replace(made, order="fixed")


REDUCTION_CORRUPTIONS = [
    Corruption(
        "a gather of partial sums that leaves none",
        one("[2{x}4] sum{y}", "[4]", "x=2,y=2", lambda b, a: AllGather(b, a, [[0, 2], [1, 3]])),
        "summand count",
        1,
        None,
        "step 1 (allgather) goes from 2 partial sums by sum to whole tiles; it moves partial sums and makes none, so "
        "both must be equal",
        bound=100,
    ),
    Corruption(
        "a group that makes more of its partial sums than one",
        one("[4] sum{x}", "[4]", "x=4", lambda b, a: AllReduce(b, a, [[0, 1], [2, 3]])),
        "summand count",
        1,
        None,
        "step 1 (all_reduce) goes from 4 partial sums by sum to whole tiles; groups of 2 make one partial sum of 2",
    ),
    Corruption(
        "sums of which maxima are made",
        one("[4] sum{x}", "[4] max{x}", "x=4", lambda b, a: ReduceExchange(b, a, shares((0, 1, 0, [0], [4])))),
        "summand count",
        1,
        None,
        "step 1 (reduce_exchange) goes from 4 partial sums by sum to 4 partial sums by max; partial sums of one kind "
        "make no "
        "partial sums of another",
    ),
    Corruption(
        "sums that become partial sums of maxima",
        one("[4] sum{x}", "[4] max{x}", "x=4", lambda b, a: Unreduce(b, a, range(4))),  # type: ignore[arg-type]
        "summand count",
        1,
        None,
        "step 1 (unreduce) goes from 4 partial sums by sum to 4 partial sums by max; partial sums of one kind make no "
        "partial sums of another",
    ),
    Corruption(
        "partial sums that nobody made",
        _whole_in_the_middle(_forged_summand),
        "summand count",
        1,
        None,
        "step 1 has partial sums that cannot be: the number of a partial sum lies outside 0 to 3",
    ),
    Corruption(
        "a reduction that merges tiles",
        one("[2{y}4] sum{x}", "[4]", "x=2,y=2", lambda b, a: ReduceScatter(b, a, [[0, 2], [1, 3]])),
        "slice grid",
        1,
        None,
        "step 1 (reduce_scatter) goes from the grid (2,) to (1,); members keep equal parts of the sum, so each "
        "count must be a multiple of the one before",
        bound=100,
    ),
    Corruption(
        "a reduction that cuts too little",
        one("[4] sum{x}", "[4]", "x=4", lambda b, a: ReduceScatter(b, a, [[0, 1, 2, 3]])),
        "group size",
        1,
        None,
        "step 1 (reduce_scatter) has groups of 4, but goes from the grid (1,) to (1,); it cuts each tile into 4",
    ),
    Corruption(
        "an all-reduce that cuts",
        one("[4] sum{x}", "[1{x}4]", "x=4", lambda b, a: AllReduce(b, a, [[0, 1, 2, 3]])),
        "group size",
        1,
        None,
        "step 1 (all_reduce) has groups of 4, but goes from the grid (1,) to (4,); it cuts each tile into 1",
    ),
    Corruption(
        "members of different tiles",
        changed("reduce-scatter", groups=[[0, 3], [2, 1], [4, 5], [6, 7]]),
        "disjoint members",
        1,
        3,
        "step 1 (reduce_scatter) has devices 0 and 3 in one group; the first holds partial sum 0 of 2 (sum) of [0:4, "
        "0:8], the other goes from partial sum 1 of 2 (sum) of [4:8, 0:8] to [4:8, 4:8]",
    ),
    Corruption(
        "members in another order than their parts",
        changed("reduce-scatter", groups=[[0, 1], [3, 2], [4, 5], [6, 7]]),
        "member order",
        1,
        3,
        "step 1 (reduce_scatter) lists device 3 as member 0 of group 1, but it keeps part 1 of the sum",
    ),
    Corruption(
        "a member in no group of a reduction",
        changed("reduce-scatter", groups=[[0, 1], [2, 3], [4, 5], [6, 6]]),
        "duplicate member",
        1,
        6,
        "step 1 (reduce_scatter) names device 6 2 times, in groups [3]; groups partition the devices",
    ),
    Corruption(
        "a partial sum that a group has twice",
        changed("reduce-scatter", before=labelled(place("[4{x}16, 8] sum{y}", "x=4,y=2"), [0, 1, 0, 0, 0, 1, 0, 1])),
        "wrong start",
        1,
        3,
        "step 1 starts with device 3 holding partial sum 0 of 2 (sum) of [4:8, 0:8], where the source gives it "
        "partial sum 1 of 2 (sum) of [4:8, 0:8]",
    ),
    Corruption(
        "groups that have no runs of partial sums",
        changed("reduce-scatter of one axis of two", before=place("[8] sum{x,y}", "x=2,y=2").renumbered([0, 1, 2, 3])),
        "summand",
        1,
        0,
        "step 1 (reduce_scatter) has partial sums [0, 2] in group 0, whose members end with partial sums [0]; they "
        "must "
        "end with one, made of the partial sums [0, 1], each held by one member",
    ),
    Corruption(
        "a share that is missing in a sum",
        share("reduce-exchange", 0),
        "summand",
        1,
        0,
        "step 1 (reduce_exchange) has device 0 add partial sum 1 of [0:4, 0:1] 0 times; a sum has each once",
    ),
    Corruption(
        "a share in a sum twice",
        one(
            "[4] sum{x}",
            "[4]",
            "x=2",
            lambda b, a: ReduceExchange(b, a, shares((0, 1, 0, [0], [4]), (1, 0, 0, [0], [4]), (1, 0, 1, [1], [2]))),
        ),
        "summand",
        1,
        0,
        "step 1 (reduce_exchange) has device 0 add partial sum 1 of [1:3] 2 times; a sum has each once",
    ),
    Corruption(
        "a share of a partial sum that makes another",
        one("[4] sum{x}", "[4] sum{x}", "x=2", lambda b, a: ReduceExchange(b, a, shares((0, 1, 0, [0], [4])))),
        "summand",
        1,
        1,
        "step 1 (reduce_exchange) has device 0 send partial sum 0 to device 1, which ends with partial sum 1, made of "
        "partial sums 1 to 1",
    ),
    Corruption(
        "devices that keep their tile twice",
        changed("cut to partial", keeps=[0, 1, 1, 2]),
        "unreduce",
        1,
        None,
        "step 1 (unreduce) lists the devices [0, 1, 1, 2]; list each once, ascending",
    ),
    Corruption(
        "a device that there is not",
        changed("cut to partial", keeps=[0, 4]),
        "device number",
        1,
        4,
        "step 1 (unreduce) names device 4 in the list of those that keep their tile; the devices are 0 to 3",
    ),
    Corruption(
        "a tile that becomes part of a smaller one",
        one("[4]", "[2{x}4] sum{y}", "x=2,y=2", lambda b, a: Unreduce(b, a, range(4))),  # type: ignore[arg-type]
        "unreduce",
        1,
        None,
        "step 1 (unreduce) goes from the grid (1,) to (2,); a tile becomes part of a tile as large or larger, so "
        "each count must divide the one before",
    ),
    Corruption(
        "a tile that becomes part of another",
        one("[2{x}4]", "[2{y}4] sum{x}", "x=2,y=2", lambda b, a: Unreduce(b, a, range(4))),  # type: ignore[arg-type]
        "unreduce",
        1,
        1,
        "step 1 (unreduce) leaves device 1 with partial sum 0 of 2 (sum) of [2:4], which does not contain the [0:2] "
        "it held",
    ),
    Corruption(
        "holders of one partial sum that differ",
        changed(
            "replicated to partial", keeps=[0, 2], after=labelled(place("[2{x}4] sum{y}", "x=2,y=2"), [0, 0, 0, 1])
        ),
        "unreduce",
        1,
        0,
        "step 1 (unreduce) has devices 0 and 1 hold partial sum 0 of 2 (sum) of [0:2], made of different parts of "
        "the array",
    ),
    Corruption(
        "a part of the array that is lost",
        changed("cut to partial", keeps=[0, 1, 3]),
        "unreduce",
        1,
        0,
        "step 1 (unreduce) makes [0:8] of 3 parts, 3 of them different; its partial sums must have each of its 4 "
        "parts, and in a sum once",
    ),
    Corruption(
        "a part that a sum has twice",
        changed("replicated to partial", keeps=[0, 1, 2]),
        "unreduce",
        1,
        0,
        "step 1 (unreduce) makes [0:2] of 2 parts, 1 of them different; its partial sums must have each of its 1 "
        "parts, and in a sum once",
    ),
    Corruption(
        "another partial sum at the end",
        lambda: plan("[4] sum{x}", "[4] sum{y}", "x=2,y=2"),
        "wrong end",
        None,
        1,
        "the plan ends with device 1 holding partial sum 0 of 2 (sum) of [0:4], where the target [4] sum{y} gives it "
        "partial sum 1 of 2 (sum) of [0:4]",
    ),
    Corruption(
        "a maximum that lacks a partial sum",
        one("[4] max{x}", "[4]", "x=2", lambda b, a: ReduceExchange(b, a, shares((0, 1, 0, [0], [4])))),
        "summand",
        1,
        0,
        "step 1 (reduce_exchange) has device 0 add partial sum 1 of [0:4] 0 times; a maximum or minimum has each at "
        "least once",
    ),
    Corruption(
        "an order of the platform's own",
        _twice_reduced,
        "fixed order",
        1,
        None,
        "step 1 (all_reduce) does not keep the plan's fixed order of partial sums: the platform adds in an order of "
        "its own; reduce in one step by an all-to-all or an exchange, or let the order be any",
    ),
    Corruption(
        "sums of sums in a fixed order",
        _added_twice,
        "fixed order",
        2,
        None,
        "step 2 (reduce_exchange) does not keep the plan's fixed order of partial sums: sums of sums are other sums; "
        "reduce in one step by an all-to-all or an exchange, or let the order be any",
    ),
    Corruption(
        "partial sums numbered anew in a fixed order",
        lambda: replace(
            changed(
                "reduce-exchange in a fixed order", before=PARTIAL["reduce-exchange"]().before.renumbered([1, 0] * 4)
            )()
        ),
        "fixed order",
        1,
        None,
        "step 1 (reduce_exchange) does not keep the plan's fixed order of partial sums: its partial sums are numbered "
        "anew; reduce in one step by an all-to-all or an exchange, or let the order be any",
    ),
]
