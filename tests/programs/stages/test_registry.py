"""Orders and families of layouts by name: accepted wherever the library's own are, and refused with clear words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import redistrib as rd
from redistrib import ir
from redistrib.cli import main
from redistrib.errors import ChoiceError, ProgramError
from redistrib.programs.search.staged import Staged
from redistrib.programs.stages.models import mlp
from redistrib.programs.time.constants import machine
from tests.messages import exactly
from tests.programs.stages.registered import case

BATCH = {"x": 0, "y": 0}
Rows = list[list[ir.PipelineTask]]


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is gone after it."""
    for table in (ir.ORDERS, ir.LAYOUTS):
        monkeypatch.setattr(table, "_entries", dict(table._entries))


def one_by_one(devices: int, microbatches: int, chunks: int = 1) -> Rows:
    """Each microbatch forward and backward before the next one begins."""
    passes = [(m, back) for m in range(microbatches) for back in (False, True)]
    return [[ir.PipelineTask(device, m, back) for m, back in passes] for device in range(devices)]


def in_four(devices: int, examples: int, most: int) -> Iterator[rd.Layout]:
    yield rd.Layout(data=devices // 4, pipeline=4, microbatches=4, order="one by one")


def test_a_registered_order_is_a_name_like_those_of_the_library() -> None:
    assert ir.register_order("one by one")(one_by_one) is one_by_one
    by_name = rd.Layout(pipeline=2, microbatches=4, order="one by one")
    assert by_name == rd.Layout(pipeline=2, microbatches=4, order=one_by_one)
    assert by_name.rows == one_by_one(2, 4) and str(by_name) == "1/1/2/4 one by one"
    assert [str(rd.Layout(order=name)) for name in ("1f1b", "gpipe")] == ["1/1/1/1", "1/1/1/1 gpipe"]
    seconds = {
        name: rd.simulate(
            ir.spread(mlp(4, 256, 64), BATCH, rd.Layout(pipeline=4, microbatches=8, order=name)).program, "v100"
        ).seconds
        for name in ("one by one", "gpipe", "1f1b")
    }
    assert seconds["1f1b"] <= seconds["gpipe"] < seconds["one by one"] / 2  # nothing of a pipeline is left


def test_a_pipeline_runs_in_a_registered_order() -> None:
    ir.register_order("one by one")(one_by_one)

    def step(w: Any, x: Any) -> Any:
        return jax.value_and_grad(lambda w: jnp.sum((jnp.tanh(x @ w["up"]) @ w["down"]) ** 2))(w)

    w = {"up": jnp.arange(32.0).reshape(4, 8) / 32, "down": jnp.ones((8, 2))}
    x = jnp.arange(16.0).reshape(4, 4) / 16
    layout = rd.Layout(pipeline=2, microbatches=2, order="one by one")
    f = rd.pipeline(step, (w, x), {"x": 0}, layout)
    jax.tree.map(lambda ours, whole: np.testing.assert_allclose(ours, whole, rtol=1e-5), f(w, x), step(w, x))
    assert "pipeline 2, microbatches 2 one by one" in repr(f)


def test_families_of_layouts_have_names_and_so_have_orders_in_their_place() -> None:
    ir.register_order("one by one")(one_by_one)
    ir.register_layouts("in four")(in_four)
    program, v100 = mlp(4, 64, 32), machine("v100")
    (only,) = ir.grid(program, BATCH, v100, 8, "in four")
    assert str(only.layout) == "2/1/4/4 one by one"
    assert only == ir.grid(program, BATCH, v100, 8, in_four)[0]
    plain, ordered = (ir.grid(program, BATCH, v100, 4, family, 4) for family in ("powers of two", "gpipe"))
    assert sorted(f"{one.layout} gpipe" for one in plain) == sorted(str(one.layout) for one in ordered)


def test_a_search_takes_them_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    target = "tests.programs.stages.registered:case"
    assert main(["search", target, "--devices", "4", "--batch", "x=0", "--pipeline", "by twos", "--limit", "1"]) == 0
    printed = capsys.readouterr().out
    assert "data 2, pipeline 2, microbatches 2 one after another" in printed and "tensor 4" not in printed
    function, *args = case()
    found = rd.search(function, args, devices=4, pipeline="gpipe", batch={"x": 0}, microbatches=(2, 2), limit=60)
    layouts = [candidate.layout for candidate in found if isinstance(candidate, Staged)]
    assert {str(layout) for layout in layouts} >= {"2/1/2/2 gpipe", "1/2/2/2 gpipe"}
    assert all(layout.order is ir.gpipe for layout in layouts)


def test_names_that_are_taken_or_unknown_are_refused() -> None:
    ir.register_order("one by one")(one_by_one)
    ir.register_order("one by one")(one_by_one)  # the same again

    def again() -> Any:
        def defined(devices: int, microbatches: int, chunks: int = 1) -> Rows:
            return one_by_one(devices, microbatches, chunks)

        return defined

    first, second = again(), again()
    ir.register_order("defined")(first)
    ir.register_order("defined")(second)  # as a cell of a notebook that runs again
    assert ir.ORDERS["defined"] is second
    takes = "give a function of devices, microbatches and stages on a device"
    known = ", ".join(map(repr, ir.ORDERS))
    assert known.startswith("'gpipe', '1f1b', 'interleaved', ") and known.endswith(", 'one by one', 'defined'")
    with pytest.raises(ChoiceError, match=exactly(f"no order 'zigzag'; {takes} or one of the names {known}")):
        rd.Layout(order="zigzag")
    taken = "the order 'gpipe' is redistrib.programs.stages.orders.gpipe already; take another name"
    with pytest.raises(ChoiceError, match=exactly(taken)):
        ir.register_order("gpipe")(one_by_one)
    with pytest.raises(ChoiceError, match=exactly("'' is no name; give the order a text that is not empty")):
        ir.register_order("")
    with pytest.raises(ChoiceError, match=exactly(f"3 is no order; {takes}")):
        ir.register_order("three")(3)  # type: ignore[arg-type]
    ir.register_order("nameless")(lambda devices, microbatches, chunks=1: [])
    with pytest.raises(ChoiceError, match=r"<lambda> already; take another name"):
        ir.register_order("nameless")(lambda devices, microbatches, chunks=1: [[]])
    with pytest.raises(ChoiceError, match=r"no family of layouts 'zigzag'.* 'powers of two', .*'gpipe', '1f1b'"):
        ir.grid(mlp(2, 16, 8), BATCH, machine("v100"), 2, "zigzag")
    with pytest.raises(ChoiceError, match="no family of layouts 'zigzag'"):
        rd.search(jnp.tanh, (jnp.ones(4),), devices=2, pipeline="zigzag", batch={"x": 0})


def test_what_they_return_is_checked() -> None:
    layout = rd.Layout(pipeline=2, order=lambda devices, microbatches, chunks: [[(0, 0)], [(1, 0)]])  # type: ignore[list-item]
    why = "has (0, 0) among its tasks; give for every group of devices a list of ir.PipelineTask"
    with pytest.raises(ProgramError, match=exactly(f"order '<lambda>' {why}")):
        ir.spread(mlp(2, 16, 8), BATCH, layout)
    has = {"data 3, which takes 3 devices": rd.Layout(data=3), "'1/2'": "1/2"}
    for text, wrong in has.items():
        why = f"the family for 2 devices has {text}; give rd.Layout of 2 devices"
        with pytest.raises(ProgramError, match=exactly(why)):
            ir.grid(mlp(2, 16, 8), BATCH, machine("v100"), 2, lambda devices, examples, most, one=wrong: [one])  # type: ignore[list-item,misc]
