"""Seconds of `rd.torch` beside DTensor's own `redistribute`, in one run on 8 ranks of this machine, over gloo.

    python -m bench.torch_speed [eager] [states]

in an environment with PyTorch. It prints two tables, or those that are named. `eager` has calls on tiny tensors with a
plan in the cache, with and without the comparison of calls between ranks. `states` has model states from FSDP to tensor
parallelism by `reshard`, beside a loop over `DTensor.redistribute`. Ratios are of medians over alternating rounds;
above 1 ours is faster.
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
from functools import partial
from pathlib import Path
from typing import Any

from bench.rounds import alternate

RANKS = 8
ROUNDS = 7


def compared(ways: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Median seconds of each method, measured in alternation from barrier to barrier."""
    import torch.distributed as dist

    def repeated(call: Callable[[], Any]) -> None:
        for _ in range(repeats):
            call()
        dist.barrier()

    for call in ways.values():
        call()
        call()
    times = alternate({name: partial(repeated, call) for name, call in ways.items()}, ROUNDS, dist.barrier)
    return {name: statistics.median(seconds) / repeats for name, seconds in times.items()}


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
        partial = any(isinstance(placement, Partial) for placement in source)
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
    """The parameters of an encoder: the shape of each, and the dimension that tensor parallelism cuts."""
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


def minilm() -> dict[str, tuple[tuple[int, ...], int | None]]:
    """The 103 parameters of all-MiniLM-L6-v2: its encoder, the norm and types of its embeddings, and the pooler."""
    return transformer(6, 384, 1536, 30522) | {
        "types": ((2, 384), None), "norm.weight": ((384,), None), "norm.bias": ((384,), None),
        "pooler.weight": ((384, 384), 0), "pooler.bias": ((384,), 0),
    }  # fmt: skip


# Name, parameters, element type, memory limit of `reshard` per rank.
STATES = (
    ("MiniLM", minilm(), "float32", "70MiB"),
    ("a billion", transformer(16, 2048, 8192, 92000), "bfloat16", "1GiB"),
)


def states(meshes: dict[str, Any]) -> list[str]:
    """Model states from FSDP over all ranks to tensor parallelism over four ranks, with donated sources."""
    import torch
    import torch.distributed as dist
    from torch.distributed.tensor import DTensor, Replicate, Shard, ones

    import redistrib as rd

    rows, grid = [], meshes["grid"]
    source = [Shard(0), Shard(0)]
    for name, shapes, dtype, limit in STATES:
        targets = {
            key: (grid, [Replicate(), Replicate() if dim is None else Shard(dim)]) for key, (_, dim) in shapes.items()
        }

        def state(shapes: Any = shapes, dtype: str = dtype) -> dict[str, DTensor]:
            kind = getattr(torch, dtype)
            return {
                key: ones(shape, dtype=kind, device_mesh=grid, placements=source) for key, (shape, _) in shapes.items()
            }

        plan = rd.torch.reshard_plan(state(), targets, donate=True, memory_limit=limit)
        taken: dict[str, list[float]] = {"loop": [], "ours": []}
        for turn in range(3):
            for way, times in taken.items():
                source_state = state()
                dist.barrier()
                start = time.perf_counter()
                if way == "ours":
                    moved = rd.torch.reshard(source_state, targets, donate=True, memory_limit=limit)
                else:
                    moved = {}
                    for key in list(source_state):
                        moved[key] = source_state.pop(key).redistribute(*targets[key])
                        moved[key].to_local()
                dist.barrier()
                if turn:
                    times.append(time.perf_counter() - start)
                assert all(bool((x.to_local() == 1).all()) for x in moved.values())
                del moved, source_state
        seconds = {way: statistics.median(times) for way, times in taken.items()}
        count = sum(math.prod(shape) for shape, _ in shapes.values())
        rows.append(
            f"{name}: {len(shapes)} tensors, {count:,} parameters, {plan.launches} launches, at most "
            f"{plan.peak_bytes / 2**20:,.0f} MiB per rank within {limit}, received {plan.received_bytes:,} bytes "
            f"(bound {plan.lower_bound_bytes:,}); loop {seconds['loop']:.2f} s, ours {seconds['ours']:.2f} s, "
            f"{seconds['loop'] / seconds['ours']:.2f} times"
        )
    return rows


def serve(rank: int, store: str, tables: list[str]) -> None:
    """Run the tables on one rank; the first rank prints them."""
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
