"""Plans whose tiles are summands, in every transport: exact sums, the reference's bits in order, counted bytes."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytest.importorskip("mpi4py")

from launch import ROOT, launch, mpiexec

pytestmark = pytest.mark.skipif(mpiexec() is None, reason="no mpiexec: install the extra redistrib[mpi]")

ADDED = {f"{kind} {how}" for kind in ("reduce_scatter", "reduce_exchange") for how in ("shared", "packed", "datatypes")}
CALLS = {"put", "Neighbor_alltoallw", "Isend", "Recv", "Reduce_scatter_block", "Allreduce", "Alltoallv", "Allgatherv"}


@pytest.mark.parametrize(("ranks", "plans"), [(4, 6), (8, 0)])
def test_sums_and_bytes_equal_the_reference(ranks: int, plans: int) -> None:
    found = launch(ranks, "sums", str(plans)).figures()
    assert found["plans"] >= plans
    assert set(found["ran"]) >= {*ADDED, "all_reduce packed"}
    assert set(found["calls"]) >= CALLS
    assert ranks == 8 or found["ran"]["unreduce local"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("ranks", "plans"),
    [
        (4, 60),
        (6, 30),
        (8, 20),
        *(pytest.param(*most, marks=pytest.mark.exhaustive) for most in ((4, 400), (6, 200), (8, 150))),
    ],
)
def test_many_sums(ranks: int, plans: int) -> None:
    assert launch(ranks, "sums", str(plans), timeout=1500).figures()["plans"] >= plans


def test_summands_are_scattered_from_a_root_and_gathered_as_their_sum() -> None:
    assert launch(6, "summed_gather").figures() == {"cases": 84}


@pytest.mark.parametrize(
    ("source", "target"),
    [("[8{x}16, 8] sum{y}", "[16, 2{x,y}8]"), ("[16, 8] max{x}", "[16, 8]"), ("[8{x}16, 8]", "[16, 8] sum{x}")],
)
def test_the_command_checks_every_element(source: str, target: str) -> None:
    launcher = mpiexec()
    assert launcher is not None
    command = [launcher, "-n", "4", sys.executable, "-m", "mpi4py", "-m", "redistrib", "run", source, target]
    command += ["--mesh", "x=2,y=2", "--dtype", "bfloat16"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "every element is right" in done.stdout
    done = subprocess.run([*command, "--json"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    found = json.loads(done.stdout)
    assert list(found) == [
        "source", "target", "mesh", "backend", "ranks", "transports", "compared", "received_bytes", "bound_bytes",
        "scratch_bytes", "seconds", "wrong_elements",
    ]  # fmt: skip
    assert (found["source"], found["target"], found["mesh"]) == (source, target, "{x:2, y:2}")
    assert (found["backend"], found["ranks"], found["wrong_elements"]) == ("mpi", 4, 0)
