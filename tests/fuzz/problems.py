"""Random problems: meshes, types, models, limits, made by a seed and an index."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import redistrib as rd
from redistrib.cost.latency import Latency, LatencyBandwidth
from redistrib.lang.mesh import Axis, Mesh
from tests.fuzz.interpreter import ITEMSIZE

DEVICES = {
    1: 2, 2: 5, 3: 4, 4: 8, 5: 3, 6: 9, 7: 2, 8: 12, 9: 5, 10: 4, 12: 14, 15: 3, 16: 8, 18: 7, 20: 5, 24: 12,
    30: 3, 32: 2, 36: 3, 40: 2, 48: 2, 60: 1, 64: 1.5, 72: 1, 96: 0.5, 120: 0.5, 128: 0.3, 256: 0.1,
}  # fmt: skip
NAMES = ("x", "y", "z", "u", "v", "w", "a", "b", "c")
ODD_NAMES = ("x0", "x1", "x_0", "y0", "a b", "é", '"', "\\", "データ", "0", ",", "{x}", "sum")
PRESETS = ("exact", "exact", "paper", "tpu", "gpu", "cpu")
PER_HOST = (1, 2, 3, 3, 3, 4, 4, 4, 5, 5, 5, 6, 7, 8)
LIMITS = (0.3, 0.9, 1.0, 1.0, 1.05, 1.25, 1.5, 2.0, 3.0, 8.0)  # of source and target tile together
MOST_BYTES = 2**63 - 1  # of a memory limit
MOST_ELEMENTS = 20_000
MOST_HELD = 1 << 18  # elements of all source or target tiles together
MOST_COUNTED = 1 << 21  # summands of elements of all source or target tiles together
FLAWS = ("tile", "axis", "again", "shape", "devices", "dtype", "model", "algorithm", "limit")
PARTIAL_FLAWS = ("no such sum", "another reduction", "summed up otherwise", "the paper's")
REDUCTIONS = ("sum", "sum", "max", "min")
OTHER_KIND = {"float": "int64", "int": "float64", "complex": "float64"}  # in which sums of a kind are not added up

Cut = tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Side:
    """A mesh and a cut: axis sizes by name, device numbers row by row, axes minor to major per dimension.

    Attributes:
        partial: axes along which tiles are summands, minor to major.
        reduction: of these.
    """

    axes: tuple[tuple[str, int], ...]
    order: tuple[int, ...]
    cut: Cut
    partial: tuple[str, ...] = ()
    reduction: str = "sum"

    @property
    def mesh(self) -> Mesh:
        return Mesh(tuple(Axis(name, size) for name, size in self.axes), self.order)

    @property
    def counts(self) -> tuple[int, ...]:
        """Tiles per dimension."""
        return tuple(math.prod(dict(self.axes)[name] for name in names) for names in self.cut)

    @property
    def summands(self) -> int:
        return math.prod(dict(self.axes)[name] for name in self.partial)

    def type(self, shape: Sequence[int]) -> str:
        dims = (
            f"{size // count}{{{','.join(map(quoted, names))}}}{size}" if names else str(size)
            for size, count, names in zip(shape, self.counts, self.cut, strict=True)
        )
        summed = f" {self.reduction}{{{','.join(map(quoted, self.partial))}}}" if self.partial else ""
        return f"[{', '.join(dims)}]{summed}"


@dataclass(frozen=True)
class Problem:
    """All arguments of one call of `synthesize`.

    Attributes:
        model: a name, or the arguments of a `LatencyBandwidth`.
        flaw: one of `FLAWS` or `PARTIAL_FLAWS` that makes the call one to be refused, or "".
    """

    shape: tuple[int, ...]
    source: Side
    target: Side
    dtype: str = "float32"
    model: str | dict[str, Any] = "exact"
    algorithm: str = "best"
    over_partition: bool = True
    memory_limit: int | str | None = None
    flaw: str = field(default="")
    accumulate: str | None = None
    summing: str = "any"

    @property
    def partial(self) -> bool:
        """Whether tiles are summands at either end."""
        return bool(self.source.partial or self.target.partial)

    @property
    def devices(self) -> int:
        return math.prod(size for _, size in self.source.axes)

    def tile(self, side: Side) -> int:
        """Elements of a tile."""
        return math.prod(size // count for size, count in zip(self.shape, side.counts, strict=True))

    def arguments(self) -> dict[str, Any]:
        """By name; a flaw changes one of them."""
        given: dict[str, Any] = {
            "source": self.source.type(self.shape),
            "target": self.target.type(self.shape),
            "mesh": self.source.mesh,
            "target_mesh": self.target.mesh,
            "dtype": self.dtype,
            "machine": self.model if isinstance(self.model, str) else profile(self.model),
            "algorithm": self.algorithm,
            "over_partition": self.over_partition,
            "memory_limit": self.memory_limit,
            "accumulate": self.accumulate,
            "order": self.summing,
        }
        axis = quoted(self.source.axes[0][0]) if self.source.axes else "x"
        flaws: dict[str, dict[str, Any]] = {
            "tile": {"source": given["source"].replace("]", f"{', ' if self.shape else ''}3{{{axis}}}1]")},
            "axis": {"target": given["target"].replace("]", f"{', ' if self.shape else ''}1{{nowhere}}1]")},
            "again": {"target": f"[1{{{axis},{axis}}}1]"},
            "shape": {"target": given["target"].replace("]", f"{', ' if self.shape else ''}1]")},
            "devices": {"target_mesh": Mesh((*self.target.mesh.axes, Axis("more", 2))), "algorithm": "paper"},
            "dtype": {"dtype": "float33"},
            "model": {"machine": "free"},
            "algorithm": {"algorithm": "worst"},
            "limit": {"memory_limit": "0 B"},
        }
        return {**given, **flaws.get(self.flaw, {})}

    def plan(self) -> rd.Plan:
        """What `synthesize` makes of it."""
        return rd.synthesize(**self.arguments())

    def __str__(self) -> str:
        """The call, as it can be typed; meshes with an order of their own need `Axis` and `Mesh`."""
        given = self.arguments()
        if given["target_mesh"] == given["mesh"]:
            del given["target_mesh"]
        defaults = {"dtype": "float32", "algorithm": "best", "over_partition": True, "memory_limit": None,
                    "accumulate": None, "order": "any"}  # fmt: skip
        shown = [repr(given.pop("source")), repr(given.pop("target")), _mesh_text(given.pop("mesh"))]
        for name, value in given.items():
            if name in defaults and defaults[name] == value:
                continue
            if isinstance(value, Mesh):
                shown.append(f"{name}={_mesh_text(value)}")
            elif isinstance(value, LatencyBandwidth):
                shown.append(f"{name}=LatencyBandwidth.from_json({value.to_json()!r})")
            else:
                shown.append(f"{name}={value!r}")
        return f"rd.synthesize({', '.join(shown)})"


def quoted(name: str) -> str:
    """An axis name as the notation wants it."""
    if re.fullmatch(r"[^\W\d]\w*", name):
        return name
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def profile(arguments: dict[str, Any]) -> LatencyBandwidth:
    """The model of these arguments; latencies as pairs of seconds."""
    latency = {kind: Latency(*pair) for kind, pair in arguments["latency"].items()}
    return LatencyBandwidth(**{**arguments, "name": "random", "latency": latency})


def _mesh_text(mesh: Mesh) -> str:
    if mesh.devices == tuple(range(mesh.size)):
        return repr({axis.name: axis.size for axis in mesh.axes})
    axes = ", ".join(f"Axis({axis.name!r}, {axis.size})" for axis in mesh.axes)
    return f"Mesh(({axes},), {mesh.devices})"


# -------------------------------------------------------------------------------------------------- drawing


def draw(seed: int, index: int) -> Problem:
    """The problem of this number; always the same one."""
    rng = random.Random(f"problem/{seed}/{index}")
    while True:
        problem = _draw(rng)
        if problem is not None:
            return problem


def _draw(rng: random.Random) -> Problem | None:
    devices = rng.choices(list(DEVICES), list(DEVICES.values()))[0]
    axes = draw_axes(rng, devices)
    rank = rng.choices(range(7), (3, 20, 40, 20, 10, 2, 1))[0]
    order = draw_order(rng, devices, 0.1)
    source = Side(axes, order, _draw_cut(rng, axes, rank))
    target = _draw_target(rng, source)
    need = [math.lcm(a, b) for a, b in zip(source.counts, target.counts, strict=True)]
    if math.prod(need) > MOST_ELEMENTS:
        return None
    shape = tuple(n * rng.choice((1, 1, 1, 2, 2, 3, 4, 5, 7)) for n in need)
    problem = Problem(shape, source, target)
    if math.prod(shape) > MOST_ELEMENTS or devices * max(map(problem.tile, (source, target))) > MOST_HELD:
        problem = Problem(tuple(need), source, target)
        if devices * max(map(problem.tile, (source, target))) > MOST_HELD:
            return None
    if rng.random() < 0.3:
        problem = _with_summands(rng, problem)
    whim = rng.random()
    if whim < 0.06:
        problem = replace(problem, shape=tuple(0 if rng.random() < 0.5 else n for n in problem.shape))
    elif whim < 0.1:  # sizes whose products are beyond 64 bits
        most = 2**63 - 1
        problem = replace(problem, shape=tuple(n * rng.randint(1, most // n) for n in problem.shape))
    elif whim < 0.12:
        problem = replace(problem, flaw=rng.choice(FLAWS))
    problem = _with_options(rng, problem)
    return _with_sums(rng, problem) if problem.partial else problem


def _with_summands(rng: random.Random, problem: Problem) -> Problem:
    """The problem with axes that cut nothing any more, but along which tiles are summands."""
    reduction = rng.choice(REDUCTIONS)
    which = rng.choice((("source",), ("source",), ("target",), ("source", "target")))
    sides = {"source": problem.source, "target": problem.target}
    if which == ("source", "target") and problem.source.axes == problem.target.axes and rng.random() < 0.4:
        sides["target"] = problem.source  # so that both are summands along the same axes, perhaps
    for name in which:
        side = sides[name]
        free = set(dict(side.axes)) - {axis for names in side.cut for axis in names}
        odds = rng.choice((0.2, 0.5, 0.9))
        chosen = [axis for axis, _ in side.axes if rng.random() < (0.8 if axis in free else odds)]
        rng.shuffle(chosen)
        cut = tuple(tuple(axis for axis in names if axis not in chosen) for names in side.cut)
        sides[name] = replace(side, cut=cut, partial=tuple(chosen), reduction=reduction)
    made = replace(problem, **sides)
    most = max(map(made.tile, sides.values())) * max(2, *(side.summands for side in sides.values()))
    return made if problem.devices * most <= MOST_COUNTED else problem


def _with_sums(rng: random.Random, problem: Problem) -> Problem:
    """An element type that can be reduced, how it is added up, or what is wrong with both."""
    reduction = problem.source.reduction if problem.source.partial else problem.target.reduction
    unfit = ("bool", "key<fry>") if reduction == "sum" else ("complex64", "complex128", "key<fry>")
    fit = [name for name in sorted(ITEMSIZE) if name not in unfit]
    dtype = problem.dtype if problem.dtype in fit else rng.choice(fit)
    problem = replace(problem, dtype=dtype, algorithm="best", summing=rng.choice(("any", "any", "any", "fixed")))
    summed = reduction == "sum" and bool(problem.source.partial)
    kind = next(kind for kind in ("complex", "float", "int", "") if kind in dtype)
    if summed and rng.random() < 0.3:
        wider = [n for n in fit if kind in n and n.startswith("u") == dtype.startswith("u")]
        problem = replace(problem, accumulate=rng.choice([n for n in wider if ITEMSIZE[n] >= ITEMSIZE[dtype]]))
    if problem.flaw or rng.random() > 0.04:
        return problem
    flaw = rng.choice(PARTIAL_FLAWS)
    if flaw == "no such sum":
        return replace(problem, flaw=flaw, dtype=rng.choice(unfit), accumulate=None)
    if flaw == "another reduction" and problem.source.partial and problem.target.partial:
        other = {"sum": "min", "min": "max", "max": "sum"}[reduction]
        return replace(problem, flaw=flaw, target=replace(problem.target, reduction=other))
    if flaw == "summed up otherwise" and summed:
        return replace(problem, flaw=flaw, accumulate=OTHER_KIND[kind])
    return replace(problem, flaw="the paper's", algorithm="paper")


def draw_axes(rng: random.Random, devices: int) -> tuple[tuple[str, int], ...]:
    """Axes of a mesh of so many devices, prime and composite, sometimes of size 1."""
    sizes: list[int] = []
    rest = devices
    while rest > 1:
        factor = next(p for p in range(2, rest + 1) if rest % p == 0)
        rest //= factor
        if sizes and rng.random() < 0.4:
            sizes[rng.randrange(len(sizes))] *= factor
        else:
            sizes.append(factor)
    while rng.random() < 0.12 and len(sizes) < len(NAMES):
        sizes.append(1)
    rng.shuffle(sizes)
    pool = (*NAMES[:4], *ODD_NAMES) if rng.random() < 0.1 else NAMES
    return tuple(zip(rng.sample(pool, len(sizes)), sizes, strict=True))


def draw_order(rng: random.Random, devices: int, odds: float) -> tuple[int, ...]:
    """Device numbers row by row: shuffled, reversed or turned with these odds."""
    order = list(range(devices))
    if rng.random() < odds:
        kind = rng.choice(("shuffled", "reversed", "turned"))
        if kind == "shuffled":
            rng.shuffle(order)
        elif kind == "reversed":
            order.reverse()
        else:
            order = order[1:] + order[:1]
    return tuple(order)


def _draw_cut(rng: random.Random, axes: Sequence[tuple[str, int]], rank: int) -> Cut:
    dims: list[list[str]] = [[] for _ in range(rank)]
    replicated = rng.choice((0.0, 0.2, 0.5))
    for name, _ in rng.sample(axes, len(axes)):
        if rank and rng.random() >= replicated:
            dims[rng.randrange(rank)].append(name)
    return tuple(map(tuple, dims))


def _draw_target(rng: random.Random, source: Side) -> Side:
    whim, rank = rng.random(), len(source.cut)
    if whim < 0.25:  # another mesh
        devices = math.prod(size for _, size in source.axes)
        axes = draw_axes(rng, devices)
        return Side(axes, draw_order(rng, devices, 0.3), _draw_cut(rng, axes, rank))
    if whim < 0.4:  # the same axes in another order, perhaps over other devices
        axes = tuple(rng.sample(source.axes, len(source.axes)))
        cut = source.cut if rng.random() < 0.5 else _draw_cut(rng, axes, rank)
        return Side(axes, draw_order(rng, len(source.order), 0.5), cut)
    if whim < 0.65:
        return replace(source, cut=_near(rng, source))
    return replace(source, cut=_draw_cut(rng, source.axes, rank))


def _near(rng: random.Random, source: Side) -> Cut:
    """The cut with a few changes: dimensions swapped, an axis moved, left out or put elsewhere in its dimension."""
    dims = [list(names) for names in source.cut]
    for _ in range(rng.randint(0, 3)):
        if not dims:
            break
        one, other = rng.randrange(len(dims)), rng.randrange(len(dims))
        kind = rng.choice(("swap", "move", "drop", "shuffle"))
        if kind == "swap":
            dims[one], dims[other] = dims[other], dims[one]
        elif kind == "shuffle":
            rng.shuffle(dims[one])
        elif dims[one]:
            name = dims[one].pop(rng.randrange(len(dims[one])))
            if kind == "move":
                dims[other].insert(rng.randint(0, len(dims[other])), name)
    return tuple(map(tuple, dims))


def _with_options(rng: random.Random, problem: Problem) -> Problem:
    dtype = rng.choice(sorted(ITEMSIZE))
    limit: int | str | None = None
    if rng.random() < 0.35:
        both = (problem.tile(problem.source) + problem.tile(problem.target)) * ITEMSIZE[dtype]
        limit = min(MOST_BYTES, max(1, int(both * rng.choice(LIMITS)) + rng.choice((-1, 0, 0, 1))))
        if rng.random() < 0.2:
            limit = f"{limit} B"
    return replace(
        problem,
        dtype=dtype,
        model=rng.choice(PRESETS) if rng.random() < 0.55 else draw_profile(rng, problem.source.axes),
        algorithm="paper" if rng.random() < 0.25 else "best",
        over_partition=rng.random() < 0.8,
        memory_limit=limit,
    )


def draw_profile(rng: random.Random, axes: Sequence[tuple[str, int]]) -> dict[str, Any]:
    """A latency-bandwidth profile: hosts of 1 to 8 devices, mostly 3 to 5, or axes of different speed."""

    made: dict[str, Any]

    def latency() -> tuple[float, float]:
        return (0.0 if rng.random() < 0.1 else 10 ** rng.uniform(-7, -2), rng.choice((0.0, 10 ** rng.uniform(-8, -3))))

    if rng.random() < 0.4:  # what is sold, in hosts of other sizes
        collective, permute = (12e-6, 1e-6), (12e-6, 0.0)
        made = {
            "latency": {"allgather": collective, "alltoall": collective, "allpermute": permute},
            "bandwidth": 450e9,
            "memory_bandwidth": 3350e9,
            "slow_bandwidth": 50e9,
            "devices_per_host": rng.choice(PER_HOST),
        }
        return {**made, "fused_exchange": rng.random() < 0.2}
    fast = 10 ** rng.uniform(7, 12)
    made = {
        "latency": {kind: latency() for kind in ("allgather", "alltoall", "allpermute")},
        "bandwidth": fast,
        "memory_bandwidth": 10 ** rng.uniform(8, 13),
        "fused_exchange": rng.random() < 0.3,
    }
    if rng.random() < 0.7:
        made["slow_bandwidth"] = fast * 10 ** rng.uniform(-3, 0.5 if rng.random() < 0.1 else 0)
        made["devices_per_host"] = rng.choice(PER_HOST)
    if rng.random() < 0.25:
        names = [name for name, _ in axes if rng.random() < 0.6]
        made["axis_bandwidth"] = {name: fast * 10 ** rng.uniform(-3, 0.5) for name in [*names, "elsewhere"]}
    return made
