"""What compilers fuse is not stored, and so not counted."""

from __future__ import annotations

from typing import Any

import numpy as np

import redistrib as rd
from redistrib.programs.builder import Builder
from redistrib.programs.fused import compiled_peak_bytes, fused
from redistrib.programs.live import peak_bytes
from redistrib.programs.ops import reshaping
from redistrib.programs.program import Compute, Program
from tests.simulate.mlp import on

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


def test_what_two_read_is_stored_and_so_is_what_goes_out() -> None:
    def build(b: Builder, x: Any) -> list[Any]:
        a = b.compute(TWICE, x, names=["a"])
        c, d = b.compute(TWICE, a, names=["c"]), b.compute(ADD, a, x, names=["d"])
        return [c, b.compute(ADD, c, d, names=["e"])]

    made("a", "c", "e")(build)  # of d nothing is stored


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
