"""Dtypes, buffers, empty tiles, kept results and reused memory, on 4 ranks; prints what was seen."""

from __future__ import annotations

import array
import gc
import json
from typing import Any

import numpy as np
from mpi4py import MPI

from redistrib.api import synthesize
from redistrib.backends.mpi import to_mpi
from redistrib.backends.mpi.command import pattern_tile

comm = MPI.COMM_WORLD
rank = comm.rank
MESH = "x=2,y=2"
HOWS = ("shared", "packed", "datatypes")
DTYPES = [
    "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64",
    "longdouble", "complex64", "complex128", "clongdouble",
    "bfloat16", "float8_e4m3fn", "float8_e5m2", "int4",
]  # fmt: skip


def same(a: Any, b: Any) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def every_dtype() -> list[str]:
    moved = []
    for dtype in DTYPES:
        plan = synthesize("[2{x}4, 3{y}6, 2]", "[4, 3{x}6, 2]", MESH, dtype=dtype)
        x, want = pattern_tile(plan, plan.before, rank), pattern_tile(plan, plan.after, rank)
        for how in HOWS:
            with to_mpi(plan, comm, transport=how) as execute:
                assert same(execute(x), want), (dtype, how)
        moved.append(dtype)
    return moved


def every_buffer() -> int:
    plan = synthesize("[2{x,y}8, 6]", "[8, 3{y}6]", MESH, dtype="int32")
    x, want = pattern_tile(plan, plan.before, rank), pattern_tile(plan, plan.after, rank)

    class Interface:
        def __init__(self, data: Any) -> None:
            self.data = data
            self.__array_interface__ = data.__array_interface__

    fixed = x.copy()
    fixed.flags.writeable = False
    inputs = [
        memoryview(x), Interface(x), array.array("i", x.reshape(-1).tolist()), np.asfortranarray(x), fixed,
        x.reshape(-1), np.repeat(x, 2, axis=1)[:, ::2],
    ]  # fmt: skip
    for how in HOWS:
        with to_mpi(plan, comm, transport=how) as execute:
            for value in inputs:
                assert same(execute(value), want), (how, type(value))
            for out in (np.zeros_like(want), array.array("i", [0] * want.size), bytearray(want.nbytes)):
                into = np.frombuffer(out, np.int32) if isinstance(out, bytearray) else out
                execute(x, out=into)
                assert bytes(memoryview(out)) == want.tobytes(), (how, type(out))
            assert same(x, pattern_tile(plan, plan.before, rank)), "the source was written"
    return len(inputs)


def empty_tiles() -> None:
    for source, target in (
        ("[0, 2{x}4]", "[0, 2{y}4]"),
        ("[0{x}0, 4]", "[0, 2{x}4]"),
        ("[]", "[]"),
        ("[4]", "[2{x}4]"),
    ):
        plan = synthesize(source, target, MESH, dtype="float32", machine="exact")
        x, want = pattern_tile(plan, plan.before, rank), pattern_tile(plan, plan.after, rank)
        for how in HOWS:
            with to_mpi(plan, comm, transport=how) as execute:
                assert same(execute(x), want), (source, target, how)


def kept_results() -> int:
    plan = synthesize("[4{x,y}16, 8]", "[16, 2{x,y}8]", MESH, dtype="int64")
    x, want = pattern_tile(plan, plan.before, rank), pattern_tile(plan, plan.after, rank)
    execute = to_mpi(plan, comm, transport="shared")
    kept = [execute(x + k) for k in range(4)]
    for k, result in enumerate(kept):
        assert same(result, want + k)
    view = kept[2][1:, :1]
    place = kept[1].ctypes.data
    del kept[1:3], result
    gc.collect()
    again = execute(x + 7)
    assert again.ctypes.data == place, "memory of a dropped result is used again"
    if rank == 0:  # ranks need not drop the same results
        del again
    last = execute(x + 9)
    assert same(last, want + 9)
    if rank:
        assert same(again, want + 7)
    assert same(view, want[1:, :1] + 2), "a view keeps its memory"
    assert same(execute(x + 3, out=last), want + 3)
    assert same(last, want + 3)
    blocks = len(execute._blocks)
    execute.free()
    assert same(last, want + 3), "results outlive the executor"
    assert same(kept[0], want)
    return blocks


def in_chain() -> None:
    there = synthesize("[4{x,y}16, 8]", "[16, 2{x,y}8]", MESH, dtype="int64")
    back = synthesize("[16, 2{x,y}8]", "[4{x,y}16, 8]", MESH, dtype="int64")
    x = pattern_tile(there, there.before, rank)
    forth, home = to_mpi(there, comm), to_mpi(back, comm)
    y = x
    for _ in range(20):
        y = home(forth(y))
    assert same(y, x)


moved = every_dtype()
buffers = every_buffer()
empty_tiles()
blocks = kept_results()
in_chain()
if rank == 0:
    print(json.dumps({"dtypes": moved, "buffers": buffers, "blocks": blocks}))
