"""Every way a plan as a whole, or a slice, can be wrong."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from redistrib.lang.types import DistType
from redistrib.plans.plan import Plan
from redistrib.plans.steps import AllGather, DynSlice
from tests.plans.corrupt import Corruption, forged, gather_4, moved, with_step
from tests.plans.hand import GOOD, place, plan


class _Bounce(DynSlice):
    """A step of no known kind."""


def _shape_of_step() -> Plan:
    made = GOOD["slice"]()
    return replace(made, steps=(DynSlice(place("[8, 8, 1]", "x=2,y=4"), made.after),))


def _two_shapes() -> Plan:
    return replace(GOOD["nothing to do"](), target=DistType.of("[3{x}6]"))


PLAN_CORRUPTIONS = [
    # the plan as a whole
    Corruption(
        "two shapes",
        _two_shapes,
        "shape mismatch",
        None,
        None,
        (
            "the source is an array of shape (4,) and the target one of shape (6,); a plan moves one "
            "array, so both must be equal"
        ),
    ),
    Corruption(
        "a step about another array",
        _shape_of_step,
        "shape mismatch",
        1,
        None,
        "step 1 is about an array of shape (8, 8, 1), the plan about one of shape (8, 8)",
    ),
    Corruption(
        "a step after which there are other dimensions",
        lambda: with_step("slice", 1, after=place("[8, 8, 1]", "x=2,y=4")),
        "shape mismatch",
        1,
        None,
        "step 1 is about an array of shape (8, 8, 1), the plan about one of shape (8, 8)",
    ),
    Corruption(
        "a step for fewer devices",
        lambda: with_step("slice", 1, after=place("[4{x}8, 4{y}8]", "x=2,y=2")),
        "placed devices",
        1,
        None,
        "step 1 places 4 devices by rows of length 2, the plan has 8 devices and rank 2",
    ),
    Corruption(
        "a placement with too few columns",
        lambda: with_step("slice", 1, after=forged(place("[4{x}8, 2{y}8]", "x=2,y=4"), index=np.zeros((8, 1), int))),
        "placed devices",
        1,
        None,
        "step 1 places 8 devices by rows of length 1, the plan has 8 devices and rank 2",
    ),
    Corruption(
        "a grid that does not divide the shape",
        lambda: with_step("slice", 1, after=forged(place("[4{x}8, 2{y}8]", "x=2,y=4"), grid=(2, 3))),
        "tile index",
        1,
        None,
        "step 1 cuts an array of shape (8, 8) by the grid (2, 3), which does not divide it",
    ),
    Corruption(
        "a grid of another rank",
        lambda: with_step("slice", 1, after=forged(place("[4{x}8, 2{y}8]", "x=2,y=4"), grid=(2,))),
        "tile index",
        1,
        None,
        "step 1 cuts an array of shape (8, 8) by the grid (2,), which does not divide it",
    ),
    Corruption(
        "a grid of no tiles",
        lambda: with_step("slice", 1, after=forged(place("[4{x}8, 2{y}8]", "x=2,y=4"), grid=(2, 0))),
        "tile index",
        1,
        None,
        "step 1 cuts an array of shape (8, 8) by the grid (2, 0), which does not divide it",
    ),
    Corruption(
        "a tile beyond the grid",
        lambda: with_step(
            "slice", 1, after=forged(place("[8, 8]", "x=2,y=4"), index=[[0, 0]] * 5 + [[0, 1]] + [[0, 0]] * 2)
        ),
        "tile index",
        1,
        5,
        "step 1 gives device 5 the tile (0, 1), which is not on the grid (1, 1)",
    ),
    Corruption(
        "a tile before the grid",
        lambda: with_step(
            "slice", 1, after=forged(place("[8, 8]", "x=2,y=4"), index=[[0, 0]] * 5 + [[0, -1]] + [[0, 0]] * 2)
        ),
        "tile index",
        1,
        5,
        "step 1 gives device 5 the tile (0, -1), which is not on the grid (1, 1)",
    ),
    Corruption(
        "a step of no kind",
        lambda: replace(GOOD["slice"](), steps=(_Bounce(GOOD["slice"]().before, GOOD["slice"]().after),)),
        "unknown step",
        1,
        None,
        "step 1 is a _Bounce; a step is one of DynSlice, AllGather, AllToAll, AllPermute, Exchange, ReduceScatter, "
        "AllReduce, ReduceExchange, Unreduce",
    ),
    Corruption(
        "another start",
        lambda: with_step("permute", 1, before=moved(GOOD["permute"]().before, 2, [0, 1])),
        "wrong start",
        1,
        2,
        "step 1 starts with device 2 holding [0:4, 8:16], where the source gives it [4:8, 0:8]",
    ),
    Corruption(
        "a start on another grid",
        lambda: with_step("slice", 1, before=place("[4{x}8, 8]", "x=2,y=4")),
        "wrong start",
        1,
        0,
        "step 1 starts with device 0 holding [0:4, 0:8], where the source gives it [0:8, 0:8]",
    ),
    Corruption(
        "a step that starts elsewhere",
        lambda: with_step("three phases", 2, before=place("[2{x,y}8, 8]", "x=2,y=2,z=2")),
        "disconnected steps",
        2,
        2,
        "step 2 starts with device 2 holding [4:6, 0:8], where step 1 left it [2:4, 0:8]",
    ),
    Corruption(
        "a step left out",
        lambda: replace(GOOD["three phases"](), steps=GOOD["three phases"]().steps[1:]),
        "wrong start",
        1,
        0,
        "step 1 starts with device 0 holding [0:2, 0:8], where the source gives it [0:4, 0:8]",
    ),
    Corruption(
        "the last step left out",
        lambda: replace(GOOD["three phases"](), steps=GOOD["three phases"]().steps[:-1]),
        "wrong end",
        2,
        0,
        ("the plan ends with device 0 holding [0:8, 0:2], where the target [8, 4{x}8] gives it [0:8, 0:4]"),
    ),
    Corruption(
        "another target",
        lambda: replace(GOOD["permute"](), target=DistType.of("[4{x}8, 8{y}16]")),
        "wrong end",
        1,
        1,
        ("the plan ends with device 1 holding [4:8, 0:8], where the target [4{x}8, 8{y}16] gives it [0:4, 8:16]"),
    ),
    Corruption(
        "no steps where some are needed",
        lambda: replace(GOOD["permute"](), steps=()),
        "wrong end",
        None,
        1,
        ("the plan ends with device 1 holding [0:4, 8:16], where the target [4{y}8, 8{x}16] gives it [4:8, 0:8]"),
    ),
    Corruption(
        "a gather of everything in between",
        lambda: plan(
            "[2{x}8, 4]", "[2{x}8, 4]", "x=4", AllGather(*gather_4(), [[0, 1, 2, 3]]), DynSlice(*gather_4()[::-1])
        ),
        "tile above bound",
        1,
        None,
        (
            "after step 1 a tile has 32 elements, more than the bound of 8; choose another plan, or "
            "pass the bound that this one was made under"
        ),
    ),
    Corruption(
        "a tile above a bound that is given",
        GOOD["three phases"],
        "tile above bound",
        0,
        None,
        (
            "at the source a tile has 32 elements, more than the bound of 31; choose another plan, or "
            "pass the bound that this one was made under"
        ),
        bound=31,
    ),
    # slices
    Corruption(
        "a slice that makes tiles larger",
        lambda: plan("[2{x}8, 4]", "[8, 4]", "x=4", DynSlice(*gather_4())),
        "slice grid",
        1,
        None,
        (
            "step 1 (dynslice) goes from the grid (4, 1) to (1, 1); a slice cuts every tile into equal "
            "parts, so each count must be a multiple of the one before"
        ),
    ),
    Corruption(
        "a slice of what another device holds",
        lambda: with_step("three phases", 1, after=place("[2{x,y}8, 8]", "x=2,y=2,z=2")),
        "slice outside tile",
        1,
        2,
        ("step 1 (dynslice) leaves device 2 with [4:6, 0:8], which is not part of the [0:4, 0:8] it held"),
    ),
]
