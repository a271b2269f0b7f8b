"""Random plans through `rd.to_torch`, held against the NumPy reference."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

import redistrib as rd
from programs.groups import first, outside
from programs.refusals import errors_of, told
from redistrib.backends.torch.dtypes import torch_dtype
from redistrib.lang.mesh import Axis, Mesh
from redistrib.plans.dtypes import dtype_of
from redistrib.plans.reference import run, scatter
from redistrib.testing.cases import all_cuts, cut_type

MESHES = {2: ((2,),), 4: ((4,), (2, 2)), 8: ((8,), (2, 4), (2, 2, 2))}
DTYPES = ("float32", "float64", "bfloat16", "float16", "int8", "uint16", "int32", "int64", "bool", "complex64",
          "complex128", "float8_e4m3fn", "float8_e5m2", "uint64")  # fmt: skip


def tensor_of(array: Any) -> torch.Tensor:
    """A tensor with the bits of a NumPy array."""
    if not array.size:
        return torch.empty(array.shape, dtype=torch_dtype(array.dtype.name))
    flat = torch.from_numpy(np.ascontiguousarray(array).reshape(-1).view(np.uint8).copy())
    return flat.view(torch_dtype(array.dtype.name)).reshape(array.shape)


def bits(value: Any) -> bytes:
    """The bytes of a tensor or an array, and so equal where NaNs are."""
    if isinstance(value, torch.Tensor):
        return bytes(value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return bytes(np.ascontiguousarray(value).tobytes())


def random_array(rng: random.Random, shape: tuple[int, ...], dtype: str, summed: bool = False) -> Any:
    """Random bits, NaNs of every kind among them; but small numbers of floats that may be `summed`."""
    values = np.random.default_rng(rng.randrange(2**32)).integers(0, 256, (*shape, dtype_of(dtype).itemsize))
    if dtype == "bool":
        values = values & 1
    if summed and dtype_of(dtype).kind in "fcV" and dtype not in ("float8_e4m3fn", "float8_e5m2"):
        return (values[..., 0].astype(np.float64) / 8).astype(dtype_of(dtype))
    return np.ascontiguousarray(values.astype(np.uint8)).view(dtype_of(dtype)).reshape(shape)


def random_plan(rng: random.Random, count: int, dtype: str, kind: str) -> Any:
    sizes = rng.choice(MESHES[count])
    mesh = Mesh(tuple(Axis("xyz"[k], n) for k, n in enumerate(sizes)))
    rank = rng.randint(0 if kind == "even" else 1, 4)
    if kind == "partial":
        rank = rng.randint(0, 3)
    cuts = list(all_cuts(mesh.names, rank))
    source, target = rng.choice(cuts), rng.choice(cuts)
    if kind == "uneven":
        shape = tuple(rng.choice([0, 1, 3, 5, 7, 10]) if rng.random() < 0.9 else 4 for _ in range(rank))
        how = [rng.choice(["balanced", "chunk"]) for _ in range(rank)]
        types = [cut_type(mesh, shape, cut, how) for cut in (source, target)]
    else:
        sides = [[math.prod(mesh.axis(n).size for n in names) for names in cut] for cut in (source, target)]
        shape = tuple(math.lcm(a, b) * rng.randint(1, 3) for a, b in zip(*sides, strict=True))
        types = [cut_type(mesh, shape, cut) for cut in (source, target)]
    if kind == "partial":
        used = [set(t.axes) for t in types]
        spare = [[n for n in mesh.names if n not in one] for one in used]
        reduction = rng.choice(["sum", "max", "min"])
        if dtype in ("bool",):
            reduction = rng.choice(["max", "min"])
        if dtype.startswith("complex"):
            reduction = "sum"
        types = [
            replace(t, partial=tuple(p), reduction=reduction if p else None)
            for t, p in ((t, [n for n in s if rng.random() < 0.7]) for t, s in zip(types, spare, strict=True))
        ]
    model = rng.choice(["exact", "cpu", "gpu", "paper"])
    if kind == "uneven" and model == "paper":
        model = "exact"
    return rd.synthesize(*types, mesh, dtype=dtype, machine=model, order=rng.choice(["any", "fixed"]))


def random_plans(count: int, kind: str, seed: int, cases: int) -> dict[str, int]:
    """Run random plans; how often each transport was used."""
    used: dict[str, int] = {}
    if outside(count):
        return used
    rng = random.Random(f"{count} {kind} {seed}")
    rank = dist.get_rank()
    for case in range(cases):
        dtype = DTYPES[case % len(DTYPES)]
        if kind == "partial" and dtype in ("float8_e4m3fn", "float8_e5m2"):
            dtype = "float32"
        plan = random_plan(rng, count, dtype, kind)
        execute = rd.to_torch(plan, first(count))
        for name in execute.transports:
            used[name] = used.get(name, 0) + 1
        if kind == "partial" and plan.before.summands > 1:
            tiles = [random_array(rng, plan.before.tile, dtype, summed=True) for _ in range(count)]
            by_share: dict[Any, Any] = {}
            for d in range(count):  # holders of one partial sum hold the same
                key = (tuple(plan.before.index[d].tolist()), int(plan.before.label[d]))
                tiles[d] = by_share.setdefault(key, tiles[d])
        else:
            tiles = scatter(random_array(rng, plan.shape, dtype, summed=kind == "partial"), plan.before)
        expected = run(plan, tiles)[rank]
        result = execute(tensor_of(tiles[rank]))
        assert result is not None and tuple(result.shape) == expected.shape
        if plan.order == "fixed" or not (plan.before.summands > 1 and dtype in ("float16", "float32")):
            assert bits(result) == bits(expected), (case, plan, tiles[rank], result, expected)
        else:
            np.testing.assert_allclose(result.numpy(), expected, rtol=1e-3)
        apart = tensor_of(tiles[rank])
        again = execute(apart.movedim(0, -1).contiguous().movedim(-1, 0) if apart.ndim else apart)  # strides of its own
        assert again is not None and bits(again) == bits(result)
        out = torch.empty_like(result)
        assert execute(apart, out) is out and bits(out) == bits(result)
    return used


def long_tiles() -> list[str]:
    """Native collectives on tiles long enough for them, whole and in subgroups."""
    names: list[str] = []
    rank = dist.get_rank()
    for source, target, dtype in (
        ("[8{x,y}64, 4096]", "[64, 4096]", "float32"),
        ("[64, 512{x,y}4096]", "[64, 2048{y}4096]", "complex128"),
        ("[64, 4096] sum{x,y}", "[64, 4096]", "float64"),
        ("[64, 4096] sum{x,y}", "[64, 512{x,y}4096]", "int64"),
        ("[64, 2048{y}4096] max{x}", "[16{x}64, 2048{y}4096]", "int32"),
        ("[64, 2048{y}4096] sum{x}", "[64, 2048{y}4096]", "float32"),
    ):
        plan = rd.synthesize(source, target, "x=4,y=2", dtype=dtype, machine="tpu")
        execute = rd.to_torch(plan)
        names += execute.transports
        rng = np.random.default_rng(5)
        tiles = [rng.integers(0, 100, plan.before.tile).astype(dtype) for _ in range(8)]
        if plan.before.summands == 1:
            words = rng.integers(0, 1 << 32, (*plan.shape, np.dtype(dtype).itemsize // 4), np.uint32)  # NaNs among them
            tiles = scatter(words.view(dtype).reshape(plan.shape), plan.before)
        else:
            same: dict[Any, Any] = {}
            for d in range(8):
                tiles[d] = same.setdefault((tuple(plan.before.index[d]), int(plan.before.label[d])), tiles[d])
        result = execute(tensor_of(tiles[rank]))
        assert result is not None and bits(result) == bits(run(plan, tiles)[rank]), plan
    return names


def other_devices(seed: int, cases: int) -> None:
    """Meshes of other devices: ranks that hold nothing pass None and get None."""
    rng = random.Random(seed)
    rank = dist.get_rank()
    for case in range(cases):
        here, there = (sorted(rng.sample(range(8), rng.choice([2, 4]))) for _ in range(2))
        if 7 not in {*here, *there}:
            there[-1] = 7
        source = rd.Mesh.of(f"x={len(here)}", here)
        target = rd.Mesh.of(f"x={len(there)}", there)
        cut = rng.choice([("x", None), (None, "x"), (None, None)]), rng.choice([("x", None), (None, "x"), (None, None)])
        sides = []
        for names, mesh in zip(cut, (source, target), strict=True):
            sides.append("[" + ", ".join(f"{8 // mesh.size}{{x}}8" if n else "8" for n in names) + "]")
        dtype = DTYPES[case % len(DTYPES)]
        plan = rd.synthesize(*sides, source, target_mesh=target, dtype=dtype, machine="exact")
        execute = rd.to_torch(plan)
        tiles = scatter(random_array(rng, (8, 8), dtype), plan.before)
        expected = run(plan, tiles)[rank]
        x = tensor_of(tiles[rank]) if rank in here else None
        result = execute(x)
        assert (result is None) == (rank not in there)
        if result is not None:
            assert bits(result) == bits(expected)


def refusals() -> list[str]:
    """Wrong calls: every rank raises the same error, and the group works on."""
    rank = dist.get_rank()
    plan = rd.synthesize("[1{x}8, 8]", "[8, 1{x}8]", "x=8")
    other = rd.synthesize("[1{x}8, 8]", "[8, 8]", "x=8")
    execute, gather = rd.to_torch(plan), rd.to_torch(other)
    x = torch.arange(8.0).reshape(1, 8)
    both = torch.zeros(9)
    errors = errors_of(
        (
            lambda: rd.to_torch(plan if rank else other),
            lambda: rd.to_torch(plan, memory_limit=1 << 20 if rank == 3 else None),
            lambda: rd.to_torch(plan, memory_limit="65B"),
            lambda: rd.to_torch(rd.synthesize("[1{x}4]", "[4]", "x=4")),
            lambda: execute(x if rank != 5 else x.double()),
            lambda: execute(x if rank != 2 else x.reshape(8, 1)),
            lambda: execute(x if rank != 1 else None),
            lambda: (execute if rank < 4 else gather)(x),
            lambda: execute(both[:8].reshape(1, 8), both[1:].reshape(8, 1) if rank == 6 else None),
            lambda: rd.to_torch(plan, "gloo"),
        )
    )
    result = execute(x + rank)
    assert result is not None and torch.equal(result[:, 0], torch.arange(8.0) + rank)
    return errors


def wide_sums() -> tuple[int, int, list[str]]:
    """Bytes that accumulators of float32 add to a sum of bfloat16; what it needs, and what the limits around it say."""
    plain, wide = (
        rd.to_torch(rd.synthesize("[64] sum{x}", "[8{x}64]", "x=8", dtype="bfloat16", order="fixed", accumulate=name))
        for name in ("bfloat16", "float32")
    )
    needed = 2 * (64 + 8) + wide.middle_bytes + wide.scratch_bytes
    said = [told(lambda limit=limit: rd.to_torch(wide.plan, memory_limit=limit)) for limit in (needed - 1, needed)]
    return wide.scratch_bytes - plain.scratch_bytes, needed, said


def disagreements() -> list[tuple[str, str, float]]:
    """One rank of 8 prepares or runs another call: for each pair what each rank is told, and when."""
    rank = dist.get_rank()
    plans = [rd.synthesize("[1{x}8, 8]", target, "x=8") for target in ("[8, 1{x}8]", "[8, 8]")]
    small = rd.synthesize("[1{x}4]", "[4]", "x=4")
    nest = rd.nest("ij->ij", (8, 8), name="first", reads=["x"], writes="y", fn=lambda x: x)
    program = rd.partition([nest], {"first": (8, 1)})
    unknown = replace(plans[0], dtype="float128")
    executors = [rd.to_torch(plan) for plan in plans]
    x = torch.arange(8.0).reshape(1, 8) + rank
    good = plans[0]
    preparing: dict[str, Callable[[], Any]] = {
        "the call": lambda: rd.to_torch(good),
        "another plan": lambda: rd.to_torch(plans[1]),
        "a plan of other devices": lambda: rd.to_torch(small),
        "an element type": lambda: rd.to_torch(unknown),
        "a program": lambda: rd.to_torch(program),
        "no plan": lambda: rd.to_torch(None),  # type: ignore[arg-type]
        "not compared": lambda: rd.to_torch(good, check=False),
    }
    limits: list[Any] = ["much", -1, [2], 1, 10**6, "10 MB"]
    preparing |= {f"limit {limit}": lambda limit=limit: rd.to_torch(good, memory_limit=limit) for limit in limits}
    running: dict[str, Callable[[], Any]] = {
        "the call": lambda: executors[0](x),
        "another": lambda: executors[1](x),
        "a shape": lambda: executors[0](x.T),
        "a type": lambda: executors[0](x.double()),
        "a text": lambda: executors[0]("x"),  # type: ignore[arg-type]
        "memory": lambda: executors[0](x, torch.empty(3)),
    }
    said = []
    for number, calls in enumerate((preparing, running)):
        for k, (name, call) in enumerate(calls.items()):
            for common in ("the call", name) if name != "the call" else ():
                other = call if common == "the call" else calls["the call"]
                dist.barrier()
                start = time.monotonic()
                text = told(other if rank == (3 * k + number) % 8 else calls[common])
                kind = f"{common}, one rank with {name if other is call else 'the call'}"
                said.append((kind, text, time.monotonic() - start))
                result = executors[0](x)
                assert result is not None and torch.equal(result[:, 0], torch.arange(8.0) + rank), name
    return said


def measured() -> int:
    """A profile from this backend's own measurement."""
    from redistrib.backends.torch import measure
    from redistrib.cost.fit import fit_profile

    samples = measure(tile_bytes=(1 << 10, 1 << 17), repeats=2)
    assert (samples is None) == (dist.get_rank() > 0)
    if samples is None:
        return 0
    assert {sample.kind for sample in samples} == {"allgather", "alltoall", "allpermute"}
    assert fit_profile(samples, "here", "measured with PyTorch").profile.name == "here"
    return len(samples)
