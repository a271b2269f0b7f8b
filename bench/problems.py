"""The problems of the benches: drawn at random as in the paper's Section 8, and layouts from practice.

A problem is a global shape, a mesh, and for each dimension the mesh axes that cut it, before and after. This module
does not import the library, as `bench.problem`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from bench.problem import Cut, Problem, as_cut, needs_of

Variant = Literal["H", "U"]
Item = TypeVar("Item")

MEGABYTE = 1_000_000
SIZE_RANGE = (64 * MEGABYTE, 800 * MEGABYTE)
ALIGNED_TILE = (128 << 20, 512 << 20)  # bytes
MAX_RANK = 6
DEFAULT_SEED = 2021


# ---------------------------------------------------------------------------------------------- random problems


def mesh_of(sizes: Sequence[int]) -> tuple[tuple[str, int], ...]:
    """A mesh with axes named x, y, z, u, v, w, ... in order."""
    return tuple(zip("xyzuvwabcdefghijklmnopqrst"[: len(sizes)], sizes, strict=True))


def _draw_cut(rng: random.Random, mesh: tuple[tuple[str, int], ...], rank: int, variant: Variant) -> Cut:
    dims: list[list[str]] = [[] for _ in range(rank)]
    for name, _ in mesh:
        if variant == "H":
            where = rng.randrange(rank) if rng.random() < 0.5 else None
        else:
            pick = rng.randrange(rank + 1)
            where = pick if pick < rank else None
        if where is not None:
            dims[where].append(name)
    for names in dims:
        rng.shuffle(names)
    return tuple(tuple(names) for names in dims)


def _draw_shape(
    rng: random.Random, grain: Sequence[int], itemsize: int, size_range: tuple[float, float] = SIZE_RANGE
) -> tuple[int, ...] | None:
    """A shape of multiples of `grain` whose bytes are log-uniform in `size_range`, or None where it does not fit."""
    low, high = (size / itemsize for size in size_range)
    unit = math.prod(grain)
    if unit > high:
        return None
    size = math.exp(rng.uniform(math.log(max(low, unit)), math.log(high)))
    weights = [rng.random() + 0.3 for _ in grain]
    stretch = math.log(size / unit) / sum(weights)
    shape = [max(1, round(math.exp(stretch * w))) * g for g, w in zip(grain, weights, strict=True)]
    return tuple(shape) if low <= math.prod(shape) <= high else None


def draw(
    rng: random.Random,
    name: str,
    sizes: Sequence[int],
    variant: Variant,
    *,
    small_dimensions: bool = False,
    aligned: bool = False,
    ranks: tuple[int, int] = (1, MAX_RANK),
    moving: bool = True,
    partial: bool = False,
) -> Problem:
    """A random problem; with `moving` its lower bound is above zero.

    With `partial`, source tiles are summands along each mesh axis that does not cut them with probability one half, and
    along one such axis at least.

    Dimensions are multiples of the number of devices where 800 MB allow it (as in the paper's Figure 13), else of the
    two tile counts. With `small_dimensions` they are one to three times the two tile counts, for any number of bytes:
    on these problems divisibility restricts the plans. With `aligned` the two minor dimensions of every tile are
    multiples of 8 and 128, the tiling of 4-byte elements on TPUs, and the larger tile has `ALIGNED_TILE` bytes.
    """
    mesh = mesh_of(sizes)
    axes = dict(mesh)
    while True:
        rank = rng.randint(*ranks)
        source, target = _draw_cut(rng, mesh, rank, variant), _draw_cut(rng, mesh, rank, variant)
        needs = needs_of(source, target, axes)
        shape: tuple[int, ...] | None
        if aligned:
            grain = [math.prod(sizes) * minor for minor in (*[1] * (rank - 2), 8, 128)[-rank:]]
            tiles = min(math.prod(axes[n] for names in cut for n in names) for cut in (source, target))
            low, high = ALIGNED_TILE
            shape = _draw_shape(rng, grain, 4, (low * tiles, high * tiles))
        elif small_dimensions:
            shape = tuple(need * rng.randint(1, 3) for need in needs)
        else:
            shape = _draw_shape(rng, [math.prod(sizes)] * rank, 4) or _draw_shape(rng, needs, 4)
        if shape is None:
            continue
        problem = Problem(name, shape, source, target, mesh)
        if partial:
            cutting = {name for names in source for name in names}
            free = [name for name in axes if name not in cutting]
            problem = replace(problem, partial=tuple(name for name in free if rng.random() < 0.5))
            if not problem.partial:
                continue
        if not moving or problem.lower_bound_bytes() > 0:
            return problem


@dataclass(frozen=True)
class ProblemSet:
    """A named set of problems.

    Attributes:
        name: key used in results and on the command line.
        sizes: mesh shape.
        variant: "H": an axis is replicated with probability one half; "U": replication is as likely as each dimension.
        count: problems in the full set.
    """

    name: str
    sizes: tuple[int, ...]
    variant: Variant
    count: int
    small_dimensions: bool = False
    aligned: bool = False
    partial: bool = False

    def problems(self, seed: int = DEFAULT_SEED, count: int | None = None, *, moving: bool = True) -> list[Problem]:
        """The first `count` problems of the set; a shorter list is a prefix of a longer one.

        With `moving` problems whose lower bound is zero, which need no collective, are left out.
        """
        rng = random.Random(f"{seed}/{self.name}")
        number = self.count if count is None else count
        return [
            draw(
                rng,
                f"{self.name}/{i}",
                self.sizes,
                self.variant,
                small_dimensions=self.small_dimensions,
                aligned=self.aligned,
                moving=moving,
                partial=self.partial,
            )
            for i in range(number)
        ]


SETS: dict[str, ProblemSet] = {
    s.name: s
    for s in (
        ProblemSet("H222", (2, 2, 2), "H", 500),
        ProblemSet("U222", (2, 2, 2), "U", 500),
        ProblemSet("U444", (4, 4, 4), "U", 60),
        ProblemSet("U88", (8, 8), "U", 60),
        ProblemSet("U46", (4, 6), "U", 60),
        ProblemSet("U234", (2, 3, 4), "U", 60),
        ProblemSet("U2222", (2, 2, 2, 2), "U", 60),
        ProblemSet("U44", (4, 4), "U", 60),
        ProblemSet("A222", (2, 2, 2), "U", 60, aligned=True),
        ProblemSet("U888", (8, 8, 8), "U", 20),
        ProblemSet("U161616", (16, 16, 16), "U", 12),
        ProblemSet("P8", (2, 2, 2), "U", 300, partial=True),
        ProblemSet("P24", (2, 3, 4), "U", 100, partial=True),
        ProblemSet("S223", (2, 2, 3), "U", 300, small_dimensions=True),
        ProblemSet("S233", (2, 3, 3), "U", 300, small_dimensions=True),
        ProblemSet("S234", (2, 3, 4), "U", 300, small_dimensions=True),
    )
}


# ------------------------------------------------------------------------------------------------ fixed problems


def _fixed(name: str, shape: Sequence[int], source: str, target: str, **mesh: int) -> Problem:
    """A problem from two strings of axis names per dimension, minor to major: `"a,b | | c"`."""
    cuts = [
        as_cut([[a for a in dim.replace(" ", "").split(",") if a] for dim in text.split("|")])
        for text in (source, target)
    ]
    return Problem(name, tuple(shape), cuts[0], cuts[1], tuple(mesh.items()))


def paper_problems() -> list[Problem]:
    """P1 to P4 of the paper's Figure 13, on which its search lost most to XLA."""
    mesh = {"a": 2, "b": 2, "c": 2}
    return [
        _fixed("P1", (360, 368, 320), "|c|", "c,a||b", **mesh),
        _fixed("P2", (80, 80, 72, 64), "|c||", "b||c|", **mesh),
        _fixed("P3", (296, 360, 312), "||c", "b,c|a|", **mesh),
        _fixed("P4", (16,) * 6, "c|||a||b", "|||||a", **mesh),
    ]


def layout_problems() -> list[Problem]:
    """Layout changes from training and serving. Mesh axes are named by their role."""
    return [
        _fixed("FSDP to TP, column", (4096, 14336), "t,f|", "|t", f=4, t=2),
        _fixed("FSDP to TP, row", (14336, 4096), "t,f|", "t|", f=4, t=2),
        _fixed("FSDPxTP to TP8, column", (4096, 14336), "f|t", "|t,f", f=4, t=2),
        _fixed("FSDPxTP to TP8, row", (14336, 4096), "t|f", "t,f|", f=4, t=2),
        _fixed("TP to FSDP, attention", (4096, 32, 128), "|t|", "t,f||", f=4, t=2),
        _fixed("TP to EP, experts up", (8, 2048, 8192), "||t", "t||", d=2, t=4),
        _fixed("EP to TP, experts down", (8, 8192, 2048), "e,d||", "|e,d|", d=2, e=4),
        _fixed("EPxTP to EP, experts", (16, 1024, 4096), "e||t", "t,e||", e=4, t=2),
        _fixed("sequence to head parallel", (2, 8192, 32, 128), "d|s||", "d||s|", d=2, s=4),
        _fixed("head to sequence parallel, 8 way", (1, 16384, 32, 128), "||s|", "|s||", s=8),
        # A 2x4 mesh on which rows and columns are cut, restored on 4x2: axes a, b, c are the common refinement.
        _fixed("checkpoint 2x4 to 4x2", (8192, 8192), "a|c,b", "b,a|c", a=2, b=2, c=2),
        _fixed("checkpoint 2x4 to 8", (8192, 8192), "a|c,b", "c,b,a|", a=2, b=2, c=2),
        _fixed("checkpoint 4x6 to 6x4", (4608, 4608), "x|y", "y|x", x=4, y=6),
        _fixed("checkpoint 8x8 transposed", (8192, 8192), "x|y", "y|x", x=8, y=8),
        # ep = (a, b), pp = c before; dp = a, tp = (b, c) after, on the same 64 devices in the same order.
        _fixed("EP16xPP4 to TP8xDP8", (16, 16, 512, 1024), "c|b,a||", "|||c,b", a=8, b=2, c=4),
    ]


def swap_problem(x: int, y: int, n: int) -> Problem:
    """`[{x}n, {y}n] -> [{y}n, {x}n]`, a change that no sequence of single-axis collectives does in place."""
    return _fixed(f"swap {x}x{y}", (n, n), "x|y", "y|x", x=x, y=y)


def in_turn(sets: Mapping[str, int], seed: int) -> list[Problem]:
    """The first problems of several sets in turn, so that an interrupted bench has problems of every set."""
    return interleaved([problem_set(name, seed, count) for name, count in sets.items()])


def interleaved(lists: Sequence[Sequence[Item]]) -> list[Item]:
    """The first items of all lists, then the second ones, and so on."""
    longest = max(map(len, lists), default=0)
    return [items[k] for k in range(longest) for items in lists if k < len(items)]


def problem_set(name: str, seed: int = DEFAULT_SEED, count: int | None = None) -> list[Problem]:
    """Problems of a random set, of `"paper"` (P1 to P4), or of `"layouts"`."""
    if name == "paper":
        return paper_problems()[:count]
    if name == "layouts":
        return layout_problems()[:count]
    if name not in SETS:
        raise ValueError(f"no problem set {name!r}; there are {', '.join([*SETS, 'paper', 'layouts'])}")
    return SETS[name].problems(seed, count)
