"""Reductions made of sends and additions: recognised by what they add up to."""

from __future__ import annotations

import numpy as np

from redistrib.programs.ir.builder import Builder
from redistrib.programs.ir.program import Program, Value
from redistrib.programs.ir.reductions import reductions
from redistrib.programs.ir.spec import nest
from tests.programs.time.mlp import data_parallel, on, pipelined

N = 4
ADD = nest("i,i->i", (8,), name="anything", fn=np.add, linear=[(0, 1)])
LESS = nest("i,i->i", (8,), name="add", fn=np.subtract, linear=[(0, 1)])


def each(b: Builder, name: str = "a") -> list[Value]:
    return [b.input(f"{name}{k}", "[8]", on(k)) for k in range(N)]


def to_one(b: Builder, operation: object = ADD) -> Value:
    values = each(b)
    total = values[0]
    for value in values[1:]:
        total = b.compute(operation, total, b.move(value, place=on(0)))  # type: ignore[arg-type]
    return total


def kinds(program: Program) -> list[tuple[str, tuple[str, ...], tuple[int, ...], int]]:
    return [(one.kind, one.values, one.devices, one.messages) for one in reductions(program)]


ALL = ("a0", "a1", "a2", "a3")


def test_a_sum_on_one_device_is_a_reduce() -> None:
    b = Builder()
    assert kinds(b.build(to_one(b))) == [("reduce", ALL, (0,), 3)]


def test_a_reduce_along_a_tree() -> None:
    b = Builder()
    a = each(b)
    first = b.compute(ADD, a[0], b.move(a[1], place=on(0)))
    second = b.compute(ADD, a[2], b.move(a[3], place=on(2)))
    assert kinds(b.build(b.compute(ADD, first, b.move(second, place=on(0))))) == [("reduce", ALL, (0,), 3)]


def test_a_sum_that_all_have_is_an_all_reduce() -> None:
    b = Builder()
    total = to_one(b)
    ends = [b.move(total, place=on(k)) for k in range(1, N)]
    assert kinds(b.build(total, *ends)) == [("allreduce", ALL, (0, 1, 2, 3), 6)]
    b = Builder()
    total = to_one(b)
    assert kinds(b.build(total, b.move(total, place=on(2)))) == [("sums", ALL, (0, 2), 4)]


def test_a_butterfly_is_an_all_reduce() -> None:
    b = Builder()
    held = each(b)
    for step in (1, 2):
        held = [b.compute(ADD, held[k], b.move(held[k ^ step], place=on(k))) for k in range(N)]
    assert kinds(b.build(*held)) == [("allreduce", ALL, (0, 1, 2, 3), 8)]


def test_a_ring_is_an_all_reduce_of_every_chunk() -> None:
    """2 (N - 1) messages a chunk: N - 1 to add it up, N - 1 to pass the sum on."""
    b = Builder()
    chunks = [each(b, f"c{n}_") for n in range(N)]
    outs = []
    for n, own in enumerate(chunks):
        total = own[n]
        for k in range(1, N):
            at = (n + k) % N
            total = b.compute(ADD, own[at], b.move(total, place=on(at)))
        outs.append(total)
        for k in range(N, 2 * N - 1):
            total = b.move(total, place=on((n + k) % N))
            outs.append(total)
    found = kinds(b.build(*outs))
    assert [(kind, devices, messages) for kind, _, devices, messages in found] == [("allreduce", (0, 1, 2, 3), 6)] * N


def test_what_is_subtracted_is_no_sum_whatever_it_is_called() -> None:
    b = Builder()
    assert kinds(b.build(to_one(b, LESS))) == []


def test_what_is_added_twice_is_no_sum() -> None:
    b = Builder()
    a = b.input("a", "[8]", on(0))
    there = b.move(a, place=on(1))
    assert kinds(b.build(b.compute(ADD, there, b.move(a, place=on(1))))) == []


def test_the_gradients_of_the_figures() -> None:
    """Figure 9 reduces each gradient to its layer's device; plain data parallelism all-reduces both; Figure 2 none."""
    assert [(one.kind, one.devices) for one in reductions(data_parallel(zero=True))] == [
        ("reduce", (0,)),
        ("reduce", (1,)),
    ]
    assert [one.kind for one in reductions(data_parallel())] == ["allreduce"] * 2
    assert reductions(pipelined()) == []
