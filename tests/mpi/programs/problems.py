"""Random redistributions on a number of devices, the same on every rank for one seed."""

from __future__ import annotations

import random

from redistrib.api import synthesize
from redistrib.lang.mesh import Axis, Mesh
from redistrib.plans.plan import Plan

MESHES = {
    2: [(2,)],
    4: [(4,), (2, 2)],
    6: [(6,), (2, 3), (3, 2)],
    8: [(8,), (2, 4), (2, 2, 2)],
    12: [(12,), (3, 4), (2, 2, 3)],
    24: [(4, 6), (2, 3, 4)],
}

DTYPES = ["uint8", "float32", "float64", "complex128", "int16"]


def drawn_type(draw: random.Random, axes: list[Axis], shape: list[int]) -> str:
    cuts: list[list[Axis]] = [[] for _ in shape]
    for axis in draw.sample(axes, len(axes)):
        where = draw.randrange(-1, len(shape))
        if where >= 0:
            cuts[where].append(axis)
    dims = []
    for size, cut in zip(shape, cuts, strict=True):
        tile = size
        for axis in cut:
            tile //= axis.size
        names = "{" + ",".join(axis.name for axis in cut) + "}"
        dims.append(f"{tile}{names if cut else ''}{size}" if cut else str(size))
    return "[" + ", ".join(dims) + "]"


def drawn_plans(ranks: int, count: int, seed: int = 0) -> list[Plan]:
    """Plans over one or two meshes, with device orders that follow no axis, by either algorithm, on hosts or none."""
    draw, place = random.Random(f"{ranks}-{seed}"), random.Random(f"hosts of {ranks}-{seed}")
    plans: list[Plan] = []
    while len(plans) < count:
        axes = [Axis("xyz"[k], size) for k, size in enumerate(draw.choice(MESHES[ranks]))]
        orders = [tuple(draw.sample(range(ranks), ranks)) if draw.random() < 0.6 else () for _ in range(2)]
        other = [axes, [Axis("xyz"[k], size) for k, size in enumerate(draw.choice(MESHES[ranks]))]]
        shape = [ranks * draw.choice([1, 2, 3]) for _ in range(draw.randint(1, 3))]
        plan = synthesize(
            drawn_type(draw, other[0], shape),
            drawn_type(draw, other[1], shape),
            Mesh(tuple(other[0]), orders[0]),
            target_mesh=Mesh(tuple(other[1]), orders[1]),
            dtype=draw.choice(DTYPES),
            algorithm=draw.choice(["best", "best", "paper"]),
            machine="exact",
            topology=place.choice(
                [None, [rank // 2 for rank in range(ranks)], [place.randrange(2) for _ in range(ranks)]]
            ),
        )
        if plan.steps:
            plans.append(plan)
    return plans
