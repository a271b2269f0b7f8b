"""Plans that the search emits, over seeded random redistributions on meshes of at most 24 devices."""

from __future__ import annotations

import dataclasses
import json
import math
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from proofs.bridge.export import Form, plan_term
from redistrib import Mesh, synthesize
from redistrib.cost.latency import LatencyBandwidth
from redistrib.cost.presets import PRESETS
from redistrib.errors import MemoryLimitError
from redistrib.lang.types import DimType, DistType
from redistrib.plans.plan import Plan
from redistrib.plans.steps import (
    AllGather,
    AllPermute,
    AllReduce,
    AllToAll,
    DynSlice,
    Exchange,
    ReduceExchange,
    ReduceScatter,
    Unreduce,
)

MESHES = (
    "x=2", "x=3", "x=4", "x=6", "x=8", "x=2,y=2", "x=2,y=3", "x=3,y=3", "x=2,y=4", "x=4,y=3", "x=2,y=6", "x=5,y=2",
    "x=2,y=2,z=2", "x=2,y=3,z=2", "x=4,y=4", "x=2,y=2,z=3", "x=2,y=1,z=4", "x=4,y=6", "x=2,y=3,z=4", "x=3,y=2,z=2",
)  # fmt: skip
# A backend that carries a whole exchange in one call gets it ragged, others in rounds.
ONE_CALL = dataclasses.replace(PRESETS["cpu"], name="one call", fused_exchange=True)
SEARCHES: tuple[tuple[str, str | LatencyBandwidth], ...] = (
    ("best", "exact"), ("best", ONE_CALL), ("best", "tpu"), ("paper", "paper"), ("best", "cpu"), ("best", "gpu"),
    ("paper", "exact"),
)  # fmt: skip
FACTORS = (1, 1, 1, 2, 3, 4, 5, 6, 2**20, 3 * 2**33)


@dataclass(frozen=True)
class Sample:
    """A plan of the corpus.

    Attributes:
        form: its JSON form.
        bound: the largest tile allowed, in elements.
        ways: how it moves data, see `ways_of`.
    """

    form: Form
    bound: int
    ways: frozenset[str]


def corpus(count: int, seed: int = 6) -> list[Sample]:
    """That many different plans, at most a tenth of them using the very same ways."""
    return varied(((plan, bound, ways_of(plan)) for plan, bound in _plans(random.Random(seed))), count, 10)


def varied(plans: Iterable[tuple[Plan, int, frozenset[str]]], count: int, share: int) -> list[Sample]:
    """The first so many different plans, given with bounds and ways; at most one in `share` has the very same ways."""
    found: dict[str, Sample] = {}
    alike: Counter[frozenset[str]] = Counter()
    for plan, bound, ways in plans:
        form = json.loads(plan.to_json())
        # A limit in bytes counts scratch too, of which the checker in Coq knows nothing: it has the bound on tiles.
        form["memory_limit"] = None
        term = plan_term(form)
        if term not in found and alike[ways] < max(1, count // share):
            alike[ways] += 1
            found[term] = Sample(form, bound, ways)
        if len(found) == count:
            break
    return list(found.values())


def larger_end(plan: Plan) -> int:
    """The larger of source and target tile, in elements."""
    return max(plan.before.tile_size, plan.after.tile_size)


LARGEST_LIMIT = 2**63  # bytes; arrays of more are drawn too


def _plans(rng: random.Random) -> Iterator[tuple[Plan, int]]:
    """Endless plans with their bounds."""
    while True:
        mesh, target_mesh, source, target = problem(rng)
        algorithm, model = rng.choice(SEARCHES)
        plan = synthesize(str(source), str(target), mesh, target_mesh=target_mesh, algorithm=algorithm, machine=model)
        larger = larger_end(plan)
        yield plan, larger
        limit = int(plan.peak_bytes * rng.choice((0.6, 0.7, 0.8, 2, 4, 16)))
        if rng.random() < 0.4 and any(plan.received) and limit < LARGEST_LIMIT:
            try:
                limited = synthesize(
                    str(source), str(target), mesh, target_mesh=target_mesh, machine=model, memory_limit=limit
                )
            except MemoryLimitError:
                continue
            yield limited, max(larger, limited.height)


def problem(rng: random.Random) -> tuple[Mesh, Mesh, DistType, DistType]:
    """Source and target mesh and type; an axis cuts one dimension or none."""
    mesh = Mesh.of(rng.choice(MESHES))
    if rng.random() < 0.15:
        mesh = Mesh(mesh.axes, tuple(rng.sample(range(mesh.size), mesh.size)))
    target_mesh = mesh
    if rng.random() < 0.3:
        axes = rng.choice([m for m in map(Mesh.of, MESHES) if m.size == mesh.size]).axes
        devices = tuple(rng.sample(range(mesh.size), mesh.size)) if rng.random() < 0.5 else mesh.devices
        target_mesh = Mesh(axes, devices)
    return mesh, target_mesh, *types(rng, mesh, target_mesh)


def types(rng: random.Random, mesh: Mesh, target_mesh: Mesh) -> tuple[DistType, DistType]:
    """Source and target type of one array, each on its mesh."""
    rank = rng.choice((1, 1, 2, 2, 2, 2, 3, 3)) if rng.random() < 0.98 else 0
    source, target = _cut(rng, mesh, rank), _cut(rng, target_mesh, rank)
    if rank and rng.random() < 0.15:  # one dimension over two axes in turn: tiles that seldom divide one another
        source[0], target[0] = [mesh.names[0]], [target_mesh.names[-1]]
        source[1:], target[1:] = [[] for _ in source[1:]], [[] for _ in target[1:]]
    shape = [
        math.lcm(_tiles(mesh, s), _tiles(target_mesh, t)) * rng.choice(FACTORS)
        for s, t in zip(source, target, strict=True)
    ]
    if rank and rng.random() < 0.06:
        shape[rng.randrange(rank)] = 0
    return _type(mesh, source, shape), _type(target_mesh, target, shape)


def _cut(rng: random.Random, mesh: Mesh, rank: int) -> list[list[str]]:
    """Mesh axes, minor to major, for every dimension; now and then an axis cuts none."""
    dims: list[list[str]] = [[] for _ in range(rank)]
    for name in rng.sample(mesh.names, len(mesh.names)):
        if rank and rng.random() < 0.8:
            rng.choice(dims).append(name)
    return dims


def _tiles(mesh: Mesh, names: list[str]) -> int:
    return math.prod(mesh.axis(name).size for name in names)


def _type(mesh: Mesh, cut: list[list[str]], shape: list[int]) -> DistType:
    dims = zip(shape, cut, strict=True)
    return DistType(tuple(DimType(size // _tiles(mesh, names), tuple(names), size) for size, names in dims))


# -------------------------------------------------------------------------------------- what a plan uses

WAYS = (
    "nothing", "slice", "gather", "gather over several dimensions", "all-to-all", "all-to-all over several dimensions",
    "all-to-all with repeated shares", "permute", "all-to-all and permute", "rounds of equal shares",
    "rounds of unequal shares", "more memory than either end", "sequence of the paper",
    "slice, exchange, gather", "two device orders", "tiles beyond 64 bits", "no elements, but steps",
    "ragged all-to-all", "exchange without shares", "rounds of several shapes",
    "devices that hold nothing on the way",
)  # fmt: skip


def ways_of(plan: Plan) -> frozenset[str]:
    """Which of `WAYS` a plan uses."""
    ways: set[str] = set()
    kinds = [type(step) for step in plan.steps]
    for step in plan.steps:
        ways |= _ways_of_step(step)
    if not kinds:
        ways.add("nothing")
    if {AllToAll, AllPermute} <= set(kinds):
        ways.add("all-to-all and permute")
    if plan.algorithm == "paper" and len(kinds) > 1:
        ways.add("sequence of the paper")
    if len(kinds) > 2 and kinds[0] is DynSlice and kinds[-1] is AllGather:
        ways.add("slice, exchange, gather")
    if plan.source_mesh.devices != plan.target_mesh.devices:
        ways.add("two device orders")
    if any(step.after.nowhere.any() for step in plan.steps[:-1]):
        ways.add("devices that hold nothing on the way")
    if plan.height > larger_end(plan):
        ways.add("more memory than either end")
    if plan.height == 0 and kinds:
        ways.add("no elements, but steps")
    if plan.height >= 2**63:
        ways.add("tiles beyond 64 bits")
    return frozenset(ways)


def _ways_of_step(step: object) -> set[str]:
    match step:
        case DynSlice():
            return {"slice"}
        case AllPermute():
            return {"permute"}
        case AllGather():
            grown = sum(b != a for b, a in zip(step.before.grid, step.after.grid, strict=True))
            return {"gather", "gather over several dimensions"} if grown > 1 else {"gather"}
        case AllToAll():
            ways = {"all-to-all"}
            if sum(b != a for b, a in zip(step.before.grid, step.after.grid, strict=True)) > 2:
                ways.add("all-to-all over several dimensions")
            ends = step.after.number[step.groups]
            if any(len(set(row)) < len(row) for row in ends.tolist()):
                ways.add("all-to-all with repeated shares")
            return ways
        case Exchange():
            return _ways_of_exchange(step)
        case ReduceScatter() | AllReduce() | ReduceExchange() | Unreduce():
            return set()  # see `corpus_partial`
        case _:
            raise TypeError(f"{step!r} is no step")


def _ways_of_exchange(step: Exchange) -> set[str]:
    sizes = set(map(tuple, step.shares.box.size.tolist()))
    if step.implementation == "ragged":
        return {"ragged all-to-all"}
    if not sizes:
        return {"exchange without shares"}
    if step.shares.mixed:
        return {"rounds of several shapes"}
    return {"rounds of equal shares" if len(sizes) == 1 else "rounds of unequal shares"}
