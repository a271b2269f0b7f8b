"""Every exception of the library: one class for all that callers would answer in one way.

All derive from `RedistribError`, itself a `ValueError`. A message names the value, the rule it breaks and the
way out. Where a class stands for several rules, `rule` names the one that is broken, and the offending values are
attributes (`RuleBroken`). Meshes and types are held as their notation, so this module depends on nothing.
"""

from redistrib.errors.backends import (
    CommunicatorError,
    ForeignMeshError,
    HloTextError,
    LeafError,
    PictureError,
    ReplicaError,
    RunSizeError,
    SourceArrayError,
    TracedError,
)
from redistrib.errors.base import RedistribError, RuleBroken
from redistrib.errors.lang import (
    MeshError,
    NotationError,
    PartialTypeError,
    SpecError,
    TypeFormError,
    UnevenTypeError,
    UnknownAxisError,
)
from redistrib.errors.plans import (
    VERIFICATION_RULES,
    PlacementError,
    PlanFormError,
    PlanJsonError,
    TileAboveBoundError,
    TilesError,
    VerificationError,
)
from redistrib.errors.programs import (
    CutError,
    CutInnerFactorError,
    InconsistentGroupError,
    NoCombinerError,
    ProgramError,
)
from redistrib.errors.rules import RuleError
from redistrib.errors.synthesis import (
    ChoiceError,
    DtypeError,
    GlobalShapeError,
    MemoryLimitError,
    MeshDevicesError,
    ProfileError,
    ReductionError,
)

__all__ = [
    "VERIFICATION_RULES",
    "ChoiceError",
    "CommunicatorError",
    "CutError",
    "CutInnerFactorError",
    "DtypeError",
    "ForeignMeshError",
    "GlobalShapeError",
    "HloTextError",
    "InconsistentGroupError",
    "LeafError",
    "MemoryLimitError",
    "MeshDevicesError",
    "MeshError",
    "NoCombinerError",
    "NotationError",
    "PartialTypeError",
    "PictureError",
    "PlacementError",
    "PlanFormError",
    "PlanJsonError",
    "ProfileError",
    "ProgramError",
    "RedistribError",
    "ReductionError",
    "ReplicaError",
    "RuleBroken",
    "RuleError",
    "RunSizeError",
    "SourceArrayError",
    "SpecError",
    "TileAboveBoundError",
    "TilesError",
    "TracedError",
    "TypeFormError",
    "UnevenTypeError",
    "UnknownAxisError",
    "VerificationError",
]
