"""Errors of placements, steps and plans: construction, verification, execution and JSON."""

from __future__ import annotations

from redistrib.errors.base import RedistribError, RuleBroken


class PlacementError(RedistribError):
    """A placement whose grid, tile indices or partial sums break a rule.

    >>> from redistrib.theory.placement import Placement
    >>> Placement((8,), (3,), [[0], [1]])
    Traceback (most recent call last):
        ...
    redistrib.errors.PlacementError: 3 tiles do not divide a dimension of 8 elements
    """


class PlanFormError(RedistribError):
    """A plan with inconsistent fields, or a step whose tables have the wrong shape.

    >>> from redistrib.plans.steps import AllPermute
    >>> from redistrib.theory.placement import Placement
    >>> halves = Placement((8,), (2,), [[0], [1]])
    >>> AllPermute(halves, halves, [[0, 1, 2]])
    Traceback (most recent call last):
        ...
    redistrib.errors.PlanFormError: pairs form a table [pairs, 2], got shape (1, 3)
    """


VERIFICATION_RULES = {
    "shape mismatch": "Source, target and all placements must be of one global shape.",
    "placed devices": "Every placement must have one row for each device of the mesh.",
    "tile index": "A grid must divide the global shape or have split points that rise to its sizes, and a tile index "
    "lie on the grid, or be -1 throughout.",
    "unknown step": "A step must be of a known kind.",
    "uneven step": "Tiles of unequal size must move by exchanges.",
    "wrong start": "The first step must start from the source's placement.",
    "disconnected steps": "A step must start where the last one ended.",
    "wrong end": "The last step must end at the target's placement.",
    "tile above bound": "No tile before, between or after steps may be larger than the bound.",
    "slice grid": "A slice may only cut tiles finer.",
    "slice outside tile": "A slice must keep a part of the tile of the device, or nothing.",
    "device number": "Groups, pairs and shares must name devices of the mesh.",
    "nothing held": "A device that holds nothing must not be in a group, nor send.",
    "duplicate member": "No device may be in two groups, or twice in one.",
    "missing member": "Every device that holds a tile must be in a group.",
    "gather grid": "A gather may only merge tiles into coarser ones.",
    "all-to-all grid": "In every dimension of an all-to-all one tile count must divide the other.",
    "group size": "A group must have one member for every tile that it merges.",
    "disjoint members": "The tile of a member must overlap the new tile of every member of its group.",
    "repeated chunk": "The tiles that a group merges must be different.",
    "member order": "The members of a group must be listed in the row-major order of the tiles they merge.",
    "permute grid": "A permute may not change the grid.",
    "self send": "No device may send to itself.",
    "duplicate sender": "A device may send at most once in a permute.",
    "duplicate receiver": "A device may receive at most once in a permute.",
    "permuted tile": "A device must end a permute with the tile of the device that sent to it.",
    "idle tile": "A device that receives nothing in a permute, or is in no group, must keep its tile.",
    "implementation": "An exchange must run in rounds or as a ragged all-to-all.",
    "share rank": "A share must have one start and one size for every dimension.",
    "empty share": "A share must hold at least one element.",
    "share not held": "A device may only send elements that it holds before the exchange.",
    "share not wanted": "A device may only receive elements of its tile after the exchange.",
    "round number": "The rounds of an exchange must be numbered from 0 without gaps.",
    "round sender": "A device may send at most one share in a round.",
    "round receiver": "A device may receive at most one share in a round.",
    "overlapping shares": "No element may reach a device twice, or reach a device that already holds it.",
    "uncovered tile": "The elements that a device keeps and receives must fill its tile.",
    "summand count": "A step must keep the reduction, and change the number of partial sums as its kind requires.",
    "summand": "A device must reduce the parts of its partial sum: each part once in a sum, at least once in a "
    "maximum.",
    "unreduce": "A tile must lie in the partial sum that it becomes, and every part of the array must be in a "
    "partial sum.",
    "summands everywhere": "In a plan with partial sums every device must hold a tile in every placement.",
    "fixed order": "Under a fixed order partial sums must be added in one step, in the order of the source's numbers.",
}


class VerificationError(RuleBroken):
    """A plan that breaks a rule of correct plans.

    >>> from redistrib.lang.mesh import Mesh
    >>> from redistrib.lang.types import DistType
    >>> from redistrib.plans.plan import Plan
    >>> from redistrib.plans.verify import verify
    >>> mesh, source, target = Mesh.of("x=2"), DistType.of("[2{x}4]"), DistType.of("[4]")
    >>> verify(Plan(source, mesh, target, mesh, "int64", 8, (), "by hand", "exact", 0, "elements"))
    Traceback (most recent call last):
        ...
    redistrib.errors.VerificationError: the plan ends with device 0 holding [0:2], where the target [4] gives it [0:4]

    Attributes:
        rule: the name of the broken rule in `VERIFICATION_RULES`.
        step: number of the wrong step, counted from 1 as `print(plan)` does: `plan.steps[step - 1]`. None if the rule
            is not about a single step.
        device: number of the first wrong device; None if the rule is not about a single device.
        values: the offending values by name.
    """

    def __init__(
        self, rule: str, message: str, step: int | None = None, device: int | None = None, **values: object
    ) -> None:
        super().__init__(rule, message, **values)
        self.step, self.device = step, device


class TileAboveBoundError(VerificationError):
    """A tile between steps is larger than the bound. `verify(plan, bound=...)` takes another bound.

    >>> import redistrib as rd
    >>> rd.verify(rd.synthesize("[4{x}8]", "[8]", "x=2"), bound=4)
    Traceback (most recent call last):
        ...
    redistrib.errors.TileAboveBoundError: after step 1 a tile has 8 elements, more than the bound of 4; choose \
another plan, or pass the bound that this one was made under
    """


class TilesError(RedistribError):
    """Tiles or an array that do not fit their placement or type.

    On MPI all ranks raise it with the same message, if the array of any rank is not its tile.

    >>> import numpy as np
    >>> import redistrib as rd
    >>> from redistrib.plans.reference import run
    >>> run(rd.synthesize("[4{x}8]", "[8]", "x=2"), [np.zeros(4)])
    Traceback (most recent call last):
        ...
    redistrib.errors.TilesError: 1 tiles were given, the plan's source has 2 devices
    """


class PlanJsonError(RedistribError):
    """A text that is not the JSON form of a plan.

    Its version is unknown, it was changed after it was written, or a field is missing, unknown or invalid.

    >>> from redistrib.plans.plan import Plan
    >>> Plan.from_json('{"format": "redistrib-plan", "version": 1}')
    Traceback (most recent call last):
        ...
    redistrib.errors.PlanJsonError: the plan lacks the field 'algorithm'

    Attributes:
        where: path of the invalid field, for example `steps[2].groups`, `version` or `digest`.
    """

    def __init__(self, message: str, where: str = "") -> None:
        super().__init__(message)
        self.where = where
