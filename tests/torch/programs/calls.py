"""Ranks that do not make the same calls: what each of them is told."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

import redistrib as rd
from programs.dtensors import hold, make, mesh_of
from programs.refusals import told
from redistrib.backends.torch.tagged_links import TaggedLinks
from redistrib.launches import times


def different(which: str) -> list[str]:
    """What every rank is told in one case; afterwards all make the same call, which works."""
    mesh, rank = mesh_of(tuple(range(8)), (8,)), dist.get_rank()
    whole = torch.arange(64.0).reshape(8, 8)
    x, copy = make(whole, mesh, [Shard(0)]), make(whole, mesh, [Replicate()])
    wrong = DTensor.from_local(
        torch.ones(1 + (rank == 3), 8), mesh, [Shard(0)], shape=whole.shape, stride=whole.stride()
    )
    for source, end in ((x, [Shard(1)]), (x, [Replicate()]), (copy, [Shard(0)])):
        rd.torch.redistribute(source, mesh, end)
    said = []
    if which == "two known calls":
        said.append(told(lambda: rd.torch.redistribute(x, mesh, [Replicate() if rank == 2 else Shard(1)])))
    elif which == "a new call":
        limit = 1 << 30 if rank == 4 else None
        said.append(told(lambda: rd.torch.redistribute(x, mesh, [Shard(1)], memory_limit=limit)))
    elif which == "a wrong tensor":
        said.append(told(lambda: rd.torch.redistribute(wrong, mesh, [Shard(1)])))
    elif which == "wrong placements":
        said.append(told(lambda: rd.torch.redistribute(x, mesh, [Shard(5 if rank == 6 else 1)])))
    elif which == "compared by one":
        said.append(told(lambda: rd.torch.redistribute(x, mesh, [Shard(1)], check=True if rank == 5 else None)))
    elif which == "nothing travels":
        # A slice waits for nobody; the call after it does.
        (lambda: rd.torch.redistribute(copy if rank == 1 else x, mesh, [Shard(0)]))()
        said.append(told(lambda: rd.torch.redistribute(x, mesh, [Shard(1)])))
    elif which == "a tree":
        call = (lambda: rd.torch.reshard({"x": x}, [Shard(1)])) if rank == 7 else None
        said.append(told(call or (lambda: rd.torch.redistribute(x, mesh, [Shard(1)]))))
    hold(rd.torch.redistribute(x, mesh, [Shard(1)]), whole, mesh, [Shard(1)], "afterwards")
    return said


def in_another_order() -> str:
    """Two calls among some ranks each, which two ranks make in different orders."""
    rank = dist.get_rank()
    here, there = mesh_of((0, 1, 2, 3), (4,)), mesh_of((2, 3, 4, 5), (4,))
    whole = torch.arange(16.0).reshape(4, 4)
    pairs = [(mesh, make(whole, mesh, [Shard(0)])) for mesh in (here, there)]
    for mesh, x in pairs:
        rd.torch.redistribute(x, mesh, [Shard(1)])
    if rank == 3:
        pairs.reverse()
    said = told(lambda: [rd.torch.redistribute(x, mesh, [Shard(1)]) for mesh, x in pairs])
    for mesh, x in ((mesh, x) for mesh, x in sorted(pairs, key=lambda pair: pair[0].mesh.tolist())):
        hold(rd.torch.redistribute(x, mesh, [Shard(1)]), whole, mesh, [Shard(1)], "afterwards")
    return said


def readers() -> list[int]:
    """The scheduling policies of the threads that read sockets for the calls of two ranks."""
    mesh = mesh_of((0, 1), (2,))
    before = _readers()
    whole = torch.arange(16.0).reshape(4, 4)
    x = make(whole, mesh, [Shard(0)])
    hold(rd.torch.redistribute(x, mesh, [Replicate()]), whole, mesh, [Replicate()], "two")
    return [os.sched_getscheduler(task) for task in _readers() - before]


def _readers() -> set[int]:
    tasks = [task for task in Path("/proc/self/task").iterdir() if "gloo_tcp_loop" in (task / "comm").read_text()]
    return {int(task.name) for task in tasks}


def late(seconds: float) -> str:
    """A rank that comes late is waited for, however the others ask meanwhile."""
    mesh = mesh_of(tuple(range(8)), (8,))
    whole = torch.arange(64.0).reshape(8, 8)
    x = make(whole, mesh, [Shard(0)])
    rd.torch.redistribute(x, mesh, [Shard(1)])
    if dist.get_rank() == 3:
        time.sleep(seconds)
    return told(lambda: rd.torch.redistribute(x, mesh, [Shard(1)]))


def missing(how: str, within: float) -> str:
    """One rank of 4 does not come to a call within so many seconds: it does something else, raises, or ends."""
    times.WAIT_SECONDS = within
    mesh, rank = mesh_of(tuple(range(4)), (4,)), dist.get_rank()
    whole = torch.arange(16.0).reshape(4, 4)
    x = make(whole, mesh, [Shard(0)])
    if how != "from the first":
        rd.torch.redistribute(x, mesh, [Shard(1)])
    if rank == 1:
        if how == "ends":
            os._exit(3)
        if how == "raises":
            raise ValueError("something else")
        return "away"
    return told(lambda: rd.torch.redistribute(x, mesh, [Shard(1)]))


def plan_missing(how: str, within: float) -> str:
    """One rank of 4 does not prepare a plan, or does not run it, and another is late."""
    times.WAIT_SECONDS, rank = within, dist.get_rank()
    mesh = mesh_of(tuple(range(4)), (4,))
    plan = rd.synthesize([Shard(0)], [Shard(1)], mesh, shape=(4, 4))
    if rank == 2:
        time.sleep(0.6 * within)
    if how == "prepared by all":
        execute = rd.to_torch(plan)
        execute(torch.zeros(1, 4))
        time.sleep(0.6 * within if rank == 2 else 0)
        return "away" if rank == 1 else told(lambda: execute(torch.zeros(1, 4)))
    return "away" if rank == 1 else told(lambda: rd.to_torch(plan))


def left_out(other: int, last: int, within: float) -> tuple[str, float]:
    """A rank leaves out the last of some calls, and makes it too late: what each is told, and when."""
    times.WAIT_SECONDS = within
    mesh = mesh_of(tuple(range(dist.get_world_size())), (dist.get_world_size(),))
    whole = torch.arange(128.0).reshape(8, 16)
    x, start = make(whole, mesh, [Shard(0)]), 0.0

    def calls() -> None:
        nonlocal start
        for k in range(last + 1):
            if k == last:
                start = time.monotonic()
                if dist.get_rank() == other:
                    time.sleep(16)
            end = [Shard(1) if k % 2 else Replicate()]
            hold(rd.torch.redistribute(x, mesh, end), whole, mesh, end, k)

    said = told(calls)
    seconds = time.monotonic() - start
    time.sleep(max(0.0, 16 - seconds))
    hold(rd.torch.redistribute(x, mesh, [Shard(1)]), whole, mesh, [Shard(1)], "afterwards")
    return said, seconds


def stopped(other: int) -> str:
    """The function that reports progress raises on one rank, between launches: what each rank is told."""
    mesh = mesh_of(tuple(range(8)), (8,))
    whole = torch.arange(64.0).reshape(8, 8)
    state = {"x": make(whole, mesh, [Shard(0)]), "sum": make(whole, mesh, [Partial()])}

    def progress(*_: int) -> None:
        if dist.get_rank() == other:
            raise ValueError("enough")

    try:
        said = told(lambda: rd.torch.reshard(state, [Shard(1)], progress=progress))
    except ValueError as error:
        said = f"ValueError: {error}"
    hold(rd.torch.reshard(state, [Shard(1)])["x"], whole, mesh, [Shard(1)], "afterwards")
    return said


def before_the_meeting(which: str) -> tuple[str, float]:
    """One rank errs before it can meet the others: what each rank is told, and after how many seconds."""
    mesh, rank = mesh_of(tuple(range(8)), (8,)), dist.get_rank()
    whole = torch.arange(64.0).reshape(8, 8)
    x = make(whole, mesh, [Shard(0)])
    wrong: dict[str, dict[str, Any]] = {
        "plain": {}, "nested": {"placements": [[Shard(0)]]}, "one": {"placements": 5}, "mesh": {"device_mesh": 4},
        "hosts": {"topology": 3}, "few": {"topology": [0, 1]}, "order": {"shard_order": {1: 0}},
        "orders": {"shard_order": 7}, "limit": {"memory_limit": "much"}, "model": {"machine": [1]},
        "dtype": {"forward_dtype": "float32"}, "back": {"backward_dtype": 3}, "dim": {"placements": [Shard(7)]},
        "everyone": {"placements": 5}, "no shape": {}, "wrong twice": {"placements": 5},
    }  # fmt: skip
    good: dict[str, Any] = {"device_mesh": mesh, "placements": [Shard(1)]}
    rd.torch.redistribute(x, **good)
    errs = rank == 3 or which == "everyone"
    options = good | wrong[which] if errs else good
    y: Any = whole if which == "plain" and errs else x
    if which == "no shape" and errs:
        y = DTensor.from_local(torch.ones(3, 8), mesh, [Shard(0)], run_check=False)
    dist.barrier()
    start = time.monotonic()
    said = told(lambda: rd.torch.redistribute(y, **options))
    if which == "wrong twice" and not errs:
        hold(rd.torch.redistribute(x, **good), whole, mesh, [Shard(1)], "between")
    elif which == "wrong twice":
        rd.torch.redistribute(x, **good)
    seconds = time.monotonic() - start
    hold(rd.torch.redistribute(x, **good), whole, mesh, [Shard(1)], "afterwards")
    if which in ("hosts", "limit", "model", "nested"):
        end = {"targets": [[[Shard(1)]]]} if which == "nested" else wrong[which]
        arguments = {"targets": [Shard(1)]} | (end if errs else {})
        tree = told(lambda: rd.torch.reshard({"x": x}, **arguments))
        assert "rank 3" in tree or errs, tree
        hold(rd.torch.reshard({"x": x}, [Shard(1)])["x"], whole, mesh, [Shard(1)], "a tree afterwards")
    return said, seconds


def alone_and_late() -> str:
    """A rank errs where nobody waits yet; the others raise it later, and all later calls match, though one is late."""
    mesh, rank = mesh_of(tuple(range(8)), (8,)), dist.get_rank()
    whole = torch.arange(64.0).reshape(8, 8)
    x = make(whole, mesh, [Shard(0)])
    said = told(lambda: rd.torch.redistribute(whole)) if rank == 2 else ""
    assert rank != 2 or "is no DTensor" in said
    dist.barrier()
    if rank != 2:
        said = told(lambda: rd.torch.redistribute(x, mesh, [Shard(1)]))
        assert "rank 2: Tensor is no DTensor" in said, said
    hold(rd.torch.redistribute(x, mesh, [Shard(1)]), whole, mesh, [Shard(1)], "first")
    if rank == 2:
        time.sleep(2.5)
    hold(rd.torch.redistribute(x, mesh, [Replicate()]), whole, mesh, [Replicate()], "second")
    return said


def errors_in_a_row(which: str, late: float) -> list[list[str]]:
    """What each call of several is told, with errors in a row and no barrier, and rank 1 late: once for each function.

    Args:
        which: the ranks that err: "all" of them, "one", or "each" in a turn of its own.
        late: seconds by which rank 1 is late for the first error.
    """
    count, rank = dist.get_world_size(), dist.get_rank()
    mesh = mesh_of(tuple(range(count)), (count,))
    whole = torch.arange(64.0).reshape(8, 8)
    x, end = make(whole, mesh, [Shard(0)]), [Shard(1)]
    plan = rd.synthesize([Shard(0)], end, mesh, shape=(8, 8))
    tile = whole[rank * 8 // count :][: 8 // count].contiguous()

    def redistribute(k: int, errs: bool) -> None:
        if errs:
            rd.torch.redistribute(type(f"Number{k}", (), {})())
        hold(rd.torch.redistribute(x + k, mesh, end), whole + k, mesh, end, k)

    def reshard(k: int, errs: bool) -> None:
        hold(rd.torch.reshard({"x": x + k}, [Shard(10 + k)] if errs else end)["x"], whole + k, mesh, end, k)

    def to_torch(k: int, errs: bool) -> None:
        tiles = rd.to_torch(plan, memory_limit=f"{k} apples" if errs else None)(tile + k)
        assert tiles is not None and torch.equal(tiles, (whole + k)[:, rank * 8 // count :][:, : 8 // count])

    said = []
    for call in (redistribute, reshard, to_torch):
        call(9, False)
        time.sleep(late if rank == 1 else 0.0)
        said.append([])
        for k in range(6):
            errs = k in (0, 1, 3) and (which == "all" or rank == (0 if which == "one" else k % count))
            said[-1].append(told(lambda: call(k, errs)))  # noqa: B023
    return said


def table(count: int, seed: int) -> list[tuple[str, str, float]]:
    """One rank of some deviates from three calls that all make: for each kind what each rank is told, and when.

    Args:
        count: how many ranks make the calls.
        seed: draws the rank that deviates, and the call at which it does.
    """
    mesh, rank = mesh_of(tuple(range(count)), (count,)), dist.get_rank()
    turned = mesh_of(tuple(range(count))[::-1], (count,))
    whole = torch.arange(float(count * count * 2)).reshape(count, 2 * count)
    x, tensors = make(whole, mesh, [Shard(0)]), {"a": make(whole, mesh, [Shard(0)])}

    def call(k: int, **options: Any) -> None:
        end = [[Shard(1)], [Replicate()], [Shard(1)]][k]
        hold(rd.torch.redistribute(x, **{"device_mesh": mesh, "placements": end} | options), whole, mesh, end, k)

    def told_nothing(_: Any) -> None:
        """The end of a call without an error."""

    def failing(k: int, owner: Any, name: str, after: bool) -> None:
        """A call in which a function fails on this rank, before it has done anything or afterwards."""
        function = getattr(owner, name)

        def fails(*arguments: Any, **options: Any) -> None:
            function(*arguments, **options) if after else None
            raise MemoryError(name)

        with patch.object(owner, name, fails):
            call(k)

    def tree(state: Any, **options: Any) -> None:
        rd.torch.reshard(state, **{"targets": [Shard(1)]} | options)

    kinds: dict[str, Callable[[int], None]] = {
        "another mesh": lambda k: call(k, device_mesh=turned),
        "another target": lambda k: call(k, placements=[[Replicate()], [Shard(1)], [Replicate()]][k]),
        "another tensor": lambda k: told_nothing(rd.torch.redistribute(make(whole.T, mesh, [Shard(0)]))),
        "another dtype": lambda k: call(k, forward_dtype=torch.float64),
        "another option": lambda k: call(k, memory_limit="1GiB"),
        "compared": lambda k: call(k, check=True),
        "an error before": lambda k: call(k, topology=5),
        "an error between": lambda k: told_nothing(rd.torch.redistribute(whole)),
        "an error during, before messages": lambda k: failing(k, torch, "empty", after=False),
        "an error during, between messages": lambda k: failing(k, TaggedLinks, "start", after=True),
        "a call too few": lambda k: None,
    }  # fmt: skip
    everyone = count == dist.get_world_size()
    if everyone:  # a tree is a call of all ranks, and of the others the next call would be told
        kinds["a tree"] = lambda k: tree(tensors)
    said = []
    for number, (kind, deviation) in enumerate(kinds.items()):
        other, at = (seed + 3 * number) % count, (seed + number) % 2
        for k in range(3):
            call(k) if rank < count else None
        dist.barrier()
        start = time.monotonic()

        def calls(deviation: Callable[[int], None] = deviation, other: int = other, at: int = at) -> None:
            for k in range(3):
                deviation(k) if rank == other and k == at else call(k)

        text = told(calls) if rank < count else ""
        said.append((kind, text, time.monotonic() - start))
        dist.barrier()
        call(0) if rank < count else None
    if everyone:
        for kind, own, at in (
            ("another tree", lambda: tree({"b": x}), 1),
            ("a tree in another dtype", lambda: tree({"a": x.to(torch.int32)}), 2),
            ("a tree with a limit", lambda: tree(tensors, memory_limit="1GiB"), 3),
            ("a tree that errs", lambda: tree(tensors, topology=5), 4),
            ("a tree of a target", lambda: tree(tensors, targets={"a": [Shard(9)]}), 5),
        ):
            start = time.monotonic()
            text = told(own if rank == at else lambda: tree(tensors))
            said.append((kind, text, time.monotonic() - start))
            dist.barrier()
    return said
