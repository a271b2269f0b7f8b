"""Seconds of `rd.torch` beside DTensor's own `redistribute`, in one run on 8 ranks of this machine, over gloo.

    python -m bench.torch_speed [eager] [states]

in an environment with PyTorch. Two tables, or those that are named: calls on tiny tensors that were planned before, by
default and with every call compared; and model states from FSDP to tensor parallelism by `reshard`, beside a loop over
`DTensor.redistribute`. Ratios are of medians of rounds that take turns; above 1 ours is faster.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

RANKS = 8
ROUNDS = 7


def compared(ways: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Median seconds of each way, measured in turns from barrier to barrier."""
    import torch.distributed as dist

    taken: dict[str, list[float]] = {name: [] for name in ways}
    for call in ways.values():
        call()
        call()
    for _ in range(ROUNDS):
        for name, call in ways.items():
            dist.barrier()
            start = time.perf_counter()
            for _ in range(repeats):
                call()
            dist.barrier()
            taken[name].append((time.perf_counter() - start) / repeats)
    return {name: statistics.median(times) for name, times in taken.items()}


def eager(meshes: dict[str, Any]) -> list[str]:
    """Calls on a tensor of 64 elements."""
    import torch
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

    import redistrib as rd

    rows, ratios = [], []
    shard, copy = Shard, Replicate()
    for mesh, source, target in (
        ("line", [shard(0)], [copy]),
        ("line", [shard(0)], [shard(1)]),
        ("line", [Partial()], [copy]),
        ("line", [Partial()], [shard(0)]),
        ("line", [copy], [shard(0)]),
        ("cube", [shard(0), copy, shard(1)], [shard(0), shard(1), shard(1)]),
        ("cube", [shard(0), shard(0), copy], [shard(0), copy, copy]),
        ("cube", [shard(0), copy, copy], [shard(1), copy, copy]),
        ("cube", [shard(0)] * 3, [shard(1)] * 3),
        ("cube", [shard(0), shard(1), copy], [shard(1), shard(0), copy]),
    ):
        whole, where = torch.arange(64.0).reshape(8, 8), meshes[mesh]
        partial = any(isinstance(one, Partial) for one in source)
        x = DTensor.from_local(whole, where, source) if partial else distribute_tensor(whole, where, source)
        ways = {
            "DTensor": lambda x=x, where=where, target=target: x.redistribute(where, target),
            "ours": lambda x=x, where=where, target=target: rd.torch.redistribute(x, where, target),
            "compared": lambda x=x, where=where, target=target: rd.torch.redistribute(x, where, target, check=True),
        }
        seconds = compared(ways, 10)
        first, second = (seconds["DTensor"] / seconds[name] for name in ("ours", "compared"))
        ratios.append((first, second))
        rows.append(
            f"{source} -> {target}: DTensor {seconds['DTensor'] * 1e6:,.0f} us, {first:.2f}, compared {second:.2f}"
        )
    means = [math.exp(statistics.fmean(map(math.log, column))) for column in zip(*ratios, strict=True)]
    rows.append(f"geometric mean: {means[0]:.2f}, compared {means[1]:.2f}")
    return rows


def transformer(layers: int, width: int, hidden: int, words: int) -> dict[str, tuple[tuple[int, ...], int | None]]:
    """The parameters of an encoder: shape, and the dimension that tensor parallelism cuts."""
    state: dict[str, tuple[tuple[int, ...], int | None]] = {
        "words": ((words, width), 1),
        "places": ((512, width), None),
    }
    for k in range(layers):
        for name in ("query", "key", "value"):
            state |= {f"{k}.{name}.weight": ((width, width), 0), f"{k}.{name}.bias": ((width,), 0)}
        state |= {f"{k}.output.weight": ((width, width), 1), f"{k}.output.bias": ((width,), None)}
        state |= {f"{k}.up.weight": ((hidden, width), 0), f"{k}.up.bias": ((hidden,), 0)}
        state |= {f"{k}.down.weight": ((width, hidden), 1), f"{k}.down.bias": ((width,), None)}
        for norm in ("norm1", "norm2"):
            state |= {f"{k}.{norm}.weight": ((width,), None), f"{k}.{norm}.bias": ((width,), None)}
    return state


def states(meshes: dict[str, Any]) -> list[str]:
    """Model states, of MiniLM's shapes and larger."""
    import torch
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    import redistrib as rd

    rows, grid = [], meshes["grid"]
    for name, shapes in (("MiniLM", transformer(6, 384, 1536, 30522)), ("180M", transformer(12, 1024, 4096, 32000))):
        state = {
            key: distribute_tensor(torch.ones(shape), grid, [Shard(0), Shard(0)]) for key, (shape, _) in shapes.items()
        }
        targets = {
            key: (grid, [Replicate(), Replicate() if dim is None else Shard(dim)]) for key, (_, dim) in shapes.items()
        }
        plan = rd.torch.reshard_plan(state, targets)
        ways = {
            "loop": lambda state=state, targets=targets: [x.redistribute(*targets[key]) for key, x in state.items()],
            "ours": lambda state=state, targets=targets: rd.torch.reshard(state, targets),
        }
        seconds = compared(ways, 1)
        rows.append(
            f"{name}: {len(state)} tensors in {plan.launches} launches, loop {seconds['loop']:.2f} s, "
            f"{seconds['loop'] / seconds['ours']:.2f}"
        )
    return rows


def serve(rank: int, store: str, tables: list[str]) -> None:
    """One rank."""
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(store, RANKS), rank=rank, world_size=RANKS)
    meshes = {
        name: init_device_mesh("cpu", sizes) for name, sizes in (("line", (8,)), ("grid", (2, 4)), ("cube", (2, 2, 2)))
    }
    for table in tables:
        rows = {"eager": eager, "states": states}[table](meshes)
        if rank == 0:
            print("\n".join(rows), flush=True)
    dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    tables = sys.argv[1:] or ["eager", "states"]
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        processes = [context.Process(target=serve, args=(k, str(Path(folder) / "store"), tables)) for k in range(RANKS)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()


if __name__ == "__main__":
    main()
