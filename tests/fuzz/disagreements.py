"""Jobs of several processes that are to make the same calls, and of which one makes others, or has an error.

Whatever is drawn, all processes that raise raise the same error of the library, within seconds, and what they get
otherwise is right; and the next call that all make alike is right.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.fuzz.guard import Failure
from tests.mpi.launch import launch, mpiexec
from tests.processes import outputs_of

JOBS = ((2, 2), (4, 1), (2, 1), (4, 2))  # processes of JAX, and devices of each
RANKS = 4  # of MPI
ROUNDS = 6  # of a job of JAX
MPI_ROUNDS = 200
SECONDS = 60.0  # that a call may take, compilation included, before processes count as having waited in vain
_WORKER = Path(__file__).with_name("disagreements_worker.py")


def check(seed: int, index: int) -> str:
    """Run the job of this number; what became of it.

    Raises:
        Failure: where it is not right.
    """
    number, kind = divmod(index, len(JOBS) + 1)
    if kind == len(JOBS):
        rounds, what = _by_mpi(seed, number), f"{RANKS} ranks"
    else:
        rounds, what = _by_jax(seed, number, *JOBS[kind]), f"{JOBS[kind][0]} processes"
    for each in rounds:
        judge(each)
    return what


def _by_jax(seed: int, number: int, processes: int, devices_each: int) -> list[Sequence[Any]]:
    """What all processes say of each round of a job."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            outputs = outputs_of(_WORKER, processes, devices_each, folder, str(seed), _numbers(number, ROUNDS))
        except AssertionError as error:
            raise Failure("crash", str(error)[-3000:]) from None
    return list(zip(*map(_said, outputs), strict=True))


def _by_mpi(seed: int, number: int) -> list[Sequence[Any]]:
    if mpiexec() is None:
        return []
    try:
        done = launch(RANKS, "disagreements", str(seed), _numbers(number, MPI_ROUNDS), timeout=300)
    except subprocess.TimeoutExpired as error:
        raise Failure("slow", f"ranks wait for each other: {error.stdout!r}"[-3000:]) from None
    if done.code:
        raise Failure("crash", f"exit code {done.code}: {done.out[-1500:]}{done.err[-1500:]}")
    return _said(done.out)


def _numbers(first: int, count: int) -> str:
    return ",".join(str(first * count + k) for k in range(count))


def _said(output: str) -> list[Any]:
    return [json.loads(line.removeprefix("ROUND ")) for line in output.splitlines() if line.startswith("ROUND ")]


def judge(rounds: Sequence[dict[str, Any]]) -> None:
    """Judge what the processes of a job say of one round."""
    case = json.dumps(rounds, indent=1)
    errors = Counter(text for one in rounds for text in {*one["errors"]})
    for text, count in errors.items():
        if text.startswith("FOREIGN"):
            raise Failure("exception", text, case=case)
        if count == 1:
            raise Failure("wrong", f"one process alone has the error {text}", case=case)
    if not all(one["right"] for one in rounds) or any(one["after"] for one in rounds):
        raise Failure("wrong", "other values, or no further call", case=case)
    if max(one["seconds"] for one in rounds) > SECONDS:
        raise Failure("slow", "processes waited for each other", case=case)
