"""Calls that are drawn, in which one rank passes other arguments than the others, or makes another call.

Rank 0 prints for each what every rank says of it, and whether a call that all make alike is right afterwards.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

import redistrib as rd
from redistrib.backends.mpi import gather, scatter
from redistrib.cost.presets import PRESETS
from redistrib.errors import RedistribError
from redistrib.lang.mesh import Mesh

comm = MPI.COMM_WORLD
RANKS, rank = comm.size, comm.rank
TILE, SIZE = 2, 2 * comm.size
MESH, CUT = f"x={RANKS}", f"[{TILE}{{x}}{SIZE}]"
ROWS, COLUMNS = f"[{TILE}{{x}}{SIZE}, {SIZE}]", f"[{SIZE}, {TILE}{{x}}{SIZE}]"
WHOLE = np.arange(float(SIZE * SIZE), dtype=np.float32).reshape(SIZE, SIZE)
GOOD, WANTED = WHOLE[TILE * rank : TILE * (rank + 1)], WHOLE[:, TILE * rank : TILE * (rank + 1)]
LINE = np.arange(float(SIZE))
PART = LINE[TILE * rank : TILE * (rank + 1)]


def chain(second: tuple[int, int]) -> rd.Program:
    nests = [
        rd.nest("ij->ij", (SIZE, SIZE), name="first", reads=["x"], writes="y", fn=lambda x: 3 * x),
        rd.nest("ij->ij", (SIZE, SIZE), name="second", reads=["y"], writes="z", fn=lambda x: x + 1),
    ]
    return rd.partition(nests, {"first": (RANKS, 1), "second": second})


PLANS = [rd.synthesize(ROWS, target, MESH) for target in (COLUMNS, f"[{SIZE}, {SIZE}]")]
PROGRAMS = [chain((1, RANKS)), chain((2, RANKS // 2))]
MOVE, RUN = rd.to_mpi(PLANS[0], comm), rd.to_mpi(PROGRAMS[0], comm)
RESULTS = RUN(GOOD)
WRONG = [np.zeros((3, 3), np.float32), GOOD.astype(np.int8), None, "text", np.asfortranarray(GOOD.repeat(2, 0))[::2]]

# Of each, the calls whose first message is of one kind, so that ranks can tell them apart.
FAMILIES: dict[str, list[Callable[[], Any]]] = {
    "preparing": [
        *(lambda each=each: rd.to_mpi(each, comm) for each in (*PLANS, *PROGRAMS)),
        *(lambda name=name: rd.to_mpi(PLANS[0], comm, transport=name) for name in ("packed", "shared", "magic", 3)),
        *(lambda limit=limit: rd.to_mpi(PLANS[0], comm, memory_limit=limit) for limit in (1, 10**6, 10**7, "much")),
        *(lambda profile=profile: rd.to_mpi(PLANS[0], comm, machine=profile) for profile in (7, "no", PRESETS["cpu"])),
    ],
    "running": [
        lambda: MOVE(GOOD),
        lambda: MOVE(GOOD, out=np.empty_like(WANTED)),
        *(lambda wrong=wrong: MOVE(wrong) for wrong in WRONG),
        *(lambda wrong=wrong: MOVE(GOOD, out=wrong) for wrong in WRONG[:2]),
    ],
    "a program": [
        lambda: RUN(GOOD),
        *(lambda wrong=wrong: RUN(wrong) for wrong in WRONG),
        lambda: RUN(GOOD, GOOD),
        *(lambda root=root: RUN.gather(*RESULTS, root=root) for root in (0, 1, RANKS, "me")),
        *(lambda root=root: RUN.scatter(WHOLE, root=root) for root in (0, 1, RANKS, None)),
        lambda: RUN.gather(GOOD[:1]),
        lambda: RUN.scatter(GOOD),
    ],
    "scattering": [
        *(lambda root=root: scatter(LINE, CUT, MESH, comm, root=root) for root in (0, 1, RANKS, "me")),
        *(lambda kind=kind: scatter(LINE, kind, MESH, comm) for kind in (f"[{SIZE}]", "none", CUT.replace("x", "y"))),
        *(lambda array=array: scatter(array, CUT, MESH, comm) for array in (None, "text", LINE[:-1], LINE[::-1])),
        lambda: scatter(LINE, CUT, f"{MESH},y=2", comm),
        lambda: scatter(LINE, CUT, 3, comm),
        lambda: scatter(LINE, CUT, MESH, comm, dtype="int8"),
        *(lambda root=root: gather(PART, CUT, MESH, comm, root=root) for root in (0, 1, RANKS, "me")),
        *(lambda part=part: gather(part, CUT, MESH, comm) for part in (None, "text", LINE, PART.astype(np.int8))),
        lambda: gather(PART, CUT, Mesh.of(MESH, tuple(range(RANKS))[::-1]), comm),
    ],
}  # fmt: skip


def said(call: Callable[[], Any]) -> str:
    try:
        result = call()
    except RedistribError as error:
        return f"{type(error).__name__}: {error}"
    except Exception as error:
        return f"FOREIGN {type(error).__name__}: {str(error)[:400]}"
    if hasattr(result, "free"):
        result.free()
    return ""


def main() -> None:
    for number in map(int, sys.argv[2].split(",")):
        rng = random.Random(f"disagreements/{sys.argv[1]}/mpi/{RANKS}/{number}")
        family, odd = rng.choice(sorted(FAMILIES)), rng.randrange(RANKS)
        first, other = (rng.randrange(len(FAMILIES[family])) for _ in range(2))
        started = time.monotonic()
        text = said(FAMILIES[family][other if rank == odd else first])
        seconds = time.monotonic() - started
        record: dict[str, Any] = {"number": number, "way": f"{family} in rank {odd}", "calls": [first, other]}
        right = bool((MOVE(GOOD) == WANTED).all())
        record |= {"errors": [text] if text else [], "seconds": seconds, "after": [], "right": right}
        every = comm.gather(record)
        if every is not None:
            print("ROUND", json.dumps(every), flush=True)


main()
