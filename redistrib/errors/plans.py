"""Errors of placements, steps and plans: how they are made, verified, carried out and read."""

from __future__ import annotations

from redistrib.errors.base import RedistribError, RuleBroken


class PlacementError(RedistribError):
    """A placement whose grid or indices do not fit the global shape, or whose summands do not fit its devices.

    >>> from redistrib.theory.placement import Placement
    >>> Placement((8,), (3,), [[0], [1]])
    Traceback (most recent call last):
        ...
    redistrib.errors.PlacementError: 3 tiles do not divide a dimension of 8 elements
    """


class PlanFormError(RedistribError):
    """A plan whose parts do not fit together, or a step whose tables have the wrong form.

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
    "placed devices": "Every placement must say what each device of the mesh holds, and no more.",
    "tile index": "A grid must divide the global shape or have split points that rise to its sizes, and a tile index "
    "lie on the grid, or be -1 throughout.",
    "unknown step": "A step must be of a kind that there is.",
    "uneven step": "Tiles of unequal size must move by exchanges.",
    "wrong start": "The first step must start from the source's placement.",
    "disconnected steps": "A step must start where the last one ended.",
    "wrong end": "The last step must end at the target's placement.",
    "tile above bound": "No tile on the way may be larger than the bound.",
    "slice grid": "A slice may only cut tiles finer.",
    "slice outside tile": "A slice must keep a part of what the device held, or nothing.",
    "device number": "Groups, pairs and shares must name devices of the mesh.",
    "nothing held": "A device that holds nothing must not be in a group, nor send.",
    "duplicate member": "No device may be in two groups, or twice in one.",
    "missing member": "Every device that holds a tile must be in a group.",
    "gather grid": "A gather may only merge tiles into coarser ones.",
    "all-to-all grid": "In every dimension of an all-to-all one tile count must divide the other.",
    "group size": "A group must have one member for every tile that is merged into one.",
    "disjoint members": "What a member held must meet what every member of its group ends with.",
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
    "share not held": "A device may only send what it held before the exchange.",
    "share not wanted": "A device may only receive what belongs to its tile after the exchange.",
    "round number": "The rounds of an exchange must be numbered from 0 without gaps.",
    "round sender": "A device may send at most one share in a round.",
    "round receiver": "A device may receive at most one share in a round.",
    "overlapping shares": "No element may reach a device twice, or reach a device that already holds it.",
    "uncovered tile": "What a device keeps and receives must fill its tile.",
    "summand count": "The summands before and after a step must be as many as its kind says, of one kind of reduction.",
    "summand": "A device must add what makes its summand: each part once in a sum, at least once in a maximum.",
    "unreduce": "Tiles that become summands must lie in them, and every part of the array must be in one.",
    "summands everywhere": "In a plan that has summands every device must hold a tile all the way.",
    "parts": "A plan has one part, or several that cut its tiles evenly along a dimension that no step touches.",
    "fixed order": "Under a fixed order summands must be added in one step, in the order of the source's numbers.",
}


class VerificationError(RuleBroken):
    """A plan breaks a rule that every correct plan keeps.

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
        rule: the rule, by its name in `VERIFICATION_RULES`.
        step: number of the step at fault as `print(plan)` counts them, from 1 (so `plan.steps[step - 1]`);
            None where the fault is not in one step.
        device: number of the first device at fault; None where the fault is not in one device.
        values: the offending values by name.
    """

    def __init__(
        self, rule: str, message: str, step: int | None = None, device: int | None = None, **values: object
    ) -> None:
        super().__init__(rule, message, **values)
        self.step, self.device = step, device


class TileAboveBoundError(VerificationError):
    """A tile on the way is larger than the bound; `verify` takes another one.

    >>> import redistrib as rd
    >>> rd.verify(rd.synthesize("[4{x}8]", "[8]", "x=2"), bound=4)
    Traceback (most recent call last):
        ...
    redistrib.errors.TileAboveBoundError: after step 1 a tile has 8 elements, more than the bound of 4; choose \
another plan, or pass the bound that this one was made under
    """


class TilesError(RedistribError):
    """Tiles or an array do not fit the placement or the type they are given with.

    On MPI every rank raises it, with one message, if any rank is given an array that is not its tile.

    >>> import numpy as np
    >>> import redistrib as rd
    >>> from redistrib.plans.reference import run
    >>> run(rd.synthesize("[4{x}8]", "[8]", "x=2"), [np.zeros(4)])
    Traceback (most recent call last):
        ...
    redistrib.errors.TilesError: 1 tiles were given, the plan's source has 2 devices
    """


class PlanJsonError(RedistribError):
    """A text is not a plan's JSON form: of another version, changed after it was written, or with a field that is
    missing, unknown, or has a value it cannot have.

    >>> from redistrib.plans.plan import Plan
    >>> Plan.from_json('{"format": "redistrib-plan", "version": 1}')
    Traceback (most recent call last):
        ...
    redistrib.errors.PlanJsonError: the plan lacks the field 'algorithm'

    Attributes:
        where: path of the field at fault, such as `steps[2].groups`; `version` or `digest` where these do not fit.
    """

    def __init__(self, message: str, where: str = "") -> None:
        super().__init__(message)
        self.where = where
