"""Communication of the thesis: what moves between root, operations and root (chapters 4, 5 and 8)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest

import redistrib as rd
from redistrib.errors import NoCombinerError, ProgramError
from redistrib.lang.types import DistType
from redistrib.programs.ir.live import changes
from redistrib.programs.ir.nest import Access, Nest
from redistrib.programs.ir.program import Compute, Program, Value
from redistrib.programs.ir.reference import run_by_rank, run_whole
from redistrib.programs.schedule.root import ROOT
from tests.messages import exactly
from tests.programs.ir.root_calls import gather_calls, scatter_calls

PAIR = [
    rd.nest("ij->ij", (8, 8), name="first", reads=["x"], writes="y", fn=lambda x: 3 * x),
    rd.nest("ij->ij", (8, 8), name="second", reads=["y"], writes="z", fn=lambda x: x + 1),
]
X = np.arange(64).reshape(8, 8)


def most(program: Program, k: int = 0) -> int:
    """Elements that the busiest device receives in one move."""
    return max(program.received(program.moves[k]).values())


def everywhere(program: Program, k: int) -> int:
    """Elements received in one move."""
    return sum(program.received(program.moves[k]).values())


def computes(program: Program) -> list[Compute]:
    return [op for op in program.ops if isinstance(op, Compute)]


def test_t5_each_side_is_a_distributed_subset_or_the_root() -> None:
    """Definition 4.4.1: source and destination are a type over a grid, or exist only on rank 0."""
    program = rd.partition(PAIR[0], {"first": (2, 2)}, root=True)
    into, back = program.moves
    assert program.values[into.value].place == ROOT == back.out.place
    assert (str(into.out.type), str(program.values[back.value].type)) == ("[4{r0}8, 4{r1}8]",) * 2
    assert program.received(into) == {0: 0, 1: 16, 2: 16, 3: 16}
    assert program.received(back) == {0: 48, 1: 0, 2: 0, 3: 0}
    assert np.array_equal(run_by_rank(program, [X])[0], 3 * X)


def test_t6_two_maps_through_the_root_become_one_move() -> None:
    """Section 4.5: gather and scatter between two maps are one move, and none where the constraints match."""
    unfused = [rd.partition(one, {one.name: grid}, root=True) for one, grid in zip(PAIR, [(4, 1), (1, 4)], strict=True)]
    fused = rd.partition(PAIR, {"first": (4, 1), "second": (1, 4)}, root=True)
    assert sum(len(program.moves) for program in unfused) == 4
    assert len(fused.moves) == 3
    between = sum(unfused[0].received(unfused[0].moves[1]).values()) + sum(
        unfused[1].received(unfused[1].moves[0]).values()
    )
    assert (between, sum(fused.received(fused.moves[1]).values())) == (96, 48)
    matching = rd.partition(PAIR, {"first": (4, 1), "second": (4, 1)}, root=True)
    assert [move.value for move in matching.moves] == ["x", "z"]
    for program in (fused, matching):
        assert np.array_equal(run_by_rank(program, [X])[0], 3 * X + 1)


def test_t6_a_transposed_reader_is_bound_to_the_grid_that_fits() -> None:
    """Grid variables are renamed so that a pair matches, whatever the order of the dimensions."""
    turned = rd.nest("ij->ji", (8, 8), name="second", reads=["y"], writes="z")
    program = rd.partition([PAIR[0], turned], {"first": (2, 4), "second": (2, 4)})
    assert str(program.values["z"].type) == "[2{r1}8, 4{r0}8]"
    assert not program.moves
    across = rd.nest("ji->ij", {"i": 8, "j": 8}, name="second", reads=["y"], writes="z")
    renamed = rd.partition([PAIR[0], across], {"first": (2, 2), "second": (2, 2)})
    assert str(renamed.values["z"].type) == "[4{r1}8, 4{r0}8]"
    assert not renamed.moves


def test_t8_an_opaque_node_is_planned_by_its_proxy() -> None:
    """Section 4.6.1: the pure expansion says what is read; what runs is the opaque kernel."""
    calls = []

    def blas(at: dict[str, range], a: np.ndarray, b: np.ndarray) -> np.ndarray:
        calls.append((a.shape, b.shape))
        return a @ b

    proxy = rd.nest("ij,jk->ik", (8, 4, 8), name="gemm")
    opaque = rd.nest("ij,jk->ik", (8, 4, 8), name="gemm", body=blas)
    plain, called = (rd.partition(one, {"gemm": (2, 1, 2)}) for one in (proxy, opaque))
    assert {v.name: v.type for v in plain.values.values()} == {v.name: v.type for v in called.values.values()}
    a, b = np.arange(32).reshape(8, 4), np.arange(32).reshape(4, 8)
    assert np.array_equal(run_by_rank(called, [a, b])[0], a @ b)
    assert calls == [((4, 4), (4, 4))] * 4


def test_t9_reads_are_over_approximated() -> None:
    """Section 4.7: an access that is not affine reads its array whole, and the program is still right."""
    pick = Nest(
        "pick",
        {"i": 8},
        [Access("table", ((),), (16,)), Access("where", (("i",),))],
        [Access("out", (("i",),))],
        body=lambda at, table, where: table[where],
    )
    program = rd.partition(pick, {"pick": (4,)}, inputs={"table": "[4{r0}16]"})
    assert [str(value.type) for value in program.inputs] == ["[4{r0}16]", "[2{r0}8]"]
    assert [str(move.out.type) for move in program.moves] == ["[16]"]
    table, where = np.arange(16) ** 2, np.array([3, 1, 4, 1, 5, 9, 2, 6])
    assert np.array_equal(run_by_rank(program, [table, where])[0], table[where])


def test_t10_monte_carlo_all_reduces_one_element() -> None:
    """Section 3.2: samples are no dimension of any array, and are cut all the same."""

    def inside(at: dict[str, range]) -> int:
        n = np.array(at["s"], dtype=np.int64)
        x, y = (n * 7919) % 1009, (n * 104729) % 1013
        return np.sum(x * x + y * y < 1009**2)

    made = Nest("sample", {"s": 4096}, [], [Access("hits", ())], combine={"s": "sum"}, indexed={"s"}, body=inside)
    program = rd.partition(made, {"sample": (8,)})
    (move,) = program.moves
    assert (str(program.values[move.value].type), str(move.out.type)) == ("[] sum{r0}", "[]")
    assert move.out.type.local_size == 1
    assert sum(program.received(move).values()) == 14  # 8 summands to 8 devices: 7 messages in, 7 out
    assert run_by_rank(program, [])[0] == run_whole(program, [])[0] == inside({"s": range(4096)})


def test_t14_at_most_two_calls_from_and_to_the_root() -> None:
    """Section 5.1.2: Scatterv and Bcast, Reduce and Gatherv, each at most once, for every grid of a product."""
    seen = set()
    for grid in itertools.product((1, 2), repeat=3):
        program = rd.partition(rd.nest("ij,jk->ik", (4, 4, 4)), {"matmul": grid}, root=True)
        for value in program.values.values():
            if value.place == ROOT:
                continue
            calls = scatter_calls(value) if value.name.startswith(("a", "b")) else gather_calls(value)
            assert len(calls) <= 2
            seen.add(calls)
    assert seen == {
        ("Scatterv",),
        ("Bcast",),
        ("Scatterv", "Bcast"),
        ("Reduce",),
        ("Gatherv",),
        ("Reduce", "Gatherv"),
    }


SIZES = (4096, 4096, 4096)  # section 8.1.1: M, K, N


def product(grid: dict[str, int], **options: object) -> Program:
    return rd.partition(rd.nest("ij,jk->ik", SIZES), {"matmul": grid}, **options)


def test_t17_replicated() -> None:
    """(1, 1, 1): only rank zero takes part; a copy."""
    program = product({}, root=True)
    assert program.devices == (0,)
    assert not program.moves


def test_t17_data_parallel() -> None:
    """(n, 1, 1): a by rows, b whole, nothing moves; from the root Scatterv and Gatherv for a and the output."""
    program = product({"i": 8})
    assert [str(value.type) for value in program.inputs] == ["[512{r0}4096, 4096]", "[4096, 4096]"]
    assert not program.moves
    a, b = program.inputs
    assert (scatter_calls(a), scatter_calls(b), gather_calls(program.values["out"])) == (
        ("Scatterv",),
        ("Bcast",),
        ("Gatherv",),
    )


def test_t17_reduction_parallel() -> None:
    """(1, n, 1): a by columns, b by rows, every process makes a full output, and these are reduced."""
    program = product({"j": 8})
    assert [str(value.type) for value in program.inputs] == ["[4096, 512{r1}4096]", "[512{r1}4096, 4096]"]
    assert str(program.values["out"].type) == "[4096, 4096] sum{r1}"
    assert most(program) == 29_360_128
    assert gather_calls(program.values["out"]) == ("Reduce",)
    scattered = product({"j": 8}, outputs={"out": "[512{r1}4096, 4096]"})
    assert most(scattered) == 14_680_064


def test_t17_hybrid() -> None:
    """(n^1/3, n^1/3, n^1/3): inputs fully cut, the output reduced, then gathered."""
    program = product({"i": 2, "j": 2, "k": 2})
    assert str(program.values["out"].type) == "[2048{r0}4096, 2048{r2}4096] sum{r1}"
    assert most(program) == 2048 * 2048
    assert gather_calls(program.values["out"]) == ("Reduce", "Gatherv")


@pytest.mark.parametrize("grid", [g for g in itertools.product((1, 2, 4), repeat=3) if math.prod(g) <= 8])
def test_t17_values(grid: Sequence[int]) -> None:
    a, b = np.arange(32).reshape(4, 8), np.arange(32).reshape(8, 4) - 7
    program = rd.partition(rd.nest("ij,jk->ik", (4, 8, 4)), {"matmul": grid})
    assert np.array_equal(run_by_rank(program, [a, b])[0], a @ b)
    assert np.array_equal(run_whole(program, [a, b])[0], a @ b)
    from_root = rd.partition(rd.nest("ij,jk->ik", (4, 8, 4)), {"matmul": grid}, root=True)
    assert np.array_equal(run_by_rank(from_root, [a, b])[0], a @ b)


def test_t24_the_cost_of_data_movement() -> None:
    """Section 9.1: go over the edges and add up what moves."""
    program = rd.partition(PAIR, {"first": (4, 1), "second": (1, 4)}, dtype="int64")
    assert program.received(program.moves[0]) == dict.fromkeys(range(4), 12)  # 3 of 4 shares of 16 elements / 4
    assert program.received_bytes == 4 * 12 * 8
    assert [op.flops for op in computes(program)] == [0, 0]
    gemm = rd.partition(rd.nest("ij,jk->ik", (8, 8, 8)), {"matmul": (2, 2, 1)})
    assert computes(gemm)[0].flops == 2 * 8**3 // 4


@pytest.mark.parametrize(("combine", "expected"), [("max", X.max(1)), ("min", X.min(1)), ("sum", X.sum(1))])
def test_t30_conflicts_are_resolved_by_more_than_sums(combine: str, expected: np.ndarray) -> None:
    """Section 4.6, Figure 4.3: the write conflict resolution is whatever the nest says."""
    made = rd.nest("ij->i", (8, 8), name="reduce", combine=combine)
    program = rd.partition(made, {"reduce": (2, 4)})
    assert str(program.values["out"].type) == f"[4{{r0}}8] {combine}{{r1}}"
    assert np.array_equal(run_by_rank(program, [X])[0], expected)


def test_t30_a_conflict_that_nothing_resolves() -> None:
    made = rd.nest("ij->i", (8, 8), name="last", combine=None, fn=lambda a: a)
    with pytest.raises(
        NoCombinerError,
        match=exactly(
            "operation 'last', array 'out': iteration dimension 'j' is cut over r1 and not "
            "written, and nothing says how its results combine; leave it whole, or give "
            "combine={'j': 'sum'}"
        ),
    ):
        rd.partition(made, {"last": (1, 2)})


def test_one_array_read_twice_is_two_copies_where_it_must_be() -> None:
    gram = rd.nest("ik,jk->ij", (8, 8, 8), name="gram", reads=["x", "x"])
    for grid, moves in [((1, 4, 1), 0), ((4, 1, 1), 1), ((2, 1, 2), 1)]:
        program = rd.partition(gram, {"gram": grid}, outputs={"out": None})
        copies = {name for name, value in program.values.items() if name.startswith("x")}
        assert len(copies) == 1 + moves
        assert np.array_equal(run_by_rank(program, [X])[0], X @ X.T)
        assert np.array_equal(run_whole(program, [X])[0], X @ X.T)


def test_nothing_to_do() -> None:
    assert run_by_rank(rd.partition([], {}), []) == []


def test_an_array_has_one_shape() -> None:
    reader = rd.nest("ij->i", (8, 4), name="reader", reads=["y"])
    with pytest.raises(
        ProgramError,
        match=exactly("operation 'reader', array 'y': the array has shape (8, 4) here and (8, 8) in operation 'first'"),
    ):
        rd.partition([PAIR[0], reader], {"first": (2, 1), "reader": (2, 1)})


def mlp(grids: Sequence[Sequence[int]], ranks: int) -> Program:
    nests = [
        rd.nest("ij,jk->ik", (12, 12, 12), name="up", reads=["x", "w"], writes="h"),
        rd.nest("ik->ki", (12, 12), name="act", reads=["h"], writes="g", fn=lambda h: h * (h > 0)),
        rd.nest("ki,kl->il", (12, 12, 12), name="down", reads=["g", "v"], writes="y"),
    ]
    return rd.partition(nests, dict(zip(["up", "act", "down"], grids, strict=True)), ranks=ranks)


@pytest.mark.parametrize("ranks", [4, 6])
def test_chains_of_any_grids_compute_what_numpy_does(ranks: int) -> None:
    """Three operations, grids at random: cut, reduced, transposed, moved, and always the same integers."""
    rng = np.random.default_rng(ranks)
    x, w, v = rng.integers(-9, 9, (3, 12, 12))
    expected = np.maximum(x @ w, 0) @ v
    three = [grid for grid in itertools.product(range(1, ranks + 1), repeat=3) if ranks % math.prod(grid) == 0]
    two = [grid for grid in itertools.product(range(1, ranks + 1), repeat=2) if ranks % math.prod(grid) == 0]
    assert (len(three), len(two)) == ((10, 6) if ranks == 4 else (16, 9))
    for _ in range(12):
        grids = [three[rng.integers(len(three))], two[rng.integers(len(two))], three[rng.integers(len(three))]]
        program = mlp(grids, ranks)
        assert np.array_equal(run_by_rank(program, [x, w, v])[0], expected), grids
        assert np.array_equal(run_whole(program, [x, w, v])[0], expected)


def test_one_move_serves_all_readers() -> None:
    readers = [
        rd.nest("ij->ij", (8, 8), name=f"reader {k}", reads=["y"], writes=f"z{k}", fn=lambda x: x + 1) for k in range(3)
    ]
    program = rd.partition([PAIR[0], *readers], {"first": (4, 1), **{one.name: (1, 4) for one in readers}})
    assert [move.value for move in program.moves] == ["y"]


def test_values_end_with_their_last_reader() -> None:
    program = rd.partition(PAIR, {"first": (4, 1), "second": (1, 4)})
    assert [[value.name for value in change.died] for change in changes(program)] == [[], ["y"], ["y.1"]]


def test_outputs_of_a_type_of_ones_own() -> None:
    program = rd.partition(PAIR, {"first": (4, 1), "second": (4, 1)}, outputs={"y": None, "z": "[8, 2{r0}8]"})
    assert [str(program.values[name].type) for name in program.outputs] == ["[2{r0}8, 8]", "[8, 2{r0}8]"]
    y, z = run_by_rank(program, [X])
    assert np.array_equal(y, 3 * X) and np.array_equal(z, 3 * X + 1)
    with pytest.raises(ProgramError, match=exactly("array 'w': there is no such array; there are x, y, z")):
        rd.partition(PAIR, {"first": (4, 1), "second": (4, 1)}, outputs=["w"])


def test_values_mean_what_their_devices_hold() -> None:
    """Names of axes do not count, nor which summand has which number; whose sum it is does."""
    place = rd.partition(PAIR, {"first": (2, 2), "second": (2, 2)}).inputs[0].place
    whole = Value("a", DistType.of("[4{r0}8]"), place)
    one, other = (Value("s", DistType.of(f"[8] sum{{{axis}}}"), place) for axis in ("r0", "r1"))
    assert one.means(one) and not one.means(other)
    assert not one.means(Value("s", DistType.of("[8] max{r0}"), place))
    assert whole.means(Value("b", DistType.of("[4{r0}8]"), place, "int8"))
    assert not whole.means(Value("b", DistType.of("[4{r1}8]"), place))
    assert not whole.means(Value("b", DistType.of("[8]"), place))
