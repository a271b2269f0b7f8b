"""The exceptions of the library: errors share a class if a caller would handle them in the same way.

All classes derive from `RedistribError`, which is a `ValueError`. A message names the value, the broken rule and the
way out. If a class stands for several rules, its attribute `rule` names the broken one, and the offending values are
attributes too (`RuleBroken`). Errors hold meshes and types as text, so this package imports no other.
"""

from redistrib.errors.backends import (
    CommunicatorError,
    ForeignMeshError,
    HloTextError,
    JaxVersionError,
    LeafError,
    MissingPackageError,
    PictureError,
    ReplicaError,
    RunSizeError,
    SourceArrayError,
    TracedError,
    ViewError,
)
from redistrib.errors.base import RedistribError, RuleBroken
from redistrib.errors.lang import (
    DTensorError,
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
from redistrib.errors.synthesis import (
    ChoiceError,
    DtypeError,
    GlobalShapeError,
    MemoryLimitError,
    MeshDevicesError,
    ProfileError,
    ReductionError,
)
from redistrib.errors.weights import ThroughError, WeightsFileError

__all__ = [
    "VERIFICATION_RULES",
    "ChoiceError",
    "CommunicatorError",
    "CutError",
    "CutInnerFactorError",
    "DTensorError",
    "DtypeError",
    "ForeignMeshError",
    "GlobalShapeError",
    "HloTextError",
    "InconsistentGroupError",
    "JaxVersionError",
    "LeafError",
    "MemoryLimitError",
    "MeshDevicesError",
    "MeshError",
    "MissingPackageError",
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
    "RunSizeError",
    "SourceArrayError",
    "SpecError",
    "ThroughError",
    "TileAboveBoundError",
    "TilesError",
    "TracedError",
    "TypeFormError",
    "UnevenTypeError",
    "UnknownAxisError",
    "VerificationError",
    "ViewError",
    "WeightsFileError",
]
