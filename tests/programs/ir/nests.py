"""Nests that together use every rule, with what NumPy computes for them, and programs of one operation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.programs.ir.cuts import cut_of
from redistrib.programs.ir.nest import Access, Nest
from redistrib.programs.ir.program import Compute, Place, Program, Value
from redistrib.programs.ir.pullback import ScheduledNest
from redistrib.programs.ir.spec import nest
from redistrib.theory.placement import placement_of

MESHES = [Mesh.of(text) for text in ("x=4", "x=2,y=2", "x=2,y=3")]


def cuts(nest: Nest, mesh: Mesh) -> Iterator[DistType]:
    """All cuts of an iteration space in which each axis cuts one dimension or none, in the order of the mesh.

    Cuts that do not divide, or that cut what may not be cut, are left out.
    """
    for choice in product((None, *nest.position), repeat=len(mesh.axes)):
        by_name: dict[str, list[str]] = {name: [] for name in nest.position}
        for axis, name in zip(mesh.names, choice, strict=True):
            if name is not None:
                by_name[name].insert(0, axis)  # the last axis of a mesh varies fastest, and is the most minor
        cut = cut_of(nest, by_name, mesh)
        if cut is not None:
            yield cut


class Case(NamedTuple):
    nest: Nest
    numpy: Callable[..., Any]


def _gather() -> Nest:
    return Nest(
        "gather",
        {"i": 12, "k": 12},
        [Access("table", ((), ("k",)), (5,)), Access("pick", (("i",),))],
        [Access("out", (("i",), ("k",)))],
        body=lambda at, table, pick: table[pick % 5],
    )


def _scatter_add() -> Nest:
    reads = [Access("value", (("i",), ("k",))), Access("pick", (("i",),))]
    writes = [Access("out", ((), ("k",)), (5,))]
    return Nest(
        "scatter-add",
        {"i": 12, "k": 12},
        reads,
        writes,
        combine={"i": "sum"},
        linear=[(0,)],
        body=lambda at, value, pick: _scattered(value, pick),
    )


def _scattered(value: Any, pick: Any) -> Any:
    out = np.zeros((5, value.shape[1]), dtype=value.dtype)
    np.add.at(out, pick % 5, value)
    return out


def _iota() -> Nest:
    writes = [Access("out", (("i",), ("k",)))]
    body = lambda at: np.add.outer(100 * np.array(at["i"]), np.array(at["k"]))  # noqa: E731
    return Nest("iota", {"i": range(5, 29, 2), "k": 12}, [], writes, indexed={"i", "k"}, body=body)


def _two_results() -> Nest:
    reads = [Access("a", (("i",), ("k",)))]
    writes = [Access("total", (("i",),)), Access("turned", (("k",), ("i",)))]
    return Nest("two", {"i": 12, "k": 12}, reads, writes, whole={"k"}, body=lambda at, a: (a.sum(1), a.T))


def _windows() -> Nest:
    reads = [Access("x", (("i",), ("k",)), windows=(3, 1)), Access("p", (("k",),), windows=(2,))]
    return Nest("windows", {"i": 12, "k": 12}, reads, [Access("out", (("i",), ("k",)))], body=_lengths)


def _lengths(at: Any, x: Any, p: Any) -> Any:
    return (x[2:] - 2 * x[1:-1] + x[:-2]) * (p[1:] - p[:-1])


def _replicated() -> Nest:
    """A result that is cut, one that every part makes the same, and one that is summed."""
    reads = [Access("a", (("i",), ("j",))), Access("count", ())]
    writes = [Access("scaled", (("i",), ("j",))), Access("next", ()), Access("total", (("j",),))]
    return Nest("replicated", {"i": 12, "j": 12}, reads, writes, {"i": "sum"}, body=_counted, replicated=frozenset({1}))


def _counted(at: Any, a: Any, count: Any) -> Any:
    return a * count, count + 1, a.sum(0)


CASES = [
    Case(nest("ij,jk->ik", (12, 12, 12)), lambda a, b: a @ b),
    Case(nest("ij,j->ji", (12, 12), fn=np.add, name="add"), lambda a, b: (a + b).T),
    Case(nest("ij,ij->ij", (12, 12), fn=np.subtract, name="subtract", linear=[(0, 1)]), np.subtract),
    Case(nest("ij->i", (12, 12)), lambda a: a.sum(1)),
    Case(nest("ij->j", (12, 12), combine="max"), lambda a: a.max(0)),
    Case(nest("ij->", (12, 12), combine="min"), lambda a: a.min()),
    Case(nest("ij->i", (12, 12), fn=lambda a: a % 5 == 0, combine="or"), lambda a: (a % 5 == 0).any(1)),
    Case(nest("ij->j", (12, 12), fn=lambda a: a % 144 > 11, combine="and"), lambda a: (a % 144 > 11).all(0)),
    Case(nest("ij,j->i", (12, 12), fn=lambda a, b: (a % 3) * b, combine="any"), lambda a, b: ((a % 3) * b).any(1)),
    Case(nest("ijk->i(jk)", {"i": 12, "j": 2, "k": 12}), lambda a: a.reshape(12, 24)),
    Case(nest("(jk)i->kij", {"i": 12, "j": 2, "k": 12}), lambda a: a.reshape(2, 12, 12).transpose(1, 2, 0)),
    Case(nest("(ij)k->ik", {"i": 4, "j": 6, "k": 2}), lambda a: a.reshape(4, 6, 2).sum(1)),
    Case(_gather(), lambda table, pick: table[pick % 5]),
    Case(_scatter_add(), _scattered),
    Case(_iota(), lambda: np.add.outer(100 * np.arange(5, 29, 2), np.arange(12))),
    Case(_two_results(), lambda a: (a.sum(1), a.T)),
    Case(_replicated(), lambda a, count: (a * count, count + 1, a.sum(0))),
    Case(_windows(), lambda x, p: np.diff(x, 2, axis=0) * np.diff(p)),
]


def arrays_for(one: Nest) -> list[np.ndarray]:
    """Integers that differ, for every read."""
    rng = np.random.default_rng(len(one.name))
    return [rng.integers(-50, 50, one.shape(access)) for access in one.reads]


def program_of(part: ScheduledNest, mesh: Mesh) -> Program:
    """One operation whose inputs are as it needs them."""
    place, signature = Place(mesh), part.signature(mesh)
    reads, writes = part.nest.reads, part.nest.writes
    inputs = [
        Value(access.array, form, place, "int64", access.windows)
        for access, form in zip(reads, signature.ins, strict=True)
    ]
    outputs = [Value(access.array, form, place, "int64") for access, form in zip(writes, signature.outs, strict=True)]
    op = Compute(
        part.nest.name,
        (part,),
        place,
        tuple((value.name, value.name) for value in inputs),
        tuple((value.name, value) for value in outputs),
    )
    return Program(tuple(inputs), (op,), tuple(value.name for value in outputs))


def touched(one: Nest, access: Access, cut: DistType, mesh: Mesh, device: int) -> list[set[int]]:
    """The indices that a device's points touch in each dimension of an array, point by point."""
    placement = placement_of(cut, mesh)
    starts = placement.start[device].tolist()
    mine = {k: range(s, s + t) for k, s, t in zip(one.position, starts, placement.tile, strict=True)}
    extents = iter(access.extents)
    result = []
    for dim, window in zip(access.dims, access.windows or (1,) * len(access.dims), strict=True):
        if not dim:
            result.append(set(range(next(extents))))
            continue
        indices = {0}
        for name in dim:
            indices = {index * one.size(name) + k for index in indices for k in mine[name]}
        result.append({index + further for index in indices for further in range(window)})
    return result
