"""Plans of partial arrays: verified, carried out by the reference, written and read, shown."""

from __future__ import annotations

import itertools
import json
import random
from dataclasses import replace

import numpy as np
import pytest

from redistrib.errors import PlanFormError, PlanJsonError, TilesError
from redistrib.lang.mesh import Mesh
from redistrib.plans._json import sealed
from redistrib.plans.plan import Plan
from redistrib.plans.reduction import Accumulator, identity
from redistrib.plans.reference import assemble, run, scatter, tile_of
from redistrib.plans.steps import AllReduce, ReduceExchange, ReduceScatter
from redistrib.plans.verify import verify
from redistrib.testing import all_partial_types
from redistrib.theory.bounds import least_received
from redistrib.theory.placement import placement_of
from tests.messages import exactly
from tests.plans.hand import place, plan
from tests.plans.hand_partial import PARTIAL, pulled_sums
from tests.plans.sums import is_exact


@pytest.mark.parametrize("name", PARTIAL)
def test_a_plan_by_hand_is_right(name: str) -> None:
    made = PARTIAL[name]()
    if name == "reduce-exchange in a fixed order":
        assert verify(made) is made
        return
    assert verify(made, bound=10**6) is made
    assert is_exact(made)


@pytest.mark.parametrize("name", PARTIAL)
def test_a_plan_survives_json_with_the_numbers_of_its_summands(name: str) -> None:
    made = PARTIAL[name]()
    text = made.to_json()
    again = Plan.from_json(text, bound=10**6)
    assert again == made and again.to_json() == text
    assert json.loads(text)["version"] == 2
    for one, other in zip(made.steps, again.steps, strict=True):
        assert one.before.label.tolist() == other.before.label.tolist()
        assert one.after.label.tolist() == other.after.label.tolist()


@pytest.mark.parametrize("name", PARTIAL)
def test_a_plan_is_shown(name: str) -> None:
    text = str(PARTIAL[name]())
    assert str(PARTIAL[name]().source) in text and "in all" in text


def test_totals_of_plans() -> None:
    for name, received in (("reduce-exchange", 224), ("slice, reduce, gather", 1280), ("reduce-scatter", 128)):
        made = PARTIAL[name]()
        assert sum(made.received) == made.least_received == received
    assert sum(PARTIAL["all-reduce"]().received) == 12
    assert PARTIAL["all-reduce"]().steps[0].received() == [3, 3, 3, 3]
    assert sum(PARTIAL["cut to partial"]().received) == 0


@pytest.mark.parametrize(
    ("source", "mesh", "received"), [("[] sum{x}", "x=3", [2, 1, 1]), ("[7] sum{x}", "x=3", [10, 9, 9])]
)
def test_no_device_of_an_all_reduce_receives_less_than_it_must(source: str, mesh: str, received: list[int]) -> None:
    """A member receives its part from all others, and the parts of the others once."""
    ends = source, source.split(" ")[0]
    made = plan(*ends, mesh, AllReduce(place(ends[0], mesh), place(ends[1], mesh), [[0, 1, 2]]))
    assert verify(made).received == tuple(received)
    assert all(got >= least for got, least in zip(made.received, made.lower_bound, strict=True))
    assert sum(made.received) == made.steps[0].received_total()


@pytest.mark.parametrize("shape", [(), (12,), (12, 6)], ids=str)
@pytest.mark.parametrize("mesh", ["x=4", "x=2,y=2", "x=2,y=3"])
@pytest.mark.parametrize("kind", ["sum", "min"])
def test_one_exchange_that_adds_goes_from_any_type_to_any_other(mesh: str, shape: tuple[int, ...], kind: str) -> None:
    over = Mesh.of(mesh)
    types = list(all_partial_types(over, shape, kind))  # type: ignore[arg-type]
    exact = 0
    pairs = list(itertools.product(types, repeat=2))
    for source, target in random.Random(0).sample(pairs, min(len(pairs), 80)):
        before, after = placement_of(source, over), placement_of(target, over)
        step = pulled_sums(before, after)
        made = Plan(source, over, target, over, "int64", 8, (step,), "by hand", "exact", 0, "elements")
        assert verify(made, bound=10**6) is made
        assert is_exact(made)
        assert sum(made.received) >= made.least_received == least_received(before, after)
        once = len(np.unique(after.index, axis=0)) == after.devices
        if once and before.summands > 1:
            replicas = before.devices > before.tiles * before.summands
            assert sum(made.received) == made.least_received or replicas
            exact += 1
    assert exact or not shape or mesh == "x=4"


# --------------------------------------------------------------------------------------------- adding


def test_sums_are_added_in_the_order_of_summands_and_begin_with_the_first() -> None:
    values = np.array([[-0.0], [1e30], [1.0], [-1e30]], dtype=np.float32)
    made = Plan(*_ends("[1] sum{x}", "[1]", "x=4"), "float32", 4, (), "by hand", "exact", 0, "elements")
    step = pulled_sums(made.before.renumbered([3, 1, 0, 2]), made.after)
    made = replace(made, steps=(step,))
    tiles = run(made, scatter(values, made.before))
    assert [float(tile[0]) for tile in tiles] == [float((((values[2] + values[1]) + values[3]) + values[0])[0])] * 4
    zeros = run(made, scatter(np.full((4, 1), -0.0), made.before))
    assert all(np.signbit(tile[0]) for tile in zeros)


def test_summands_are_accumulated_in_a_wider_type_and_rounded_once() -> None:
    values = np.array([[2048], [1], [1], [1]], dtype=np.float16)
    made = Plan(*_ends("[1] sum{x}", "[1]", "x=4"), "float16", 2, (), "by hand", "exact", 0, "elements")
    made = replace(made, steps=(pulled_sums(made.before, made.after),))
    assert [float(tile[0]) for tile in run(made, scatter(values, made.before))] == [2048] * 4
    wide = replace(made, accumulate="float32")
    assert [float(tile[0]) for tile in run(wide, scatter(values, made.before))] == [2052] * 4
    assert verify(wide) is wide


def test_neutral_elements() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for name in ("float16", "float32", "int8", "uint16", "bool", "bfloat16", "float8_e4m3fn", "int4", "float8_e5m2"):
        dtype = np.dtype(getattr(ml_dtypes, name, name))
        values = np.array([0, 1, 1, 0]).astype(dtype)
        for kind, combine in (("max", np.maximum), ("min", np.minimum)):
            low = np.full(4, identity(kind, dtype), dtype=dtype)  # type: ignore[arg-type]
            assert (combine(low, values) == values).all() and (combine(values, low) == values).all()
    assert identity("sum", np.dtype("int8")) == 0


def test_boxes_are_combined_where_they_overlap() -> None:
    total = Accumulator((4,), np.dtype(np.int64), "sum")
    for offset, part in ((0, [1, 2, 3]), (1, [10, 20, 30])):
        total.add([offset], np.array(part))
    assert total.result().tolist() == [1, 12, 23, 30]


def test_summands_are_scattered_and_put_together() -> None:
    placement = place("[2{x}4] sum{y}", "x=2,y=2")
    stack = np.arange(8).reshape(2, 4)
    tiles = scatter(stack, placement)
    assert [tile.tolist() for tile in tiles] == [[0, 1], [4, 5], [2, 3], [6, 7]]
    assert assemble(tiles, placement).tolist() == [4, 6, 8, 10]
    with pytest.raises(TilesError):
        scatter(np.arange(4), placement)
    with pytest.raises(
        ValueError,
        match=exactly(
            "tile_of takes arrays whose tiles are parts of the array, and those of [4] sum{x} are "
            "partial sums; reduce it first, for example with jax.lax.psum or MPI's Allreduce"
        ),
    ):
        tile_of(np.arange(4), "[4] sum{x}", "x=2", 0)


# ------------------------------------------------------------------------------------------------ form


def test_plans_of_whole_tiles_are_still_of_version_1() -> None:
    made = Plan(*_ends("[4]", "[4]", "x=2"), "int64", 8, (), "by hand", "exact", 0, "elements")
    assert json.loads(made.to_json())["version"] == 1
    assert json.loads(replace(made, order="fixed").to_json())["version"] == 2
    assert json.loads(replace(made, accumulate="float32").to_json())["version"] == 2


def _sealed(form: dict[str, object]) -> str:
    return sealed({name: value for name, value in form.items() if name != "digest"})


STRANGE = [
    ("reduce-scatter", "version", 1, "the plan has the field 'accumulate', which version 1 does not know"),
    ("reduce-scatter", "order", "random",
     "order is 'random', partial sums are added in 'any' order or in a 'fixed' one"),
    ("reduce-scatter", "accumulate", 3, "accumulate is 3, where a text is expected"),
    ("reduce-scatter", "steps.implementation", "ring",
     "steps[0].implementation is 'ring', a reduction runs as 'native' or 'alltoall'"),
    ("reduce-scatter", "placements.summands", 1,
     "placements[0].summands is 1, where an integer of at least 2 is expected"),
    ("reduce-scatter", "placements.summands", 2**40,
     "placements[0]: a placement of 8 devices names one partial sum for each, of at most as many, "
     "got 1099511627776 partial sums and numbers of shape (8,)"),
    ("reduce-scatter", "placements.summand", [0] * 7 + [5],
     "placements[0]: the number of a partial sum lies outside 0 to 1"),
    ("reduce-scatter", "placements.summand", [0] * 7 + [2**70],
     "placements[0].summand has a number that does not fit 64 bits"),
    ("reduce-scatter", "placements.reduction", ["sum"],
     "placements[0]: 2 partial sums are reduced by ['sum'], not by one of ('sum', 'max', 'min')"),
    ("reduce-exchange", "steps.splits", [0, 1],
     "steps[0]: 2 partial sums are split at (0, 1) to make 1; split points rise from 0 to 2, 2 of them"),
    ("reduce-exchange", "steps.splits", [],
     "steps[0].splits is empty; split points rise from 0 to the number of partial sums before the step"),
    ("reduce-exchange", "steps.splits", [0, 2.0], "steps[0].splits[1] is 2.0, where an integer is expected"),
    ("cut to partial", "steps.keeps", [[0]], "steps[0].keeps[0] is [0], where an integer is expected"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "where", "value", "message"), STRANGE)
def test_a_stranger_is_told_what_is_wrong(name: str, where: str, value: object, message: str) -> None:
    form = json.loads(PARTIAL[name]().to_json())
    *list_of, field = where.split(".")
    (form[list_of[0]][0] if list_of else form)[field] = value
    with pytest.raises(PlanJsonError) as caught:
        Plan.from_json(_sealed(form), bound=10**6)
    assert str(caught.value) == message


def test_version_1_knows_no_summands() -> None:
    form = json.loads(PARTIAL["reduce-scatter"]().to_json())
    del form["accumulate"], form["order"]
    with pytest.raises(
        PlanJsonError, match=exactly("source.type is '[4{x}16, 8] sum{y}', and partial sums need version 2")
    ):
        Plan.from_json(_sealed({**form, "version": 1}))


def test_steps_and_plans_of_the_wrong_form_are_refused() -> None:
    before, after = place("[4] sum{x}", "x=4"), place("[4]", "x=4")
    made = pulled_sums(before, after)
    for splits in ((0, 3), (1, 4), (0, 2, 4), (0, 5)):
        with pytest.raises(
            PlanFormError,
            match=exactly(f"4 partial sums are split at {splits} to make 1; split points rise from 0 to 4, 2 of them"),
        ):
            replace(made, splits=splits)
    with pytest.raises(
        PlanFormError, match=exactly("the order of partial sums is 'ascending'; it is one of ('any', 'fixed')")
    ):
        replace(PARTIAL["reduce-scatter"](), order="ascending")


def test_steps_are_equal_iff_they_say_the_same() -> None:
    made = PARTIAL["reduce-scatter of one axis of two"]().steps[0]
    assert isinstance(made, ReduceScatter)
    assert replace(made) == made and hash(replace(made)) == hash(made)
    assert replace(made, implementation="alltoall") != made
    summed = PARTIAL["reduce-exchange"]().steps[0]
    assert isinstance(summed, ReduceExchange)
    renamed = replace(summed, before=summed.before.renumbered(1 - summed.before.label))
    assert renamed.before == summed.before and renamed != summed


def _ends(source: str, target: str, mesh: str) -> tuple[object, ...]:
    from redistrib.lang.types import DistType

    over = Mesh.of(mesh)
    return DistType.of(source), over, DistType.of(target), over
