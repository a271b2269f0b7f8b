"""Time our executor against its peers, paired in one run.

    mpiexec -n 8 python -m mpi4py bench/mpi/against.py [--scale 4] [--pairs 15] [--peers heat] [--json FILE]

Ours and a peer take turns, swapping who goes first; a pair gives one ratio, ours over theirs, of the wall time from
a barrier to the slowest rank's end. Printed are medians of ratios: below 1 is faster.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

sys.path.insert(0, str(Path(__file__).resolve().parent))
import parts
import peers
from cases import cases


def seconds(comm: MPI.Intracomm, run: peers.Run) -> float:
    """Wall time of one collective call, until the slowest rank is done."""
    comm.Barrier()
    start = time.perf_counter()
    run()
    taken = time.perf_counter() - start
    return float(comm.allreduce(taken, MPI.MAX))


def ratios(comm: MPI.Intracomm, ours: peers.Run, theirs: peers.Run, pairs: int) -> tuple[list[float], float]:
    """One ratio a pair, and the median seconds of ours."""
    found, mine = [], []
    for k in range(pairs):
        if k % 2:
            other = seconds(comm, theirs)
            own = seconds(comm, ours)
        else:
            own = seconds(comm, ours)
            other = seconds(comm, theirs)
        found.append(own / other)
        mine.append(own)
    return found, float(np.median(mine))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=4)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--transport", default=None)
    parser.add_argument("--peers", nargs="+", default=["mpi4py-fft", "heat", "gather-scatter"])
    args = parser.parse_args()
    comm = MPI.COMM_WORLD
    makers: dict[str, Callable[..., peers.Run | None]] = {
        "mpi4py-fft": peers.mpi4py_fft,
        "heat": peers.heat,
        "gather-scatter": peers.gather_scatter,
        **parts.MAKERS,
    }
    makers = {name: make for name, make in makers.items() if name in args.peers}
    rows: list[dict[str, Any]] = []
    for group, listed in cases(comm.size, args.scale).items():
        for case in listed:
            plan = case.plan()
            x = peers.tile_for(plan, comm.rank)
            want = peers.tile_for(plan, comm.rank, after=True)
            mine = {
                "own result": peers.ours(case, comm, plan, x, transport=args.transport),
                "into out": peers.ours_into(case, comm, plan, x, transport=args.transport),
            }
            for run in mine.values():
                assert np.array_equal(run(), want), f"ours is wrong on {case}"
            for peer, make in makers.items():
                theirs = make(case, comm, plan, x)
                if theirs is None:
                    continue
                assert np.array_equal(theirs(), want), f"{peer} is wrong on {case}"
                for how, run in mine.items():
                    theirs()
                    run()
                    found, own = ratios(comm, run, theirs, args.pairs)
                    row = {
                        "ranks": comm.size, "group": group, "source": case.source, "target": case.target,
                        "dtype": case.dtype, "peer": peer, "ours": how, "ratio": float(np.median(found)),
                        "seconds": own, "MiB": plan.before.tile_size * plan.itemsize / 2**20,
                    }  # fmt: skip
                    rows.append(row)
                    if comm.rank == 0:
                        print(
                            f"{comm.size} {group:7} {case.source:34} -> {case.target:34} {case.dtype:10} "
                            f"{row['MiB']:6.2f} MiB {own * 1e3:8.2f} ms  {how:10} / {peer:14} {row['ratio']:.2f}",
                            flush=True,
                        )
    if comm.rank == 0:
        for peer in makers:
            for how in ("own result", "into out"):
                all_ratios = [row["ratio"] for row in rows if row["peer"] == peer and row["ours"] == how]
                if all_ratios:
                    print(
                        f"== {comm.size} ranks, ours ({how}) over {peer}: median {np.median(all_ratios):.2f}, "
                        f"worst {max(all_ratios):.2f}, best {min(all_ratios):.2f} of {len(all_ratios)} cases"
                    )
        if args.json:
            args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
