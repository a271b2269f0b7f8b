"""Programs for 2 to 24 ranks, with their inputs and what NumPy makes of these; integers, so that all is exact."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

import redistrib as rd
from redistrib import ir
from redistrib.lang.mesh import Mesh
from redistrib.programs.ir.builder import Builder
from redistrib.programs.ir.nest import Access, Nest
from redistrib.programs.ir.program import Place, Program


class Case(NamedTuple):
    name: str
    program: Program
    arrays: Sequence[Any]
    expected: Sequence[Any]


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(math.prod(shape)).integers(-9, 9, shape)


def grids(ranks: int, rank: int) -> list[tuple[int, ...]]:
    """Every grid of a number of dimensions that takes all the ranks."""
    return [grid for grid in itertools.product(range(1, ranks + 1), repeat=rank) if math.prod(grid) == ranks]


def products(ranks: int, **options: Any) -> Iterator[Case]:
    a, b = drawn(12, 24), drawn(24, 12)
    for grid in grids(ranks, 3):
        if 12 % grid[0] == 24 % grid[1] == 12 % grid[2] == 0:
            nest = rd.nest("ij,jk->ik", (12, 24, 12))
            program = rd.partition(nest, {"matmul": grid}, dtype="int64", **options)
            yield Case(f"matmul {grid} {options}", program, [a, b], [a @ b])


def chains(ranks: int, **options: Any) -> Iterator[Case]:
    """Two products with a transposed step between them, grids that do not fit one another."""
    x, w, v = drawn(12, 12), drawn(12, 12) + 1, drawn(12, 12) - 1
    three = [grid for grid in grids(ranks, 3) if all(12 % parts == 0 for parts in grid)]
    two = [grid for grid in grids(ranks, 2) if all(12 % parts == 0 for parts in grid)]
    for k, (first, last) in enumerate(zip(three, reversed(three), strict=True)):
        nests = [
            rd.nest("ij,jk->ik", (12, 12, 12), name="up", reads=["x", "w"], writes="h"),
            rd.nest("ik->ki", (12, 12), name="act", reads=["h"], writes="g", fn=lambda h: h * (h > 0)),
            rd.nest("ki,kl->il", (12, 12, 12), name="down", reads=["g", "v"], writes="y"),
        ]
        schedule = {"up": first, "act": two[k % len(two)], "down": last}
        program = rd.partition(nests, schedule, dtype="int64", **options)
        yield Case(f"chain {schedule} {options}", program, [x, w, v], [np.maximum(x @ w, 0) @ v])


def reductions(ranks: int) -> Iterator[Case]:
    x = drawn(12, 12)
    for grid in grids(ranks, 2):
        if all(12 % parts == 0 for parts in grid):
            for kind, make in (("max", np.max), ("min", np.min), ("sum", np.sum)):
                nest = rd.nest("ij->i", (12, 12), name="reduce", combine=kind)
                program = rd.partition(nest, {"reduce": grid}, dtype="int64")
                yield Case(f"{kind} {grid}", program, [x], [make(x, axis=1)])


def blur(array: str, **sizes: int) -> Nest:
    """Sums of windows of 3 x 2 elements."""

    def body(at: Mapping[str, range], x: np.ndarray) -> np.ndarray:
        m, n = len(at["i"]), len(at["j"])
        return sum(x[i : i + m, j : j + n] for i in range(3) for j in range(2))  # type: ignore[return-value]

    reads = [Access(array, (("i",), ("j",)), windows=(3, 2))]
    return Nest("blur", sizes, reads, [Access("y", (("i",), ("j",)))], body=body)


def windows(ranks: int) -> Iterator[Case]:
    """Tiles that overlap, from the root, from the start, and from tiles that do not; see Section 8.1.2."""
    x = drawn(14, 13)
    y = np.array([[x[i : i + 3, j : j + 2].sum() for j in range(12)] for i in range(12)])
    for grid in grids(ranks, 2):
        if all(12 % parts == 0 for parts in grid):
            options: list[dict[str, Any]] = [{"root": True}, {}]
            if grid[0] == 2:
                options.append({"inputs": {"x": "[7{r0}14, 13]"}})
            for option in options:
                program = rd.partition(blur("x", i=12, j=12), {"blur": grid}, dtype="int64", **option)
                yield Case(f"blur {grid} {option}", program, [x], [y])


def between(ranks: int) -> Iterator[Case]:
    """Boxes of unequal size between places of other numbers of devices, in orders of their own."""
    few, all_of = ranks - 1, ranks
    first = Place(Mesh.of({"x": few}), tuple(range(1, ranks)))
    second = Place(Mesh.of({"y": all_of}), tuple(reversed(range(ranks))))
    size = few * all_of
    x = drawn(size, size)
    for to in ("rows", "columns", "windows"):
        b = Builder("irregular")
        given = b.input("x", f"[{size // few}{{x}}{size}, {size}]", first, "int64")
        if to == "windows":
            points = size - all_of
            moved = b.move(given, f"[{points // all_of}{{y}}{points}, {size}]", second, windows=(all_of + 1, 1))
            last = Nest(
                "last",
                {"i": points, "j": size},
                [Access("x", (("i",), ("j",)), windows=(all_of + 1, 1))],
                [Access("out", (("i",), ("j",)))],
                body=lambda at, x: x[-len(at["i"]) :] - x[: len(at["i"])],
            )
            expected = x[all_of:] - x[:-all_of]
            out = b.compute(last, moved, cut={"i": "y"})
        else:
            dims = [f"{size // all_of}{{y}}{size}", str(size)]
            moved = b.move(given, f"[{', '.join(dims if to == 'rows' else dims[::-1])}]", second)
            twice = rd.nest("ij->ij", (size, size), name="twice", fn=lambda x: 2 * x)
            expected = 2 * x
            out = b.compute(twice, moved, cut=str(moved.type))
        yield Case(f"{few} to {all_of} devices, {to}", b.build(out), [x], [expected])


def summands(ranks: int) -> Iterator[Case]:
    """Programs that begin and end with summands: those that MPI reduces, and those that it does not as NumPy does."""
    place, x, parts = Place(Mesh.of({"x": 2, "y": ranks // 2})), drawn(12, 12), ranks // 2
    halves = np.zeros((12, 12))
    halves[:, :: 12 // parts] = [2048, *[1] * (parts - 1)]  # added in float16, each 1 is lost; rounded once at the end
    reductions = (("sum", "int64", np.sum, x), ("max", "float32", np.max, x), ("sum", "float16", np.sum, halves))
    for kind, dtype, make, array in reductions:
        b = Builder(kind)
        given = b.input("x", f"[6{{x}}12, {12 // parts}{{y}}12]", place, dtype)
        nest = rd.nest("ij->i", (12, 12), name="reduce", combine=kind)
        program = b.build(b.compute(nest, given, cut={"i": "x", "j": "y"}))
        yield Case(f"{kind} of {dtype}", program, [array.astype(dtype)], [make(array, axis=1).astype(dtype)])
    b = Builder("twice")
    given = b.input("x", "[6{x}12, 12] sum{y}", place, "int64")
    nest = rd.nest("ij->ij", (12, 12), name="twice", fn=lambda x: 2 * x, linear=[(0,)])
    yield Case("partial sums in and out", b.build(b.compute(nest, given, cut={"i": "x"})), [x], [2 * x])


def pipelines(ranks: int) -> Iterator[Case]:
    """A training step of a transformer in two stages, by orders of the library and by name."""
    from tests.programs.stages.models import transformer

    step = transformer()
    arrays = [np.random.default_rng(k).integers(-1, 2, value.shape) for k, value in enumerate(step.inputs)]
    for layout in (
        rd.Layout(data=ranks // 2, pipeline=2, microbatches=2),
        rd.Layout(tensor=2, pipeline=ranks // 2, microbatches=4, order="gpipe"),
    ):
        made = ir.spread(step, {"x": 0, "y": 0}, layout)
        yield Case(f"stages {layout}", made.program, made.arguments(arrays), ir.run_whole(step, arrays))


def uneven(ranks: int) -> Iterator[Case]:
    """Grids that divide no dimension, some with more parts than points; two nests with different grids."""
    a, b, v = drawn(7, 11), drawn(11, 5), drawn(5, 3)
    for k, grid in enumerate(grids(ranks, 3)):
        options = {"root": True} if k % 2 else {}
        nests = [
            rd.nest("ij,jk->ik", (7, 11, 5), name="up", reads=["a", "b"], writes="h"),
            rd.nest("ik,kl->il", (7, 5, 3), name="down", reads=["h", "v"], writes="y"),
        ]
        schedule = {"up": grid, "down": (grid[2], grid[0], grid[1])}
        program = rd.partition(nests, schedule, dtype="int64", **options)
        yield Case(f"uneven {schedule} {options}", program, [a, b, v], [a @ b @ v])


def every(ranks: int) -> Iterator[Case]:
    yield from summands(ranks)
    for options in ({}, {"root": True}):
        yield from products(ranks, **options)
        yield from chains(ranks, **options)
    yield from reductions(ranks)
    yield from windows(ranks)
    yield from between(ranks)


def spmv(rows: int, columns: int) -> tuple[Nest, list[np.ndarray], Any]:
    """Section 8.1.2: a product of a sparse matrix, in compressed rows, and a vector; whole numbers, so exact."""
    from scipy import sparse

    draw = np.random.default_rng(rows)
    matrix = sparse.csr_array(draw.integers(1, 9, (rows, columns)) * (draw.random((rows, columns)) < 0.3) * 1.0)
    x = draw.integers(-9, 9, columns) * 1.0
    row, col = matrix.indptr.astype(np.uint32), matrix.indices.astype(np.uint32)

    def body(at: Mapping[str, range], row: Any, col: Any, val: Any, x: Any) -> np.ndarray:
        b = np.empty(len(at["i"]))
        for i in range(len(b)):
            b[i] = 0
            for j in range(row[i], row[i + 1]):
                b[i] += val[j] * x[col[j]]
        return b

    reads = [
        Access("A_row", (("i",),), windows=(2,)),
        Access("A_col", ((),), (len(col),)),
        Access("A_val", ((),), (len(col),)),
        Access("x", ((),), (columns,)),
    ]
    nest = Nest("spmv", {"i": rows}, reads, [Access("b", (("i",),))], body=body)
    return nest, [row, col, matrix.data, x], matrix @ x


SPARSE = {"A_row": "uint32", "A_col": "uint32", "A_val": "float64", "x": "float64", "b": "float64"}

# The hybrid scheme of section 8.1.1 on more and more ranks, section 8.2.
LADDER = {4: (1, 2, 2), 8: (2, 2, 2), 24: (2, 3, 4), 128: (4, 4, 8)}
