"""Operations that read several elements at a point: tiles that overlap, what moves for them, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import redistrib as rd
from redistrib.errors import CutError, InconsistentGroupError, ProgramError
from redistrib.lang.mesh import Mesh
from redistrib.programs.ir.builder import Builder
from redistrib.programs.ir.direct import direct_transfers
from redistrib.programs.ir.live import peak_bytes
from redistrib.programs.ir.nest import Access, Nest
from redistrib.programs.ir.parse import parse
from redistrib.programs.ir.program import Move, Place, Program
from redistrib.programs.ir.project import project, run_ranks
from redistrib.programs.ir.reference import collect, distribute, run_by_rank, run_whole
from redistrib.programs.ir.text import bodies_of, to_text
from tests.messages import exactly

X = np.arange(10) ** 2


def lengths(name: str = "lengths", array: str = "p", window: int = 2, **options: Any) -> Nest:
    """Differences of the first and the last element of a window."""

    def body(at: Mapping[str, range], p: np.ndarray) -> np.ndarray:
        return p[window - 1 :] - p[: len(p) - window + 1]

    reads = [Access(array, (("i",),), windows=(window,))]
    return Nest(name, {"i": 11 - window}, reads, [Access("out", (("i",),))], body=body, **options)


def right(program: Program, expected: np.ndarray) -> None:
    """Whole, rank by rank, and by ranks that know nothing but their messages, of which there are as many as counted."""
    tiles = {value.name: distribute(X, value) for value in program.inputs}
    (end,) = program.outputs
    alone = run_ranks(project(program), tiles)[end]
    for found in (run_whole(program, [X]), run_by_rank(program, [X]), [collect(alone, program.values[end])]):
        np.testing.assert_array_equal(found[0], expected)
    for move in program.moves:
        got = dict.fromkeys(program.received(move), 0)
        for send in direct_transfers(program.values[move.value], move.out).travelling.rows():
            got[send.receiver] += send.box.volume
        assert got == program.received(move)


@pytest.mark.parametrize(
    ("options", "received"),
    [
        ({}, None),  # the array begins as it is needed, each tile one longer
        ({"root": True}, {0: 0, 1: 4, 2: 4}),
        ({"inputs": {"p": "[10]"}}, {0: 0, 1: 0, 2: 0}),
    ],
)
def test_tiles_are_longer_than_the_points(options: dict[str, Any], received: Any) -> None:
    program = rd.partition(lengths(), {"lengths": (3,)}, **options)
    value = program.moves[0].out if received else program.inputs[0]
    assert (value.form, value.shape, value.tile, value.tile_bytes) == ("[3{r0}9] windows (2)", (10,), (4,), 16)
    assert [box.start for box in value.boxes.rows()] == [(0,), (3,), (6,)]
    assert [program.received(move) for move in program.moves[:1]] == ([received] if received else [])
    right(program, np.diff(X))
    assert peak_bytes(program)[2] == 4 * (4 + 3 + (10 if "inputs" in options else 0))
    text = to_text(program)
    assert "p[i +2]" in text and "windows (2)" in text
    assert parse(text, bodies_of(program)) == program
    assert "[3{r0}9] windows (2)" in str(program) or not received
    assert rd.simulate(program, "v100").seconds > 0


def test_halves_exchange_their_edges() -> None:
    program = rd.partition(lengths(window=3), {"lengths": (2,)}, inputs={"p": "[5{r0}10]"})
    (move,) = program.moves
    assert program.received(move) == {0: 1, 1: 1}  # elements 5 and 4: the tiles have six
    right(program, X[2:] - X[:-2])


def test_several_readers_of_one_array() -> None:
    """From one that does not overlap all are made; one that begins so says how it must begin instead."""
    nests = [lengths(), lengths("far", window=3)]
    nests[1] = Nest("far", nests[1].ranges, nests[1].reads, [Access("far", (("i",),))], body=nests[1].body)
    grids = {"lengths": (3,), "far": (2,)}
    with pytest.raises(
        ProgramError,
        match=exactly(
            "operation 'far', array 'p': it needs [4{r0}8] windows (3), and the array begins as "
            "[3{r0}9] windows (2), as its first reader needs it; tiles that overlap are not moved, "
            "so say in inputs= how it begins"
        ),
    ):
        rd.partition(nests, grids)
    for options in ({"root": True}, {"inputs": {"p": "[10]"}}):
        program = rd.partition(nests, grids, ranks=6, **options)  # type: ignore[arg-type]
        out, far = run_by_rank(program, [X])
        assert np.array_equal(out, np.diff(X)) and np.array_equal(far, X[2:] - X[:-2])


def test_summands_are_added_before_tiles_that_overlap_are_made_of_them() -> None:
    """Also where the devices are the same: what has summands moves by a plan, and what overlaps by none."""
    rows = rd.nest("ij->i", (10, 4), name="rows", reads=["x"], writes="p")
    program = rd.partition([rows, lengths()], {"rows": {"j": 2}, "lengths": {"i": 3}}, ranks=6)
    first, second = program.moves
    assert program.values["p"].type.partial and not first.out.type.partial
    assert first.plan is not None and first.plan.steps[0].kind == "reduce_exchange"
    assert (second.value, second.plan, second.out.windows) == (first.out.name, None, (2,))
    x = np.arange(40).reshape(10, 4)
    assert np.array_equal(run_by_rank(program, [x])[0], np.diff(x.sum(1)))


def test_nests_of_one_operation_read_an_array_alike() -> None:
    near = lengths(window=2)
    far = Nest("far", near.ranges, [Access("p", (("i",),))], [Access("same", (("i",),))])
    with pytest.raises(
        ProgramError,
        match=exactly("operation 'far', array 'p': the array has shape (9,) here and (10,) in operation 'lengths'"),
    ):
        rd.partition([near, far], {"lengths": (3,), "far": (3,)}, groups={"both": ["lengths", "far"]})
    same = Nest("far", {"i": 9, "k": 2}, [Access("p", (("i",),), windows=(2,))], [Access("same", (("i",),))])
    fused = rd.partition([near, same], {"lengths": (3,), "far": (3, 1)}, groups={"both": ["lengths", "far"]})
    assert len(fused.inputs) == 1
    whole = Nest("far", {"k": 2}, [Access("p", ((),), (10,))], [Access("same", (("k",),))])
    with pytest.raises(
        InconsistentGroupError,
        match=exactly(
            "operation 'both', array 'p': nest 'lengths' has 'p' as [3{r0}9] windows (2) and nest "
            "'far' needs [10], which are other tiles; a group may not communicate inside, so cut both "
            "alike, or take the nests out of the group"
        ),
    ):
        rd.partition([near, whole], {"lengths": (3,), "far": (1,)}, groups={"both": ["lengths", "far"]})


def test_nests_whose_grids_no_mesh_makes_are_no_group() -> None:
    nests = [Nest(name, {"i": 12}, [Access("p", (("i",),))], [Access(f"of {name}", (("i",),))]) for name in "ab"]
    with pytest.raises(CutError) as refused:
        rd.partition(nests, {"a": (4,), "b": (6,)}, groups={"both": ["a", "b"]})
    assert str(refused.value) == "operation 'both': no one mesh makes the grids (4,), (6,) of its nests"


def test_other_devices_and_other_sizes() -> None:
    b = Builder()
    given = b.input("p", "[5{x}10]", Place(Mesh.of("x=2"), (4, 0)), "int64")
    moved = b.move(given, "[3{y}9]", Place(Mesh.of("y=3"), (1, 0, 2)), windows=(2,), name="p.1")
    program = b.build(b.compute(lengths(), moved, cut={"i": "y"}, names=["out"]))
    boxes = direct_transfers(given, moved).rows()
    assert [(send.sender, send.receiver, send.box.start, send.box.size) for send in boxes] == [
        (4, 1, (0,), (4,)),
        (4, 0, (3,), (2,)),
        (0, 0, (5,), (2,)),
        (0, 2, (6,), (4,)),
    ]
    right(program, np.diff(X))


@pytest.mark.parametrize(
    ("windows", "dims"),
    [((2, 1), (("i",),)), ((0,), (("i",),)), ((2,), ((),))],
)
def test_windows_that_do_not_fit(windows: Any, dims: Any) -> None:
    extents = (9,) if dims == ((),) else ()
    with pytest.raises(
        ProgramError,
        match=exactly(
            f"operation 'odd', array 'p': windows {windows} do not fit 1 dimensions; give one of at "
            "least 1 for each, and 1 for one that is read whole"
        ),
    ):
        Nest("odd", {"i": 9}, [Access("p", dims, extents, windows)], [Access("out", (("i",),))])


def test_a_nest_without_windows_is_padded_beside_one_with_windows_whose_grid_divides() -> None:
    plain = Nest("plain", {"k": 7}, [Access("q", (("k",),))], [Access("doubled", (("k",),))], body=lambda at, q: 2 * q)
    program = rd.partition([lengths(), plain], {"lengths": (3,), "plain": (3,)})
    assert {str(value.type) for value in program.inputs if value.name == "q"} == {"[3{r0}9]"}


def test_what_cannot_be_done_with_them() -> None:
    with pytest.raises(
        ProgramError,
        match=exactly("operation 'odd', array 'out': an array is written one element at each point"),
    ):
        Nest("odd", {"i": 9}, [], [Access("out", (("i",),), windows=(2,))])
    with pytest.raises(
        CutError,
        match=exactly("operation 'lengths', array 'p': it is read in windows; take grids that divide them"),
    ):
        rd.partition(lengths(), {"lengths": (2,)})
    counted = Nest(
        "counted", {"i": 9}, [Access("p", (("i",),))], [Access("out", (("i",),)), Access("n", ())], replicated=[1],
    )  # fmt: skip
    with pytest.raises(
        CutError,
        match=exactly(
            "operation 'counted', array 'n': every part writes the same, and one without points cannot; take grids "
            "that divide"
        ),
    ):
        rd.partition(counted, {"counted": (2,)})
    with pytest.raises(
        ProgramError, match=exactly("operation 'counted': [2] are not all numbers of writes, of which there are 2")
    ):
        replace(counted, replicated=frozenset({2}))
    both = Place(Mesh.of("x=3"))
    b = Builder()
    given = b.input("p", "[3{x}9]", both, windows=(2,))
    with pytest.raises(
        ProgramError,
        match=exactly("array 'p': the program ends with tiles that overlap; end with whole ones"),
    ):
        b.build(given)
    moved = b.move(given, "[10]")
    with pytest.raises(
        ProgramError,
        match=exactly(
            "operation 'move p', array 'p': tiles that overlap are read and not moved; move what they were made of"
        ),
    ):
        b.build(moved)
    b = Builder()
    with pytest.raises(
        ProgramError,
        match=exactly(
            "operation 'an input', array 'p': [3{x}9] windows (2, 2) has not one window for each dimension of tiles"
        ),
    ):
        b.build(b.input("p", "[3{x}9]", both, windows=(2, 2)))
    b = Builder()
    whole = b.input("p", "[10]", both)
    plan = rd.synthesize("[9]", "[3{x}9]", "x=3")
    made = b.move(whole, "[3{x}9]", plan=plan, windows=(2,))
    with pytest.raises(
        ProgramError,
        match=exactly("operation 'move p', array 'p.1': no plan makes tiles that overlap; leave the plan out"),
    ):
        b.build(b.compute(lengths(), made, cut={"i": "x"}))


def test_an_operation_says_what_it_needs() -> None:
    b = Builder()
    given = b.input("p", "[10]", Place(Mesh.of("x=3")))
    out = b.compute(lengths(), given, cut={"i": "x"})
    with pytest.raises(
        ProgramError,
        match=exactly(
            "operation 'lengths', array 'p': it needs [3{x}9] windows (2) on {x:3}@0,1,2, and value "
            "'p' is [10] on {x:3}@0,1,2; move the value first"
        ),
    ):
        b.build(out)


def test_jax_refuses_them() -> None:
    jax = pytest.importorskip("jax")
    from redistrib.programs.run.jax.program import mapped

    program = rd.partition(lengths(), {"lengths": (3,)}, root=False)
    assert not any(isinstance(op, Move) for op in program.ops)
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("r0",))
    with pytest.raises(ProgramError, match=exactly("array 'p': tiles that overlap run through MPI, not in JAX")):
        mapped(program, mesh)
