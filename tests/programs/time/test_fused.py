"""What compilers fuse is not stored, and so not counted; what they copy is."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

import redistrib as rd
from redistrib.programs.ir.builder import Builder
from redistrib.programs.ir.live import peak_bytes
from redistrib.programs.ir.ops import reshaping
from redistrib.programs.ir.program import Compute, Program
from redistrib.programs.rules.equation import ArrayForm, Equation, Primitive
from redistrib.programs.time.kernels.buffers import compiled_peak_bytes
from redistrib.programs.time.kernels.fused import COPY, fused
from tests.programs.time.mlp import on

N = 8
ADD = rd.nest("i,i->i", (N,), fn=np.add, name="add")
TWICE = rd.nest("i->i", (N,), fn=lambda x: 2 * x, name="twice")


def made(*wanted: str) -> Any:
    """A program of one device, and the names of what its operations make once it is fused."""

    def check(build: Any) -> Program:
        b = Builder()
        x = b.input("x", f"[{N}]", on(0))
        program = b.build(*build(b, x))
        found = [value.name for op in fused(program).ops if isinstance(op, Compute) for _, value in op.outs]
        assert found == list(wanted)
        return program

    return check


def test_a_chain_is_one_loop() -> None:
    program = made("c")(
        lambda b, x: [b.compute(TWICE, b.compute(TWICE, b.compute(TWICE, x, names=["a"]), names=["b"]), names=["c"])]
    )
    assert peak_bytes(program)[0] == 3 * 4 * N  # the input, and what one operation reads and makes
    assert compiled_peak_bytes(program)[0] == 2 * 4 * N


def test_what_two_read_is_stored_if_it_is_costly_and_so_is_what_goes_out() -> None:
    def build(first: Any) -> Any:
        def ops(b: Builder, x: Any) -> list[Any]:
            a = b.compute(first, x, names=["a"])
            c, d = b.compute(TWICE, a, names=["c"]), b.compute(ADD, a, x, names=["d"])
            return [c, b.compute(ADD, c, d, names=["e"])]

        return ops

    made("c", "e")(build(TWICE))  # of d nothing is stored, and a is computed in both loops
    made("a", "c", "e")(build(rd.nest("i->i", (N,), fn=np.exp, name="exp", flops=10)))
    made("a", "c", "e")(build(rd.nest("i->i", (N,), fn=lambda x: 1 / x, name="div")))  # a quotient


def test_what_is_computed_twice_alike_is_computed_once() -> None:
    def build(b: Builder, x: Any) -> list[Any]:
        exp = rd.nest("i->i", (N,), fn=np.exp, name="exp", flops=10)
        dot = rd.nest("i,i->", (N,), name="dot")
        one, two = b.compute(exp, x, names=["a"]), b.compute(exp, x, names=["b"])
        return [b.compute(dot, one, two, names=["s"]), b.compute(TWICE, two, names=["out"])]

    made("a", "s", "out")(build)


def test_functions_with_the_same_text_and_other_constants_are_not_computed_alike() -> None:
    forms, literal = (ArrayForm((N,), "float32"),), np.float32(0)

    def of(**params: Any) -> Primitive:
        return Primitive(Equation(jax.lax.add_p, params, forms, forms, {1: literal}))

    zeros, ones = (jax.make_jaxpr(lambda x, c=c: x + c)(np.zeros(N)) for c in (np.zeros(N), np.ones(N)))
    assert str(zeros) == str(ones)
    assert of(jaxpr=zeros) == of(jaxpr=zeros) != of(jaxpr=ones)
    assert of(sizes=[1]) != of(sizes=[1])  # what has no hash is equal to itself alone
    assert of(scale=0.0) == of(scale=0.0) != of(scale=-0.0)
    assert len({of(axis=0), of(axis=0), of(axis=False)}) == 2


def test_sums_over_the_last_dimension_alone_make_what_they_read_on_the_way() -> None:
    for spec, wanted in (("ij->i", ["s"]), ("ij->j", ["a", "s"])):
        b = Builder()
        x = b.input("x", f"[{N}, {N}]", on(0))
        a = b.compute(rd.nest("ij->ij", (N, N), fn=lambda x: 2 * x, name="twice"), x, names=["a"])
        program = b.build(b.compute(rd.nest(spec, (N, N), name="total"), a, names=["s"]))
        assert [op.outs[0][1].name for op in fused(program).ops if isinstance(op, Compute)] == wanted


def test_what_a_sum_reads_is_made_on_the_way_and_what_a_product_reads_is_not() -> None:
    total = rd.nest("i->", (N,), name="total")
    dot = rd.nest("i,i->", (N,), name="dot")
    made("s")(lambda b, x: [b.compute(total, b.compute(TWICE, x, names=["a"]), names=["s"])])
    made("a", "s")(lambda b, x: [b.compute(dot, b.compute(TWICE, x, names=["a"]), x, names=["s"])])


def test_lifetimes_reach_to_where_a_loop_reads() -> None:
    """What is computed late needs what it reads until then."""

    def build(b: Builder, x: Any) -> list[Any]:
        total = rd.nest("i->", (N,), name="total")
        a = b.compute(total, x, names=["a"])
        spread = b.compute(rd.nest("i,->i", (N,), fn=np.add, name="spread"), x, a, names=["b"])
        other = b.compute(total, b.compute(TWICE, x, names=["c"]), names=["d"])
        return [b.compute(rd.nest("i,->i", (N,), fn=np.add, name="spread"), spread, other, names=["e"])]

    program = made("a", "d", "e")(build)
    assert compiled_peak_bytes(program)[0] == 2 * 4 * N + 2 * 4  # x, e, and the two sums
    assert peak_bytes(program)[0] == 3 * 4 * N + 4  # x, b, and c, and a sum


def test_reshapes_are_names_and_transposes_too_where_products_read_them() -> None:
    b = Builder()
    x = b.input("x", "[4, 8]", on(0))
    flat = b.compute(reshaping((4, 8), (32,)), x, names=["flat"])
    turned = b.compute(rd.nest("ij->ji", (4, 8), fn=np.transpose, flops=0, name="turn"), x, names=["turned"])
    dot = b.compute(rd.nest("ji,ik->jk", (8, 4, 8), name="dot"), turned, x, names=["dot"])
    program = b.build(b.compute(rd.nest("i->", (32,), name="total"), flat, names=["s"]), dot)
    assert [op.name for op in fused(program).ops if isinstance(op, Compute)] == ["dot", "total"]
    assert compiled_peak_bytes(program)[0] == 4 * (32 + 64 + 1)
    turned_alone = Builder()
    x = turned_alone.input("x", "[4, 8]", on(0))
    end = turned_alone.compute(rd.nest("ij->ji", (4, 8), fn=np.transpose, flops=0, name="turn"), x)
    assert len(fused(turned_alone.build(end)).ops) == 1


def test_a_loop_writes_over_what_ends_and_a_product_needs_some_operands_copied() -> None:
    b = Builder()
    x = b.input("x", f"[{N}]", on(0))
    dot, add = rd.nest("i,i->i", (N,), fn=np.multiply, name="other", flops=10), ADD
    a = b.compute(rd.nest("i->i", (N,), fn=np.exp, name="exp", flops=10, whole={"i"}), x, names=["a"])
    c = b.compute(dot, a, a, names=["c"])
    program = b.build(b.compute(add, c, a, names=["e"]))
    assert compiled_peak_bytes(program)[0] <= 3 * 4 * N
    sizes = {"b": 2, "h": 3, "s": 4, "t": 4, "d": 8}
    b = Builder()
    q, k = (b.input(name, "[2, 4, 3, 8]", on(0)) for name in "qk")
    scores = b.compute(rd.nest("bshd,bthd->bhst", sizes, name="scores"), q, k, names=["s"])
    ops = fused(b.build(scores)).ops
    computed = [op for op in ops if isinstance(op, Compute)]
    assert [op.name for op in computed] == [COPY, COPY, "scores"]
    assert [op.flops for op in computed] == [0, 0, 2 * 2 * 3 * 4 * 4 * 8]  # a copy computes nothing
