"""Errors of placements, steps and plans: how they are made, verified, carried out and read."""

from __future__ import annotations

from redistrib.errors.base import RedistribError

# ------------------------------------------------------------------------ placements, steps and plans


class PlacementError(RedistribError):
    """A placement whose grid or indices do not fit the global shape, or whose summands do not fit its devices."""


class StepFormError(RedistribError):
    """A step whose tables have the wrong form."""


class PlanFormError(RedistribError):
    """A plan whose parts do not fit together."""


# ------------------------------------------------------------------ plans: verify, reference, JSON


class VerificationError(RedistribError):
    """A plan breaks a rule that every correct plan keeps; each rule has a subclass of its own.

    Attributes:
        step: number of the step at fault as `print(plan)` counts them, from 1 (so `plan.steps[step - 1]`);
            None where the fault is not in one step.
        device: number of the first device at fault; None where the fault is not in one device.
        values: the offending values by name.
    """

    def __init__(self, message: str, step: int | None = None, device: int | None = None, **values: object) -> None:
        super().__init__(message)
        self.step = step
        self.device = device
        self.values = values


class ShapeMismatchError(VerificationError):
    """Source, target and all placements must be of one global shape."""


class PlacedDevicesError(VerificationError):
    """Every placement must say what each device of the mesh holds, and no more."""


class TileIndexError(VerificationError):
    """A grid must divide the global shape, and a tile index lie on the grid."""


class UnknownStepError(VerificationError):
    """A step must be of a kind that there is."""


class WrongStartError(VerificationError):
    """The first step must start from the source's placement."""


class DisconnectedStepsError(VerificationError):
    """A step must start where the last one ended."""


class WrongEndError(VerificationError):
    """The last step must end at the target's placement."""


class TileAboveBoundError(VerificationError):
    """No tile on the way may be larger than the bound."""


class SliceGridError(VerificationError):
    """A slice may only cut tiles finer."""


class SliceOutsideTileError(VerificationError):
    """A slice must keep a part of what the device held."""


class DeviceNumberError(VerificationError):
    """Groups, pairs and shares must name devices of the mesh."""


class DuplicateMemberError(VerificationError):
    """No device may be in two groups, or twice in one."""


class MissingMemberError(VerificationError):
    """Every device must be in a group."""


class GatherGridError(VerificationError):
    """A gather may only merge tiles into coarser ones."""


class AllToAllGridError(VerificationError):
    """In every dimension of an all-to-all one tile count must divide the other."""


class GroupSizeError(VerificationError):
    """A group must have one member for every tile that is merged into one."""


class DisjointMembersError(VerificationError):
    """What a member held must meet what every member of its group ends with."""


class RepeatedChunkError(VerificationError):
    """The tiles that a group merges must be different."""


class MemberOrderError(VerificationError):
    """The members of a group must be listed in the row-major order of the tiles they merge."""


class PermuteGridError(VerificationError):
    """A permute may not change the grid."""


class SelfSendError(VerificationError):
    """No device may send to itself."""


class DuplicateSenderError(VerificationError):
    """A device may send at most once in a permute."""


class DuplicateReceiverError(VerificationError):
    """A device may receive at most once in a permute."""


class PermutedTileError(VerificationError):
    """A device must end a permute with the tile of the device that sent to it."""


class IdleTileError(VerificationError):
    """A device that receives nothing in a permute must keep its tile."""


class RealisationError(VerificationError):
    """An exchange must be realised in rounds or as a ragged all-to-all."""


class ShareRankError(VerificationError):
    """A share must have one start and one size for every dimension."""


class EmptyShareError(VerificationError):
    """A share must hold at least one element."""


class ShareNotHeldError(VerificationError):
    """A device may only send what it held before the exchange."""


class ShareNotWantedError(VerificationError):
    """A device may only receive what belongs to its tile after the exchange."""


class RoundNumberError(VerificationError):
    """The rounds of an exchange must be numbered from 0 without gaps."""


class RoundSenderError(VerificationError):
    """A device may send at most one share in a round."""


class RoundReceiverError(VerificationError):
    """A device may receive at most one share in a round."""


class OverlappingSharesError(VerificationError):
    """No element may reach a device twice, or reach a device that already holds it."""


class UncoveredTileError(VerificationError):
    """What a device keeps and receives must fill its tile."""


class SummandCountError(VerificationError):
    """The summands before and after a step must be as many as its kind says, of one kind of reduction."""


class SummandError(VerificationError):
    """A device must add up what makes its summand: each part once in a sum, at least once in a maximum or minimum."""


class UnreduceError(VerificationError):
    """Tiles that become summands must lie in them, and every part of the array must be in one."""


class FixedOrderError(VerificationError):
    """Under a fixed order summands must be added in one step, in the order in which the source numbers them."""


class TilesError(RedistribError):
    """Tiles or an array do not fit the placement or the type they are given with."""


class PlanJsonError(RedistribError):
    """A text is not a plan's JSON form: a field is missing, unknown, or has a value it cannot have.

    Attributes:
        where: path of the field at fault, such as `steps[2].groups`.
    """

    def __init__(self, message: str, where: str = "") -> None:
        super().__init__(message)
        self.where = where


class PlanVersionError(PlanJsonError):
    """A plan's JSON form is of a version that this release does not read."""


class PlanDigestError(PlanJsonError):
    """A plan's JSON form does not match its digest: it was changed after it was written."""
