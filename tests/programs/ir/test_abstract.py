"""Abstract interpretation: Figure 4 of DistIR, and types and arrays mixed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from redistrib.errors import ProgramError
from redistrib.programs.ir.abstract import ABSTRACT, CONCRETE, Mixed, Register
from redistrib.programs.ir.builder import Builder
from redistrib.programs.ir.interpret import interpret
from redistrib.programs.ir.ops import REGISTER, reshaping
from redistrib.programs.ir.program import Program, Value
from redistrib.programs.ir.reference import run_by_rank, run_whole
from tests.programs.time.drawn import arrays_for
from tests.programs.time.mlp import on, pipelined


def figure_4(b: Builder, x: tuple[int, ...] = (256, 8, 768), *, known: bool) -> dict[str, Any]:
    """The snippet of GPT-2, `%211` to `%226`; `%3114` is an array, or only a type."""
    v: dict[str, Any] = {"3114": [-1] if known else b.input("3114", "[1]", on(0), "int32")}
    ends = (b.input(name, f"[{', '.join(map(str, x))}]", on(0)) for name in "uv")
    v["211"] = REGISTER.apply(b, "add", *ends)
    v["218"] = REGISTER.apply(b, "shape", v["211"])
    v["219"] = 2
    v["220"] = REGISTER.apply(b, "gather", v["218"], v["219"], axis=0)
    v["223"] = REGISTER.apply(b, "unsqueeze", v["220"], axes=[0])
    v["224"] = REGISTER.apply(b, "concat", v["3114"], v["223"], axis=0)
    v["225"] = REGISTER.apply(b, "reshape", v["211"], v["224"])
    w = b.input("w", f"[{x[-1]}, {3 * x[-1]}]", on(0))
    v["226"] = REGISTER.apply(b, "gemm", v["225"], w)
    return v


def test_d9_mixed_gives_the_shape_of_the_reshape_of_figure_4() -> None:
    b = Builder("gpt2")
    v = figure_4(b, known=True)
    assert v["218"].tolist() == [256, 8, 768] and v["220"] == 768
    assert v["223"].tolist() == [768] and v["224"].tolist() == [-1, 768]
    assert v["211"].type.global_shape == (256, 8, 768)
    assert v["225"].type.global_shape == (2048, 768)
    assert v["226"].type.global_shape == (2048, 2304)
    assert [op.name for op in b.build(v["226"]).ops] == ["add", "reshape", "gemm"]  # what is known needs no operation


def test_d9_with_types_alone_there_is_no_shape_for_the_reshape_of_figure_4() -> None:
    with pytest.raises(ProgramError) as caught:
        figure_4(Builder("gpt2"), known=False)
    assert str(caught.value) == (
        "operation 'reshape': its result on ([256, 8, 768], [2]) is not known; give arrays where shapes depend "
        "on them, or an implementation that takes these"
    )


def test_the_program_of_figure_4_computes_what_it_should() -> None:
    b = Builder()
    program = b.build(figure_4(b, (4, 2, 3), known=True)["226"])
    u, v, w = arrays_for(program)
    wanted = (u + v).reshape(8, 3) @ w
    for run in (run_whole, run_by_rank):
        np.testing.assert_array_equal(run(program, [u, v, w])[0], wanted)


def test_an_array_among_values_becomes_a_constant() -> None:
    b = Builder()
    x = b.input("x", "[3]", on(0), "int64")
    program = b.build(REGISTER.apply(b, "relu", REGISTER.apply(b, "concat", x, [7, -8])))
    np.testing.assert_array_equal(run_whole(program, [np.array([1, -2, 3])])[0], [1, 0, 3, 7, 0])


def test_the_most_precise_implementation_is_taken() -> None:
    register: Register[None] = Register()
    register.implement("f", ABSTRACT, ABSTRACT)(lambda b, x, y: "types")
    register.implement("f", ABSTRACT, CONCRETE)(lambda b, x, y: "mixed")
    register.implement("f", CONCRETE, CONCRETE)(lambda b, x, y: "arrays")
    value = Builder().input("x", "[2]", on(0))
    found = [register.apply(None, "f", x, y) for x in (value, 1) for y in (value, 1)]
    assert found == ["types", "mixed", "types", "arrays"]


@pytest.mark.parametrize(
    ("kind", "operands", "message"),
    [
        ("sine", [1], "operation 'sine': no such operation; there are shape, gather,"),
        ("reshape", ["[2, 3]", [4, -1]], "operation 'reshape': 6 elements have no shape (4, -1)"),
        ("reshape", ["[2, 3]", [-1, -1]], "operation 'reshape': 6 elements have no shape (-1, -1)"),
        ("gemm", ["[2, 3]", "[3]"], "operation 'gemm', array 'in1': it multiplies matrices, and this is [3]"),
        ("gemm", ["[2, 3]", "[4, 5]"], "it reads an array of shape (3, 5), and value 'in1' has shape (4, 5)"),
        ("add", ["[2, 3]", "[3, 2]"], "operation 'add', array 'b': it reads an array of shape (2, 3), and value 'in1'"),
        ("concat", ["[2, 3]", "[2, 4]"], "operation 'concat': shapes (2, 3) and (2, 4) cannot be joined along"),
        ("relu", [[1, 2]], "operation 'relu': all it is given are arrays, on no device; make one an input"),
    ],
)
def test_errors_of_type_and_shape_name_the_operation(kind: str, operands: list[Any], message: str) -> None:
    b = Builder()
    given = [b.input(f"in{k}", one, on(0)) if isinstance(one, str) else one for k, one in enumerate(operands)]
    with pytest.raises(ProgramError) as caught:
        REGISTER.apply(b, kind, *given)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "dims"),
    [
        ((256, 8, 768), (2048, 768), (("f0", "f1"), ("f2",))),
        ((2048, 768), (256, 8, 768), (("f0",), ("f1",), ("f2",))),
        ((4, 6), (2, 12), (("f0",), ("f1", "f2"))),
        ((2, 3), (3, 2), ((), ())),  # no common factors: read whole
        ((1, 5), (5,), (("f0",),)),
        ((5,), (5, 1, 1), (("f0",), (), ())),
        ((), (1,), ((),)),
        ((0, 3), (3, 0), ((), ())),
    ],
)
def test_reshapes_have_their_common_factors_as_iteration_dimensions(
    old: tuple[int, ...], new: tuple[int, ...], dims: tuple[tuple[str, ...], ...]
) -> None:
    one = reshaping(old, new)
    assert one.writes[0].dims == dims
    assert one.shape(one.reads[0]) == old and one.shape(one.writes[0]) == new
    array = np.arange(int(np.prod(old))).reshape(old)
    assert one.body is not None
    np.testing.assert_array_equal(one.body(dict(one.ranges), array), array.reshape(new))


def test_a_program_on_arrays_and_types_mixed() -> None:
    """Of the pipeline with the batch known and the weights not, the splits alone are computed."""
    program = pipelined()
    arrays = arrays_for(program)
    args = [value if value.name.startswith("w") else array for value, array in zip(program.inputs, arrays, strict=True)]
    state = interpret(program, args, Mixed())
    np.testing.assert_array_equal(state["x_1"], arrays[2][:2])
    np.testing.assert_array_equal(state["y_2"], arrays[3][2:])
    assert isinstance(state["as_1"], Value) and state["as_1"].type.global_shape == (2, 8)
    assert isinstance(state["w2_new"], Value) and state["w2_new"].place == on(1)
    known = interpret(program, arrays, Mixed())
    for name, wanted in zip(program.outputs, run_whole(program, arrays), strict=True):
        np.testing.assert_array_equal(known[name], wanted)


def test_what_is_too_large_is_known_by_type_alone() -> None:
    program = pipelined()
    state = interpret(program, arrays_for(program), Mixed(most=11))
    assert isinstance(state["x_1"], Value) and not isinstance(state["y_1"], Value)


def test_a_semantics_of_ones_own() -> None:
    """The devices on which each value rests: the analysis that a projection needs."""

    class Devices:
        def compute(self, op: Any, ins: Any) -> list[frozenset[int]]:
            assert len({*ins}) == 1, "all that an operation reads is on one place"
            return [frozenset(op.place.devices)] * len(op.outs)

        def move(self, op: Any, value: Value, known: frozenset[int]) -> frozenset[int]:
            return frozenset(op.out.place.devices)

    program: Program = pipelined()
    state = interpret(program, [frozenset(value.place.devices) for value in program.inputs], Devices())
    assert state["as_1"] == {0} and state["ar_1"] == {1} and state["w2_new"] == {1}
