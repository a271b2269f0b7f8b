"""Programs on several places as functions of JAX arrays: pipelines, arrays on one device, refusals."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, reject, settings

import redistrib as rd
from redistrib import ir
from redistrib.errors import ForeignMeshError, ProgramError
from redistrib.programs.ir.program import Loop, Program, Value
from redistrib.programs.run.jax.placed_function import PlacedFunction, can
from redistrib.programs.stages.models import gpt2, mlp
from tests.programs.ir.nested import programs

EIGHT = jax.sharding.Mesh(np.array(jax.devices()[:8]), ("d",))
FIRST, SECOND = (ir.Place(rd.Mesh(()), (number,)) for number in (0, 1))


def placed(f: Any, arrays: Any) -> list[jax.Array]:
    return [
        jax.device_put(np.asarray(array, value.dtype), to)
        for value, array, to in zip(f.program.inputs, arrays, f.in_shardings, strict=True)
    ]


@pytest.mark.parametrize(
    "layout",
    [
        rd.Layout(data=2, tensor=2, pipeline=2, microbatches=4),
        rd.Layout(tensor=2, pipeline=2, microbatches=2, chunks=2, order="interleaved"),
        rd.Layout(data=4, pipeline=2, microbatches=2, zero=3, order="gpipe"),
    ],
    ids=str,
)
def test_a_training_step_in_stages_computes_what_it_does_on_one_device(layout: rd.Layout) -> None:
    """Whole numbers in float32, so that sums in any order are exact; the interpreter of whole arrays is the oracle."""
    step = mlp(4, 8, 16, dtype="float32")
    arrays = [np.random.default_rng(k).integers(-2, 3, value.shape) * 1.0 for k, value in enumerate(step.inputs)]
    made = ir.spread(step, {"x": 0, "y": 0}, layout)
    f = rd.to_jax(made.program, EIGHT)
    results = f(*placed(f, made.arguments(arrays)))
    for array, to in zip(results, f.out_shardings, strict=True):
        assert array.sharding.is_equivalent_to(to, array.ndim)
        assert {device.id for device in array.sharding.device_set} < {device.id for device in EIGHT.devices.flat}
    for ours, whole in zip(made.results(results), ir.run_whole(step, arrays), strict=True):
        np.testing.assert_array_equal(ours, whole)


def test_inference_of_attention_in_stages() -> None:
    model = gpt2(2, 16, 8, s=4, head=8, vocabulary=None, dtype="float32")
    draw = np.random.default_rng(0)
    arrays = [draw.normal(size=value.shape).astype("float32") for value in model.inputs]
    made = ir.spread(model, {"x": 0}, rd.Layout(data=2, pipeline=2, microbatches=2))
    f = rd.to_jax(made.program, EIGHT)
    (ours,), (whole,) = (made.results(f(*placed(f, made.arguments(arrays)))), ir.run_whole(model, arrays))
    np.testing.assert_allclose(ours, whole, rtol=1e-4, atol=1e-4)


def test_arrays_begin_and_end_whole_on_one_device() -> None:
    """`root=True`, and grids that leave devices idle: the two ways to several places of `rd.partition`."""
    a, b = np.arange(24.0).reshape(4, 6), np.arange(24.0).reshape(6, 4)
    product = rd.nest("ij,jk->ik", (4, 6, 4))
    half = rd.nest("ik->ik", (4, 4), name="half", reads=["out"], writes="y", fn=lambda x: x / 2)
    for grids in ({"matmul": (2, 3, 1), "half": (1, 2)}, {"matmul": (2, 1, 4), "half": (4, 1)}):
        for options in ({"root": True}, {"root": True, "ranks": 8}, {"ranks": 7}):
            if options.get("ranks") == 7 and grids["matmul"] == (2, 1, 4):
                continue  # 8 devices
            program = rd.partition([product, half], grids, **options)  # type: ignore[arg-type]
            f = rd.to_jax(program, EIGHT)
            (y,) = f(*placed(f, [a, b]))
            np.testing.assert_array_equal(y, a @ b / 2)
            if options.get("root"):
                assert y.sharding.device_set == {jax.devices()[0]}


@settings(max_examples=8, deadline=None)
@given(programs(depth=1))
def test_programs_drawn_at_random(program: Program) -> None:
    """Calls, moves with plans and without, values on one device, on two and on two in the other order."""
    with jax.enable_x64(True):
        try:
            f = PlacedFunction(program, EIGHT)  # also of a program on one place
        except ProgramError as error:
            assert "move it to the place of the operation" in str(error)
            reject()
        arrays = [np.random.default_rng(k).integers(-2, 3, value.shape) for k, value in enumerate(program.inputs)]
        given_arrays = [array.astype(value.dtype) for array, value in zip(arrays, program.inputs, strict=True)]
        try:
            results = f(*placed(f, arrays))
        except ProgramError as error:
            assert "the body makes float64, and the value is of int" in str(error)
            reject()
        for ours, whole in zip(results, ir.run_whole(program, given_arrays), strict=True):
            np.testing.assert_array_equal(ours, np.asarray(whole).astype(ours.dtype))  # int8 wraps around


def two_layers(dtype: str = "float32") -> Program:
    builder = ir.Builder("two layers")
    x, w, v = (
        builder.input("x", "[4, 6]", FIRST, dtype),
        builder.input("w", "[6, 8]", FIRST, dtype),
        builder.input("v", "[8, 2]", SECOND, dtype),
    )
    layers = [rd.nest("bn,nm->bm", (4, n, m), name="gemm") for n, m in ((6, 8), (8, 2))]
    sent = builder.move(builder.compute(layers[0], x, w, names=["h"]), place=SECOND, name="sent")
    return builder.build(builder.compute(layers[1], sent, v, names=["y"]))


def test_each_place_has_the_devices_of_its_numbers() -> None:
    f = rd.to_jax(two_layers(), jax.sharding.Mesh(np.array(jax.devices()[4:6]), ("any",)))
    arrays = [np.ones((4, 6)), np.ones((6, 8)), np.ones((8, 2))]
    assert [*map(set, ([one.id for one in to.device_set] for to in f.in_shardings))] == [{4}, {4}, {5}]
    (y,) = f(*placed(f, arrays))
    assert y.sharding.device_set == {jax.devices()[5]} and (np.asarray(y) == 48).all()
    assert repr(f) == "PlacedFunction(two layers on 2 places of {'any': 2})"


def test_refusals_say_why_and_the_way_out() -> None:
    program = two_layers()
    assert can(program) is None
    f = rd.to_jax(program, EIGHT)
    arrays = placed(f, [np.ones((4, 6)), np.ones((6, 8)), np.ones((8, 2))])
    why = "it is traced, and a program on several places is one compiled function for each; call it outside of jit"
    with pytest.raises(ProgramError, match=f"operation 'two layers', array 'x': {why}"):
        jax.jit(f)(*arrays)
    with pytest.raises(ProgramError, match=r"'v'.* is placed as .*; place it with jax.device_put.*in_shardings\[2\]"):
        f(*arrays[:2], jax.device_put(arrays[2], jax.devices()[0]))
    with pytest.raises(ProgramError, match="it has the inputs x, w, v, and 1 arrays are given"):
        f(arrays[0])
    with pytest.raises(ForeignMeshError, match="of 2 devices"):
        rd.to_jax(program, jax.sharding.Mesh(np.array(jax.devices()[:1]), ("d",)))
    with pytest.raises(ProgramError, match="a schedule is for the plans of one place; leave schedule= out"):
        rd.to_jax(program, EIGHT, schedule="overlap")
    with pytest.raises(ProgramError, match="jax_enable_x64"):
        rd.to_jax(two_layers("float64"), EIGHT)
    silent = ir.parse(ir.to_text(program))
    assert can(silent) == "operation 'gemm': nest 'gemm' has no body; give one to run it"
    assert jnp.allclose(f(*arrays)[0], 48)


def test_a_loop_whose_steps_are_on_several_places_is_refused() -> None:
    body = ir.Builder("body")
    x = body.input("x", "[4]", FIRST)
    step = body.build(body.move(body.move(x, place=SECOND), place=FIRST, name="back"))
    builder = ir.Builder("looped")
    start, other = builder.input("start", "[4]", FIRST), builder.input("other", "[4]", SECOND)
    out = Value("end", start.type, FIRST, "float32")
    builder.ops.append(Loop("loop", step, (start.name,), (out,), 0, 1, 3))
    program = builder.build(out, other)
    why = "a loop with a step on several places is no function that JAX compiles; unroll it, or run the program by rd."
    assert can(program) == f"operation 'loop': {why}to_mpi"


def test_devices_of_several_processes_are_refused() -> None:
    far = SimpleNamespace(
        devices=np.array([SimpleNamespace(process_index=k, platform="cpu") for k in range(2)]), shape={"d": 2}
    )
    with pytest.raises(ProgramError, match=r"stays inside one process; run it by rd.to_mpi, or .* by rd.pipeline"):
        PlacedFunction(two_layers(), far)  # type: ignore[arg-type]


def test_partial_sums_are_added_before_they_leave_their_mesh() -> None:
    """Another mesh over the same devices is another place, and a move between the two has a plan."""
    four, pairs = ir.Place(rd.Mesh.of("d=4")), ir.Place(rd.Mesh.of("e=2,f=2"))
    builder = ir.Builder("sums")
    x = builder.input("x", "[2{d}8, 4]", four)
    total = builder.compute(rd.nest("ij->j", (8, 4), name="total"), x, cut={"i": "d"})
    plan = rd.synthesize(total.type, "[2{e}4]", four.mesh, target_mesh=pairs.mesh)
    moved = builder.move(total, plan=plan)
    f = rd.to_jax(builder.build(moved), EIGHT)
    array = np.arange(32.0).reshape(8, 4)
    (result,) = f(*placed(f, [array]))
    np.testing.assert_array_equal(result, array.sum(0))
    assert result.sharding.shard_shape((4,)) == (2,)


def test_a_call_that_reads_in_another_order_of_devices_is_refused_though_nothing_in_it_does() -> None:
    """A program without operations passes its input on, where it says that the input is."""
    turned = ir.Place(rd.Mesh.of("x=2"), (1, 0))
    passes = ir.Builder("passes")
    inner = passes.build(passes.input("a", "[4]", turned, "float32"))
    outer = ir.Builder("outer")
    x, y = (
        outer.input("x", "[4]", ir.Place(rd.Mesh.of("x=2"), (0, 1)), "float32"),
        outer.input("y", "[4]", FIRST, "float32"),
    )
    program = outer.build(outer.call(inner, x, names=["b"]), y)
    with pytest.raises(ProgramError, match="arrays of JAX have one order of devices: move it to the place of the"):
        rd.to_jax(program, EIGHT)
