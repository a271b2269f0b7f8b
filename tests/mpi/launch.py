"""Run a program of this folder under mpiexec and take back what rank 0 printed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).parent / "programs"
ROOT = Path(__file__).parents[2]


def mpiexec() -> str | None:
    """The launcher that belongs to this interpreter's MPI wheel, or the one on the path."""
    beside = Path(sys.executable).parent / "mpiexec"
    return str(beside) if beside.exists() else shutil.which("mpiexec")


@dataclass(frozen=True)
class Finished:
    """What came of a launch."""

    code: int
    out: str
    err: str

    def figures(self) -> Any:
        """The JSON that rank 0 printed last."""
        assert self.code == 0, f"exit code {self.code}\n{self.out}\n{self.err[-4000:]}"
        return json.loads(self.out.strip().splitlines()[-1])


def launch(ranks: int, program: str, *arguments: str, timeout: float = 80, **variables: str) -> Finished:
    """Run `programs/<program>.py` on so many ranks."""
    launcher = mpiexec()
    assert launcher is not None
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(PROGRAMS)]),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        **variables,
    }
    command = [launcher, "-n", str(ranks), sys.executable, "-m", "mpi4py", str(PROGRAMS / f"{program}.py"), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout, check=False)
    return Finished(done.returncode, done.stdout, done.stderr)
