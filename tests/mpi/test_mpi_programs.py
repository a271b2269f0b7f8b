"""Programs on MPI ranks: values, bytes and calls, and rows of the thesis by number (chapters 4, 5 and 8)."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

pytest.importorskip("mpi4py")

from launch import PROGRAMS, launch, mpiexec

import redistrib as rd

pytestmark = pytest.mark.skipif(mpiexec() is None, reason="no mpiexec: install the extra redistrib[mpi]")


# Programs that one launch of 4 ranks runs one after the other.
TOGETHER = (
    "programs every 5",
    "programs pipelines",
    "programs uneven",
    "thesis t15",
    "thesis t16",
    "thesis t21",
    "program_refusals",
)


def figures_of(ranks: int, command: str) -> Any:
    """What a program printed, of the launch that runs it with others or of one for it alone."""
    return together()[command] if ranks == 4 else launch(ranks, *command.split()).figures()


@cache
def together() -> dict[str, Any]:
    figures: dict[str, Any] = launch(4, "several", *TOGETHER).figures()
    return figures


@pytest.mark.long
@pytest.mark.parametrize(("ranks", "programs"), [(4, 47), (6, 64)])
def test_ranks_equal_both_interpreters_and_numpy(ranks: int, programs: int) -> None:
    """Meshes (4), (2, 2) and (2, 3): products, chains, reductions, windows, places of their own; bytes as predicted."""
    found = launch(ranks, "programs", "every", timeout=400).figures()
    assert found["ran"] == programs
    assert {"Allreduce", "Bcast", "Gatherv", "Neighbor_alltoallw", "Scatterv", "put"} <= {*found["calls"]}


@pytest.mark.parametrize(("ranks", "step"), [(4, 5), (6, 12)])
def test_some_of_these_programs(ranks: int, step: int) -> None:
    assert figures_of(ranks, f"programs every {step}")["ran"] >= 5


def test_pipelines_of_stages_and_microbatches() -> None:
    """Programs of `ir.spread` with places of their own: values as on one device, bytes as predicted."""
    assert together()["programs pipelines"]["ran"] == 2


def test_summands_are_scattered_and_reduced() -> None:
    found = launch(6, "programs", "summands").figures()
    assert found["ran"] == 4
    assert {"Gather", "Gatherv", "Reduce", "Scatterv"} <= {*found["ends"]}


@pytest.mark.parametrize(("ranks", "programs"), [(4, 6), (6, 9)])
def test_grids_that_do_not_divide(ranks: int, programs: int) -> None:
    assert figures_of(ranks, "programs uneven")["ran"] == programs


def test_t14_at_most_two_calls_from_and_to_the_root() -> None:
    """Section 5.1.2: Scatterv and Bcast, Reduce and Gatherv: for each array those that are named, and no others."""
    found = launch(8, "thesis", "t14").figures()
    assert [*map(tuple, found["seen"])] == [
        (),
        ("Bcast",),
        ("Gatherv",),
        ("Reduce",),
        ("Reduce", "Gatherv"),
        ("Scatterv",),
        ("Scatterv", "Bcast"),
    ]
    assert set(found["inside"]) >= {"Scatterv", "Bcast", "Gatherv"}


def test_t15_tiles_that_overlap() -> None:
    """Section 8.1.2: a Scatterv whose subsets overlap; footnote 3 of section 4.4: or an exchange of boxes."""
    found = together()["thesis t15"]
    root, exchange, held = found["root"], found["exchange"], found["held"]
    for one in (root, exchange):
        assert one["form"] == "[6{r0}12, 6{r1}12] windows (3, 2)"
        assert one["tile"] == [8, 7]  # of points and what their windows reach beyond
    assert root["calls"] == ["Gatherv", "Scatterv"]  # the last brings the result back
    assert root["elements"] == {"0": 0, "1": 56, "2": 56, "3": 56}
    assert exchange["calls"] == ["Neighbor_alltoallw"]
    assert exchange["elements"] == dict.fromkeys("0123", 7)  # one row of seven from the rank below or above
    assert held == {"calls": ["Scatterv"], "bytes": 3 * 5 * 13 * 8}


def test_t16_irregular_subsets() -> None:
    """Sections 4.4 and 4.7: any data from any process to any other, one call, boxes as large as they are."""
    found = together()["thesis t16"]
    assert len(found) == 3
    assert all(calls == ["Neighbor_alltoallw"] for calls in found.values())


def test_t16_the_boxes_are_of_unequal_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PROGRAMS))
    import program_cases

    from redistrib.programs.ir.direct import direct_transfers

    for case in program_cases.between(4):
        if "columns" in case.name:  # every device needs as much from each
            continue
        (move,) = case.program.moves
        sends = direct_transfers(case.program.values[move.value], move.out).travelling.rows()
        assert len({send.box.size for send in sends}) > 1, case.name


def test_t18_a_sparse_matrix_and_a_vector() -> None:
    """Section 8.1.2: schedule (2,); each of two ranks reads A_row[0:M//2 + 1] of its own, overlapping by one."""
    found = launch(2, "thesis", "t18").figures()
    assert found["rows"] == [[0, 9], [8, 17]]  # M = 16
    assert found["by_move"] == {
        "A_row.1": ["Scatterv"],
        "A_col.1": ["Bcast"],
        "A_val.1": ["Bcast"],
        "x.1": ["Bcast"],
        "b.1": ["Gatherv"],
    }
    assert sorted(found["calls"]) == ["Bcast", "Bcast", "Bcast", "Gatherv", "Scatterv"]


def test_t21_planned_on_128_ranks() -> None:
    """Section 8.2, Figure 8.2: 8192 x 8192 x 8192 on up to 128 nodes, inputs from the root and the output to it."""
    n = 8192
    program = rd.partition(rd.nest("ij,jk->ik", (n, n, n)), {"matmul": (4, 4, 8)}, root=True)
    assert len(program.devices) == 128
    ins = [sum(program.received(move).values()) for move in program.moves[:2]]
    assert ins == [127 * (n // 4) * (n // 4), 127 * (n // 4) * (n // 8)]
    added, back = program.moves[2:]
    # summands are reduced to a quarter of a tile each, and gathered
    assert set(program.received(added).values()) == {3 * (n // 4) * (n // 8) // 4}
    assert program.received(back)[0] == n * n * 127 // 128
    assert program.received_bytes == 4 * (sum(ins) + 128 * 3 * (n // 4) * (n // 8) // 4 + n * n * 127 // 128)


@pytest.mark.parametrize("ranks", [4, *(pytest.param(ranks, marks=pytest.mark.long) for ranks in (8, 24))])
def test_t21_run_on_ranks(ranks: int) -> None:
    """The same schedule, on as many ranks as there are: the same values, and the bytes that were predicted."""
    found = figures_of(ranks, "thesis t21")
    assert found["bytes"] == found["predicted"]
    assert {"Scatterv", "Bcast", "Gatherv"} <= {*found["calls"]}


@pytest.mark.parametrize("ranks", [4, pytest.param(8, marks=pytest.mark.long)])
def test_wrong_use_is_refused_on_every_rank_before_anything_moves(ranks: int) -> None:
    said = figures_of(ranks, "program_refusals")
    for name, messages in said.items():
        assert len(set(messages)) == 1, (name, messages)
    message = {name: messages[0] for name, messages in said.items()}
    tile = 16 // ranks
    different = "CommunicatorError: the ranks make different calls, or name different roots; make one on all"
    no_root = f"CommunicatorError: there is no rank {ranks} among {ranks}; give a root from 0 to {ranks - 1}"
    assert message == {
        "size": f"CommunicatorError: the program runs on devices up to number {ranks - 1} and the communicator has "
        f"{ranks // 2} ranks; give it a rank for each, for example with mpiexec -n {ranks}",
        "kind": "CommunicatorError: 'world' is no intra-communicator of mpi4py; pass one such as MPI.COMM_WORLD",
        "program": "CommunicatorError: rank 2 gives another program than rank 0; give the same on all ranks, a plan "
        "for example by comm.bcast(plan.to_json())",
        "a plan": message["program"],
        "sizes": "CommunicatorError: rank 3 gives another program than rank 0; give the same on all ranks, a plan for "
        "example by comm.bcast(plan.to_json())",
        "body": "ProgramError: operation 'first': nest 'first' has no body; give one to run it",
        "transport": "CommunicatorError: no transport 'magic'; give one of 'shared', 'packed', 'datatypes', or leave "
        "it out",
        "transports": "CommunicatorError: rank 1 gives another transport than rank 0; give the same on all ranks, a "
        "plan for example by comm.bcast(plan.to_json())",
        "profile": message["profile"],
        "limit": f"MemoryLimitError: the program needs {3072 // ranks} bytes on a device at its worst moment and "
        "memory_limit is 300; give that much, cut its work further, or give values up earlier",
        "limit of a move": message["limit of a move"],
        "limit of a move of some": "MemoryLimitError: rank 0: the program needs 2,560 bytes on a device at its worst "
        "moment and memory_limit is 1,536; give that much, cut its work further, or give values up earlier",
        "shape": f"TilesError: rank 2: the tile of 'x' has shape [16, 16] where the tile is [{tile}, 16]; pass this "
        "rank's tile, not the whole array",
        "dtype": "TilesError: rank 1: the tile of 'x' has dtype float64 where float32 is due; convert it with astype",
        "none": f"TilesError: rank 3: the tile of 'x' is None where this rank's tile has shape [{tile}, 16]; pass it",
        "many": "TilesError: rank 0: 2 arrays are given for 1: x",
        "whole": message["whole"],
        "scatter root": no_root,
        "scatter root of one": no_root.replace("there", "rank 2: there", 1),
        "gather roots": different,
        "calls": different,
        "no program": "CommunicatorError: rank 2: 7 is no program; give one, for example from its JSON or text",
        "gather": f"TilesError: the tile of 'z' has shape [{tile}, 16] where the tile is [16, {tile}]; pass "
        "this rank's tile, not the whole array",
        "freed": "CommunicatorError: this executor was freed; make another with to_mpi",
        "given": "TilesError: rank 2: the tile of 'a' is given where this rank holds nothing; pass None",
    }
    assert message["profile"].startswith("ProfileError: profile 'cpu' cannot choose a transport")
    assert message["limit of a move"].startswith("MemoryLimitError: the program needs ")
    assert f"rank 1: the array of 'x' has shape [{tile}, 16] where the array is [16, 16]" in message["whole"]


@pytest.mark.long
def test_a_traced_function_runs_on_ranks() -> None:
    """A training step by `rd.distribute`, its bodies run by JAX on every rank."""
    pytest.importorskip("jax")
    assert launch(4, "traced", timeout=200).figures()["moves"] == 3


def test_memory_is_given_back_after_the_last_reader() -> None:
    found = launch(2, "program_memory").figures()
    slack = 1 << 16
    assert found["last use"] <= found["predicted"] + slack, found
    assert found["limited"] <= found["predicted"] + slack, found
    assert found["kept"] > found["predicted"] + 4 * found["tile"], found


def test_the_example_of_products_runs() -> None:
    done = launch(4, "../../../examples/products")
    assert done.code == 0, done.err[-2000:]
    assert "equal to NumPy's: True" in done.out


def test_the_example_runs() -> None:
    done = launch(4, "../../../examples/sparse_rows")
    assert done.code == 0, done.err[-2000:]
    assert "equal to SciPy's: True" in done.out
