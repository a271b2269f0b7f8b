"""Arrays in and out, refusals, failures, roots, hosts, and the command line, under mpiexec."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

pytest.importorskip("mpi4py")

from launch import ROOT, launch, mpiexec

pytestmark = pytest.mark.skipif(mpiexec() is None, reason="no mpiexec: install the extra redistrib[mpi]")


def test_arrays_of_every_dtype_and_buffer():
    found = launch(4, "arrays").figures()
    assert len(found["dtypes"]) == 20
    assert found["buffers"] == 7
    assert found["blocks"] == 5  # four results held at once, and one more while ranks disagreed on what is free


@pytest.mark.parametrize("ranks", [4, pytest.param(8, marks=pytest.mark.long)])
def test_wrong_use_is_refused_on_every_rank_with_one_message(ranks):
    said = launch(ranks, "refusals").figures()
    for name, messages in said.items():
        assert len(set(messages)) == 1, (name, messages)
        assert messages[0] != "accepted", name
    message = {name: messages[0] for name, messages in said.items()}
    assert message["size"].startswith(
        f"CommunicatorError: the plan is for {ranks} devices and the communicator has {ranks // 2} ranks"
    )
    assert message["limit"].startswith("MemoryLimitError: no plan fits in 100 bytes")
    assert "rank 2 gives another plan" in message["plans"]
    assert "rank 3 gives another memory_limit" in message["limits"]
    assert "'magic'" in message["transport"]
    assert message["profile"] == (
        "ProfileError: profile 'cpu' cannot choose a transport: it has no figures for 'packed' and 'datatypes';"
        " write one with `mpiexec -n RANKS python -m mpi4py -m redistrib calibrate --backend mpi -o FILE`, "
        "or leave machine out"
    )
    assert (
        message["no profile"] == "ProfileError: rank 2: cannot read the profile nowhere.json: No such file or directory"
    )
    assert message["odd profile"].startswith(
        "ChoiceError: no machine 7; give a CostModel, the path of a profile, or one of"
    )
    assert "rank 3 gives another machine" in message["profiles"]
    for how in ("shared", "packed", "datatypes"):
        assert f"rank 1: the array has shape [16, 16] where the tile is [{16 // ranks}, 16]" in message[f"shape {how}"]
        assert (
            "rank 2: the array has dtype float64 where float32 is due; convert it with astype"
            in message[f"dtype {how}"]
        )
        assert "rank 3: the array" in message[f"none {how}"]
        assert "rank 1: out is read-only" in message[f"out {how}"]
        assert "rank 1: out is not C-contiguous" in message[f"turned {how}"]
        assert message[f"overlap {how}"].startswith("TilesError: out overlaps")  # on every rank
        assert "was freed" in message[f"freed {how}"]
    assert "rank 1: the global array has shape [3, 3] where the array is [16]; pass the whole" in message["scatter"]
    assert f"no rank {ranks} among {ranks}" in message["scatter root"]
    assert message["no room"].startswith("CommunicatorError: no shared memory is left for another result")
    assert "rank 2: the tile has shape [5]" in message["gather"]
    assert "rank 2: the tile has dtype int8 where that of rank 0 has int16" in message["gather dtype"]
    assert "rank 1 gives another plan" in message["sums"]
    no_sum = "ReductionError: elements of bool have no sum; take max for 'any' and min for 'all', or an integer type"
    assert message["scatter bool sums"] == message["gather bool sums"] == no_sum
    assert message["gather complex max"] == (
        "ReductionError: elements of complex64 have no max, since they have no order; reduce a real type"
    )
    assert message["gather nothing"] == "TilesError: rank 3: the tile is None; pass an array of shape [4]"
    assert message["gather left out"] == (
        "TilesError: rank 1: a tile is given where the mesh leaves this rank out; pass None"
    )

    assert message["no plan"] == (
        "CommunicatorError: rank 2: None is no plan; give one, for example from its JSON or text"
    )
    assert message["limit in words"].startswith("ChoiceError: rank 1: ") and "'much'" in message["limit in words"]
    assert message["profile and plan"] == (
        "CommunicatorError: rank 1: 7 is no plan; give one, for example from its JSON or text"
    )
    assert "rank 1 gives another type, mesh or root than rank 0" in message["scatter types"]
    assert message["scatter text"].startswith("NotationError: rank 2: ")
    assert f"rank 3: the mesh has {2 * ranks} devices and the communicator has {ranks} ranks" in message["scatter mesh"]
    assert "rank 3 gives another type, mesh or root than rank 0" in message["scatter roots"]
    assert f"rank 3: there is no rank 'me' among {ranks}" in message["scatter no root"]
    assert message["gather types"].startswith("UnknownAxisError: rank 1: ")
    assert "rank 2 gives another type, mesh or root than rank 0" in message["gather order"]
    assert "rank 1 gives another type, mesh or root than rank 0" in message["gather roots"]
    assert "rank 2 makes another call than rank 0: gather, and rank 0: scatter" in message["scatter and gather"]


@pytest.mark.parametrize("how", ["shared", "packed", "datatypes"])
def test_a_failing_rank_ends_the_job(how):
    done = launch(4, "failing", how)  # raises TimeoutExpired if a rank waits for ever
    assert done.code != 0
    assert "rank two has had enough" in done.err
    assert "reached the end" not in done.out


def test_scatter_and_gather_take_two_calls():
    found = launch(6, "scatter_gather").figures()
    assert found == {"most": 2, "least": 1, "calls": ["Allgather", "Alltoallw"]}  # one where tiles are empty


def test_ranks_that_wait_for_one_another_let_messages_pass():
    copies_take_both_sides = {"MPIR_CVAR_CH4_CMA_ENABLE": "0", "MPIR_CVAR_CH4_XPMEM_ENABLE": "0"}
    assert launch(4, "barriers", timeout=40, **copies_take_both_sides).figures() == {"words": 3000}


def test_shared_memory_is_used_within_hosts_only():
    found = launch(8, "hosts", MPIR_CVAR_ODD_EVEN_CLIQUES="1").figures()
    assert found["hosts"] == 2
    assert {"packed", "shared", "packed+shared"} <= set(found["seen"])


def test_no_rank_writes_memory_that_a_late_one_has_yet_to_read():
    assert launch(4, "slow").figures() == {"ran": ["packed", "packed", "shared", "packed"], "right": [True] * 4}


def test_the_command_runs_under_mpiexec():
    launcher = mpiexec()
    assert launcher is not None
    command = [launcher, "-n", "4", sys.executable, "-m", "mpi4py", "-m", "redistrib", "run", "[4{x}8, 4{y}8]"]
    command += ["[4{y}8, 4{x}8]", "--mesh", "x=2,y=2"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "run on 4 MPI ranks" in done.stdout
    assert "64 elements compared: every element is right" in done.stdout
    table = done.stdout.split("run on 4 MPI ranks\n")[1].splitlines()[2:-1]
    figures = dict(re.split(r"\s{2,}", line.strip(), maxsplit=1) for line in table)
    assert list(figures) == [
        "MPI library", "steps", "bytes received, all ranks", "over the lower bound", "staging per rank, bytes",
        "milliseconds, slowest rank", "elements that differ",
    ]  # fmt: skip
    assert re.fullmatch(r"allpermute \(\w+\)", figures["steps"])
    assert figures["bytes received, all ranks"] == "128"  # two of the four tiles of 64 bytes
    assert (figures["over the lower bound"], figures["elements that differ"]) == ("1.00x", "0")


def test_a_tight_limit_needs_no_memory_beside_source_and_target():
    found = launch(2, "memory", "32", "limit").figures()
    for name, case in found.items():
        assert case["transports"] == ["datatypes"], name
        assert case["source"] + case["target"] <= case["peak"] <= case["allowed"], (name, case)


def test_several_all_to_alls_need_no_memory_beside_source_and_target():
    case = launch(4, "memory", "32", "limit").figures()["all-to-alls"]
    assert case["steps"] == ["alltoall", "alltoall"]
    assert case["transports"] == ["direct"]
    assert case["source"] + case["target"] <= case["peak"] <= case["allowed"], case


def test_without_a_limit_memory_is_spent_on_speed():
    found = launch(2, "memory", "32").figures()
    assert {tuple(case["transports"]) for case in found.values()} == {("shared",)}
    assert found["exchange"]["peak"] > found["exchange"]["allowed"]


def test_a_calibrated_file_prices_plans_and_chooses_transports(tmp_path):
    found = launch(4, "calibration", str(tmp_path / "mpi.json")).figures()
    profile = found["profile"]
    assert set(profile["latency"]) == {"allgather", "alltoall", "allpermute"}
    assert all(figure >= 0 for pair in profile["latency"].values() for figure in pair)
    assert profile["bandwidth"] > 0 < profile["memory_bandwidth"]
    assert profile["name"] == "here"
    assert profile["one_call"]
    assert set(profile["transports"]) == {"shared", "packed", "datatypes"}
    assert found["by_file"][0] in profile["transports"]
    assert found["chosen"] == ["shared", "packed", "datatypes"]
    assert found["kinds"] == ["allgather", "allpermute", "alltoall"]
    assert found["permuted"] == [1 << 10, 1 << 17]
    assert found["transports"] == ["datatypes", "packed", "shared"]
    assert 0 < found["priced"] < 60  # seconds
    assert found["direct"] == ["ragged"]
    assert found["calls"] == ["Neighbor_alltoallw"] * 4


def test_a_fit_finds_the_figures_that_made_the_samples():
    from redistrib.cost.fit import fit_profile
    from redistrib.plans.samples import Sample

    launch_cost, member, per_byte, per_copy = 1e-5, 2e-6, 1e-9, 3e-10
    samples = [
        Sample(kind, n, size * (n - 1), copied, seconds, 0.0, "packed")
        for kind in ("allgather", "alltoall", "allpermute")
        for n in ((2, 4, 8) if kind != "allpermute" else (2,))
        for size in (10**3, 10**5, 10**7)
        for copied in (size, 3 * size)
        for seconds in [launch_cost + member * (n - 1) + per_byte * size * (n - 1) + per_copy * copied]
    ]
    over = {"datatypes": (3e-5, 4e-6, 5e-9), "shared": (1e-4, 0.0, 2e-8)}  # dearer everywhere
    samples += [
        Sample(s.kind, s.members, s.received, s.copied, a + b * (s.members - 1) + c * s.received, 0.0, transport)
        for s in samples
        for transport, (a, b, c) in over.items()
    ]
    profile = fit_profile(samples, "made up", "").profile
    assert profile.latency["alltoall"].launch == pytest.approx(launch_cost, rel=1e-6)
    assert profile.latency["alltoall"].member == pytest.approx(member, rel=1e-6)
    assert profile.latency["allpermute"].seconds(2) == pytest.approx(launch_cost + member, rel=1e-6)
    assert profile.bandwidth == pytest.approx(1 / per_byte, rel=1e-6)
    assert list(profile.transports) == ["packed", "datatypes", "shared"]
    for transport, figures in over.items():
        assert profile.transports[transport] == pytest.approx(figures, rel=1e-6)
    assert type(profile).from_json(profile.to_json()) == profile
