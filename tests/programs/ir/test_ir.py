"""`redistrib.ir` has the functions of programs, and needs neither JAX nor MPI."""

from __future__ import annotations

import subprocess
import sys

import redistrib as rd
from redistrib import ir


def test_its_names_are_there() -> None:
    assert rd.ir is ir
    assert all(hasattr(ir, name) for name in ir.__all__)
    assert sorted(ir.__all__) == sorted(set(ir.__all__))


def test_it_loads_no_library_of_a_backend() -> None:
    code = "import sys, redistrib.ir; print(*({'jax', 'mpi4py', 'torch'} & {*sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
