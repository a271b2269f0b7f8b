"""Schedules of the thesis (chapters 3 to 5): grids, tiles of iteration spaces, and the arrays they ask for."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

import redistrib as rd
from redistrib.errors import CutError, TypeFormError
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.plans.reference import scatter
from redistrib.programs.ir.cuts import mesh_of
from redistrib.programs.ir.nest import Access, Nest
from redistrib.programs.ir.pullback import ScheduledNest
from redistrib.programs.ir.reference import run_by_rank, run_whole
from redistrib.theory.placement import placement_of
from tests.messages import exactly
from tests.programs.ir.nests import cuts

# Figure 4.1: x[4, 8, 16] + y[8, 16]
ADD = rd.nest("ijk,jk->ijk", (4, 8, 16), name="ADD_MAP", reads="xy", fn=np.add)


@pytest.mark.parametrize(("grid", "processors"), [((2, 2, 2), 8), ((2, 2, 1), 4), ((1, 1, 1), 1)])
def test_t1_complete_schedules(grid: tuple[int, ...], processors: int) -> None:
    """Section 4.1: {ADD_MAP: (2, 2, 2)} on 8 processors, (2, 2, 1) on 4, the sequential (1, 1, 1) on 1."""
    assert len(rd.partition(ADD, {"ADD_MAP": grid}).devices) == processors


@pytest.mark.parametrize(
    ("grids", "message"),
    [
        (
            {},
            (
                "operation 'ADD_MAP': the schedule is incomplete: it has no operation and lacks this one; "
                "give it a grid of rank 3"
            ),
        ),
        (
            {"ADD_MAP": (2, 2)},
            (
                "operation 'ADD_MAP': the grid (2, 2) is of rank 2 and the iteration space (i, j, k) of "
                "rank 3; give one number for each dimension"
            ),
        ),
        (
            {"ADD_MAP": (2, 2, 1, 1)},
            (
                "operation 'ADD_MAP': the grid (2, 2, 1, 1) is of rank 4 and the iteration space (i, j, k) "
                "of rank 3; give one number for each dimension"
            ),
        ),
        (
            {"ADD_MAP": {"z": 2}},
            ("operation 'ADD_MAP': the grid {'z': 2} names 'z', and the iteration dimensions are i, j, k"),
        ),
        (
            {"ADD_MAP": (2, 2, 1), "MUL_MAP": (2,)},
            "operation 'MUL_MAP': there is no such operation; there are ADD_MAP",
        ),
        (
            {"ADD_MAP": (0, 1, 1)},
            ("operation 'ADD_MAP': the grid (0, 1, 1) is not made of integers from 1 on; 1 leaves a dimension whole"),
        ),
        (
            {"ADD_MAP": (2.0, 1, 1)},
            ("operation 'ADD_MAP': the grid (2.0, 1, 1) is not made of integers from 1 on; 1 leaves a dimension whole"),
        ),
        (
            {"ADD_MAP": 4},
            (
                "operation 'ADD_MAP': the grid (4,) is of rank 1 and the iteration space (i, j, k) of rank "
                "3; give one number for each dimension"
            ),
        ),
    ],
)
def test_t1_incomplete_schedules_and_wrong_ranks(grids: dict[str, tuple[int, ...]], message: str) -> None:
    with pytest.raises(CutError, match=exactly(message)) as caught:
        rd.partition(ADD, grids)
    assert caught.value.rule == "Schedule"


def test_t2_rank_tiling_is_a_bijection() -> None:
    """Section 4.2: point (3, 2, 12) on grid (2, 2, 1) is point (1, 2, 12) of rank (1, 0, 0)."""
    program = rd.partition(ADD, {"ADD_MAP": (2, 2, 1)})
    (op,) = program.ops
    mesh = op.place.mesh
    placement = placement_of(op.parts[0].cut, mesh)
    assert placement.tile == (2, 4, 16)
    owner: dict[tuple[int, ...], tuple[tuple[int, ...], tuple[int, ...]]] = {}
    for device, start in enumerate(placement.start.tolist()):
        for local in np.ndindex(placement.tile):
            point = tuple(a + b for a, b in zip(start, local, strict=True))
            assert point not in owner
            owner[point] = (tuple(mesh.coordinates[device].tolist()), local)
    assert len(owner) == ADD.points
    assert owner[3, 2, 12] == ((1, 0), (1, 2, 12))  # the third coordinate, of a grid dimension of 1, has no axis


def test_t3_steps_other_than_one() -> None:
    """Footnote 1 of chapter 4: a range with a step is its points; each device has a range of its own."""
    over = range(3, 35, 4)
    made = Nest(
        "squares", {"i": over}, [], [Access("out", (("i",),))], indexed={"i"}, body=lambda at: [n * n for n in at["i"]]
    )
    program = rd.partition(made, {"squares": (4,)})
    expected = [n * n for n in over]
    assert run_by_rank(program, [])[0].tolist() == run_whole(program, [])[0].tolist() == expected


PADDED = [  # specs, sizes, grid, and keywords of a nest
    ("ij,jk->ik", (5, 7, 3), (2, 2, 2), {}),
    ("ij,jk->ik", (5, 7, 3), (1, 8, 1), {}),  # more ranks than points: the last one has none
    ("ij->i", (3, 10), (4, 4), {"combine": "max"}),
    ("ij->", (3, 10), (2, 3), {"combine": "min"}),
    ("i->i", (5,), (8,), {"fn": lambda x: x * x}),
    ("(ij)k->ki", (3, 4, 5), (3, 1, 2), {}),
]


@pytest.mark.parametrize(("spec", "sizes", "grid", "keywords"), PADDED)
def test_t3_sizes_that_do_not_divide_and_grids_larger_than_the_range(
    spec: str, sizes: tuple[int, ...], grid: tuple[int, ...], keywords: dict[str, Any]
) -> None:
    """Footnote 1 of chapter 4: every point is worked on once, whatever stands in the padding of the last tiles."""
    made = rd.nest(spec, sizes, name="map", **keywords)
    rng = np.random.default_rng(3)
    arrays = [rng.integers(-9, 9, made.shape(access)) for access in made.reads]
    expected = made.body(dict(made.ranges), *arrays)
    program = rd.partition(made, {"map": grid})
    assert [value.array_shape for value in program.inputs] == [array.shape for array in arrays]
    padded = []
    for array, value in zip(arrays, program.inputs, strict=True):
        more = [(0, n - m) for n, m in zip(value.type.global_shape, array.shape, strict=True)]
        padded.append(np.pad(array, more, constant_values=77))
    for run in (run_whole, run_by_rank):
        for inputs in (arrays, padded):
            (result,) = run(program, inputs)
            assert np.array_equal(result, expected)


def test_t3_one_size_for_all_that_touch_an_array() -> None:
    """One grid lengthens an array, and with it what the other nest iterates over, reads whole and stands at."""
    first = Nest(
        "first",
        {"i": range(1, 20, 2)},
        [],
        [Access("y", (("i",),))],
        indexed={"i"},
        body=lambda at: np.array(at["i"]),
    )
    second = rd.nest("i->i", (10,), name="second", reads=["y"], writes="z", fn=lambda y: 2 * y)
    total = Nest(
        "total",
        {"k": 5},
        [Access("z", ((),), (10,))],
        [Access("t", (("k",),))],
        indexed={"k"},
        body=lambda at, z: np.array([z[k] + z.sum() for k in at["k"]]),
    )
    grids = {"first": (4,), "second": (3,), "total": (2,)}
    program = rd.partition([first, second, total], grids, outputs=["y", "z", "t"])
    y = np.arange(1, 20, 2)
    for run in (run_whole, run_by_rank):
        results = [array.tolist() for array in run(program, [])]
        assert results == [y.tolist(), (2 * y).tolist(), [2 * y[k] + 200 for k in range(5)]]
    assert [str(program.values[name].form) for name in program.outputs] == [
        "[3{r00,r01}10+2]",
        "[4{r0}10+2]",
        "[3{r01}5+1]",
    ]


def test_t3_of_the_factors_of_a_dimension_the_first_may_have_points_left_over() -> None:
    split = rd.nest("(ij)->ij", (3, 4), name="split")
    program = rd.partition(split, {"split": (2, 1)})
    array = np.arange(12)
    assert [value.form for value in program.values.values()] == ["[8{r0}12+4]", "[2{r0}3+1, 4]"]
    for run in (run_whole, run_by_rank):
        assert np.array_equal(run(program, [array])[0], array.reshape(3, 4))
    with pytest.raises(
        CutError,
        match=exactly(
            "operation 'split', array 'a': i, j make one dimension, of which the grid may leave points over along the "
            "first alone; take grids that divide the others"
        ),
    ):
        rd.partition(split, {"split": (1, 3)})


def symbolic(form: DistType, mesh: Mesh) -> str:
    """A type as the thesis prints constraints: `2*r0:2*r0 + 2`."""
    parts = []
    for dim in form.dims:
        if not dim.axes:
            parts.append(f"0:{dim.size}")
            continue
        (axis,) = dim.axes
        first = f"{dim.tile}*{axis}"
        parts.append(f"{first}:{first} + {dim.tile}")
    return f"[{', '.join(parts)}]"


def test_t4_symbolic_constraints() -> None:
    """Figure 4.2: what ADD_MAP on (2, 2, 1) reads and writes."""
    program = rd.partition(ADD, {"ADD_MAP": (2, 2, 1)})
    mesh = program.inputs[0].place.mesh
    assert {value.name: symbolic(value.type, mesh) for value in program.values.values()} == {
        "x": "[2*r0:2*r0 + 2, 4*r1:4*r1 + 4, 0:16]",
        "y": "[4*r1:4*r1 + 4, 0:16]",
        "out": "[2*r0:2*r0 + 2, 4*r1:4*r1 + 4, 0:16]",
    }


X = np.arange(16).reshape(4, 4)
# Section 5.1, on processes p00, p01, p10, p11
GRID_MAPPED = [
    ("[REPLICATE:0, REPLICATE:1]", "[4, 4]", [X, X, X, X]),
    ("[PARTITION:0, REPLICATE:1]", "[2{r0}4, 4]", [X[0:2], X[0:2], X[2:4], X[2:4]]),
    ("[PARTITION:1, REPLICATE:0]", "[4, 2{r0}4]", [X[:, 0:2], X[:, 0:2], X[:, 2:4], X[:, 2:4]]),
    ("[PARTITION:1, PARTITION:0]", "[2{r1}4, 2{r0}4]", [X[0:2, 0:2], X[2:4, 0:2], X[0:2, 2:4], X[2:4, 2:4]]),
    ("[PARTITION:0, BROADCAST]", "[2{r0}4]", [X[0, 0:2], X[0, 0:2], X[0, 2:4], X[0, 2:4]]),
]


@pytest.mark.parametrize(("mapping", "form", "tiles"), GRID_MAPPED, ids=[row[0] for row in GRID_MAPPED])
def test_t11_grid_mapped_arrays(mapping: str, form: str, tiles: list[np.ndarray]) -> None:
    """Axis i of the grid has PARTITION:j where axis `ri` cuts dimension j, and replicates where it cuts none."""
    mesh, made = mesh_of((2, 2), 4), DistType.of(form)
    for i, entry in enumerate(mapping.strip("[]").split(", ")):
        cut = [j for j, dim in enumerate(made.dims) if f"r{i}" in dim.axes]
        assert cut == ([int(entry[-1])] if entry.startswith("PARTITION") else [])
    array = X if made.rank == 2 else X[0]
    assert all(np.array_equal(a, b) for a, b in zip(scatter(array, placement_of(made, mesh)), tiles, strict=True))


@pytest.mark.parametrize(
    ("access", "form"),
    [
        (Access("A", (("i",), ("j",))), "[2{r0}4, 3{r1}6]"),  # A[i, j]: PARTITION:0, PARTITION:1
        (Access("A", (("j",), ("i",))), "[3{r1}6, 2{r0}4]"),  # A[j, i]: PARTITION:1, PARTITION:0
        (Access("B", (("i",),)), "[2{r0}4]"),  # B[i]: PARTITION:0, BROADCAST
        (Access("B", (("j",),)), "[3{r1}6]"),  # B[j]: BROADCAST, PARTITION:0
        (Access("A", (("i",), ()), (6,)), "[2{r0}4, 6]"),  # A[i, :]: PARTITION:0, REPLICATE:1
    ],
)
def test_t12_access_patterns(access: Access, form: str) -> None:
    """Section 5.1.1, in a map over i and j on a grid of (2, 2)."""
    made = Nest("map", {"i": 4, "j": 6}, [access], [])
    assert str(ScheduledNest(made, DistType.of("[2{r0}4, 3{r1}6]")).signature(mesh_of((2, 2), 4)).ins[0]) == form


def test_t13_a_block_must_be_the_dimension_over_the_grid() -> None:
    """Section 5.2: [i * 2 : i * 2 + 2] matches a grid dimension s only if the axis divided by s is 2."""
    DistType.of("[2{r0}8]").check(Mesh.of("r0=4"))
    with pytest.raises(
        TypeFormError, match=exactly("dimension 0 of [2{r0}8]: 2 tiles of 2 make 4 elements, not 8; write 4{r0}8")
    ):
        DistType.of("[2{r0}8]").check(Mesh.of("r0=2"))


def test_t26_grids_smaller_than_the_machine() -> None:
    """A grid that divides the machine has its work repeated; one that does not leaves devices idle."""
    a = rd.nest("ij->ij", (12, 4), name="a", reads=["x"], writes="y", fn=lambda x: x + 1)
    b = rd.nest("ij->ij", (12, 4), name="b", reads=["y"], writes="z", fn=lambda x: x * 2)
    x = np.arange(48).reshape(12, 4)
    repeated = rd.partition([a, b], {"a": (2, 2), "b": (2, 1)}, ranks=8)
    assert [len(op.place.devices) for op in repeated.ops if hasattr(op, "parts")] == [8, 8]
    assert len(repeated.moves) == 1
    idle = rd.partition([a, b], {"a": (4, 1), "b": (3, 1)})
    assert [op.place.devices for op in idle.ops if hasattr(op, "parts")] == [(0, 1, 2, 3), (0, 1, 2)]
    for program in (repeated, idle):
        assert np.array_equal(run_by_rank(program, [x])[0], (x + 1) * 2)
    with pytest.raises(
        CutError,
        match=exactly("operation 'a': its grids take 4 devices and there are 2; take a smaller grid, or ranks=4"),
    ):
        rd.partition([a, b], {"a": (4, 1), "b": (1, 1)}, ranks=2)


def test_t27_one_grid_for_each_map() -> None:
    """Grids of different rank and shape over the same ranks are meshes of one device set."""
    a = rd.nest("ij->ij", (8, 8), name="a", reads=["x"], writes="y", fn=lambda x: x + 1)
    b = rd.nest("ij->j", (8, 8), name="b", reads=["y"], writes="z")
    x = np.arange(64).reshape(8, 8)
    for first, second in [((4, 2), (2, 4)), ((8, 1), (1, 8)), ((2, 4), (8, 1)), ((4, 1), (2, 2))]:
        program = rd.partition([a, b], {"a": first, "b": second})
        assert np.array_equal(run_by_rank(program, [x])[0], (x + 1).sum(0)), (first, second)
    square = rd.partition([a, b], {"a": (8, 1), "b": (2, 4)}).inputs[0].place.mesh
    assert math.prod(square.shape) == 8


def test_t28_the_search_space_is_smaller() -> None:
    """Section 3.2, on attention scores with two axes: 36 cuts of the work, 15,625 triples of types of the arrays."""
    scores = rd.nest("bhik,bhjk->bhij", {"b": 8, "h": 16, "i": 512, "k": 64, "j": 512})
    mesh = Mesh.of("x=2,y=2")
    assert len(list(cuts(scores, mesh))) == 36
    types = [list(itertools.product((None, *range(len(a.dims))), repeat=2)) for a in (*scores.reads, *scores.writes)]
    assert math.prod(map(len, types)) == 15_625
