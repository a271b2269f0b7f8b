"""Every small kept plan on all its ranks in one thread: the bits are those of the reference."""

from __future__ import annotations

import itertools
import math
import re
from typing import Any

import numpy as np
import pytest

import redistrib as rd
from redistrib.backends.ranks.bucket import can_share_a_launch
from redistrib.backends.ranks.host_memory import HostMemory
from redistrib.backends.ranks.runners import accumulator_bytes, runner_of
from redistrib.backends.stages import staged
from redistrib.lang.types import DistType
from redistrib.plans import reference
from redistrib.plans.dtypes import dtype_of
from redistrib.plans.plan import Plan
from tests.ranks.in_process import InProcessWire, Post, run_bucket, run_in_process
from tests.synthesis.kept_plans import kept, plan_of

MOST_ELEMENTS = 1 << 13  # of the largest tiles of all devices
PARTS = 4
WAYS = ((True, False), (False, False), (True, True))  # joined, has_collectives


def tiles_of(plan: Plan) -> list[Any]:
    """Source tiles of small numbers; holders of one partial sum hold the same."""
    rng, dtype, before = np.random.default_rng(3), dtype_of(plan.dtype), plan.before
    shape = (before.summands, *plan.shape) if before.summands > 1 else plan.shape
    return reference.scatter(rng.integers(0, 2 if plan.dtype == "bool" else 5, shape).astype(dtype), before)


def small_plans(part: int) -> list[Plan]:
    plans = []
    for call, answer in kept()[part::PARTS]:
        has_plan = re.fullmatch("[0-9a-f]{12}", answer.get("ranks", ""))  # no other element types have arrays
        if has_plan and math.prod(DistType.of(call["source"]).global_shape) <= MOST_ELEMENTS:
            plans.append(plan_of(call))
    return [plan for plan in plans if plan.height * plan.devices <= MOST_ELEMENTS]


def same(results: list[Any], expected: list[Any]) -> bool:
    pairs = zip(results, expected, strict=True)
    return all(a.shape == b.shape and a.tobytes() == b.tobytes() for a, b in pairs)


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.long) for part in range(1, PARTS))])
def test_all_ranks_of_a_plan_in_one_thread_make_the_tiles_of_the_reference(part: int) -> None:
    plans = small_plans(part)
    assert len(plans) > 30
    for plan in plans:
        require_right(plan)


def require_right(plan: Plan) -> set[str]:
    """Compare a plan with the reference over every kind of wire; returns the calls that were made."""
    tiles, calls = tiles_of(plan), set()
    before = [tile.tobytes() for tile in tiles]
    expected = reference.run(plan, tiles)
    for joined, has_collectives in WAYS:
        post = Post()
        results = run_in_process(plan, tiles, joined=joined, has_collectives=has_collectives, post=post)
        assert same(results, expected), (plan, joined, has_collectives)
        calls |= post.calls
    assert [tile.tobytes() for tile in tiles] == before
    return calls


CASES = {
    ("[4{x}8, 6]", "[8, 6]"): ["allgather"],
    ("[8, 3{x}6]", "[8, 6]"): ["allgather"],
    ("[4{x}8, 6]", "[8, 3{x}6]"): ["alltoall"],
    ("[2{x,y}8]", "[2{y,x}8]"): ["exchange"],
    ("[8, 8] sum{x,y}", "[2{x,y}8, 8]"): ["reduce_scatter"],
    ("[8, 8] sum{x,y}", "[8, 8]"): ["all_reduce", "parts"],
    ("[5, 3] max{x,y}", "[5, 3]"): ["all_reduce", "parts"],
}


@pytest.mark.parametrize("dtype", ["bfloat16", "int32"])
def test_every_kind_of_call_is_made(dtype: str) -> None:
    for ends, calls in CASES.items():
        plan = rd.synthesize(*ends, "x=2,y=2", dtype=dtype, machine="exact")
        assert {*calls} <= require_right(plan), plan


@pytest.mark.parametrize(
    ("ends", "dtype", "count"),
    [
        (("[8, 8] sum{x,y}", "[2{x,y}8, 8]"), "int32", 0),  # adds into the tile itself
        (("[8, 8] sum{x,y}", "[2{x,y}8, 8]"), "bfloat16", 16 * 2 * 4),  # 16 elements: a sum and a summand in float32
        (("[8, 8] sum{x,y}", "[8, 8]"), "bfloat16", 16 * 2 * 4),  # of the part that a device reduces
    ],
)
def test_an_accumulator_has_bytes_where_it_adds_in_a_wider_type(ends: tuple[str, str], dtype: str, count: int) -> None:
    stages = staged(rd.synthesize(*ends, "x=2,y=2", dtype=dtype, machine="exact"), 0).stages
    assert [accumulator_bytes(stage) for stage in stages] == [count]


def test_no_runner_allocates_more_than_its_class_says_and_some_do_as_much() -> None:
    summed = [("[8, 8] sum{x,y}", "[4{x}8, 8]"), ("[4{x}8, 6] sum{y}", "[8, 3{y}6]"), ("[8, 6]", "[8, 6] sum{x}")]
    ends = [*CASES, *summed, ("[2, 4{x}8, 6]", "[2, 8, 3{x}6]")]
    plans = [
        rd.synthesize(*pair, "x=2,y=2", dtype=dtype, machine="exact")
        for pair in ends
        for dtype in ("bfloat16", "int32")
    ]
    seen = set()
    for plan in plans:
        memory = HostMemory(dtype_of(plan.dtype))
        for (joined, has_collectives), device in itertools.product(WAYS, range(plan.devices)):
            wire = InProcessWire(Post(), device, joined, has_collectives)
            for stage in staged(plan, device).stages:
                runner = runner_of(stage, wire, memory)
                used, most = runner.scratch * memory.word + runner.beside, type(runner).most_bytes(stage)
                assert used <= most, (plan, stage.step, device)
                seen.add((type(runner).__name__, stage.step.reduces, used == most))
    assert {name for name, *_ in seen} == {"AllReduceInParts", "IdentityFill", "Packed", "Sum"}
    assert seen >= {("IdentityFill", True, True), ("Packed", False, True), ("Packed", True, True), ("Sum", True, True)}


BUCKET = (
    ("[4{x}8, 6]", "[8, 3{y}6]", "float32"),
    ("[2{x,y}8]", "[2{y,x}8]", "bool"),
    ("[4{x}8, 3{y}6]", "[4{y}8, 3{x}6]", "bfloat16"),
    ("[1{x}2, 5]", "[2, 5]", "float64"),
    ("[4~{x}7]", "[4~{y}7]", "uint8"),
    ("[8, 3]", "[2{x,y}8, 3]", "int16"),
)


def test_plans_of_any_types_run_together_with_one_letter_between_two_ranks_in_every_stage() -> None:
    plans = [rd.synthesize(*ends, "x=2,y=2", dtype=dtype, machine="exact") for *ends, dtype in BUCKET]
    assert all(map(can_share_a_launch, plans)) and max(len(plan.steps) for plan in plans) > 1
    tiles, post = list(map(tiles_of, plans)), CountingPost()
    results = run_bucket(plans, tiles, post)
    for plan, source, result in zip(plans, tiles, results, strict=True):
        assert same(result, reference.run(plan, source)), plan
    receivers = [
        {(device, k, receiver, number if apart else 0)
         for number, plan in enumerate(plans)
         for device in range(plan.devices)
         for k, stage in enumerate(staged(plan, device).stages)
         for receiver, _ in stage.sends}
        for apart in (False, True)
    ]  # fmt: skip
    assert post.sent == len(receivers[0]) < len(receivers[1])


class CountingPost(Post):
    sent = 0

    def send(self, sender: int, receiver: int, letter: bytes) -> None:
        self.sent += 1
        super().send(sender, receiver, letter)


def test_plans_that_add_share_no_launch() -> None:
    assert not can_share_a_launch(rd.synthesize("[8, 8] sum{x}", "[8, 8]", "x=2"))


class FaultyPost(Post):
    """It does something wrong with the third letter."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self._fault, self._sent = fault, 0

    def send(self, sender: int, receiver: int, letter: bytes) -> None:
        self._sent += 1
        if self._sent != 3:
            super().send(sender, receiver, letter)
            return
        match self._fault:
            case "loses":
                pass
            case "repeats":
                super().send(sender, receiver, letter)
                super().send(sender, receiver, letter)
            case "changes":
                super().send(sender, receiver, bytes([letter[0] ^ 1]) + letter[1:])
            case "returns":
                super().send(receiver, sender, letter)


@pytest.mark.parametrize("fault", ["loses", "repeats", "changes", "returns"])
def test_what_a_faulty_wire_does_is_seen(fault: str) -> None:
    plan = rd.synthesize("[2{x}8, 4]", "[8, 1{x}4]", "x=4", dtype="int32")
    tiles = tiles_of(plan)
    expected = reference.run(plan, tiles)
    assert same(run_in_process(plan, tiles, post=Post()), expected)
    with pytest.raises(AssertionError, match=r"wait for ever|are left|other tiles"):
        assert same(run_in_process(plan, tiles, post=FaultyPost(fault)), expected), "other tiles"
