"""Programs of this folder one after the other on the same ranks; prints JSON on rank 0, what each of them printed last.

`several.py 'thesis t15' 'programs every 5'`: starting an interpreter for every rank takes longer than many of them.
"""

from __future__ import annotations

import contextlib
import io
import json
import runpy
import sys
from pathlib import Path

from mpi4py import MPI

found = {}
for command in sys.argv[1:]:
    name, *sys.argv[1:] = command.split()
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        runpy.run_path(str(Path(__file__).with_name(f"{name}.py")))
    found[command] = printed.getvalue().strip().splitlines()[-1:]
if MPI.COMM_WORLD.rank == 0:
    print(json.dumps({command: json.loads(line) for command, (line,) in found.items()}))
