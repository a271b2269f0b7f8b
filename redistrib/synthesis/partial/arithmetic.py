"""Which sums there are, and in which element type they are added up."""

from __future__ import annotations

from redistrib.errors import ReductionError
from redistrib.lang.types import DistType
from redistrib.plans.dtypes import added_in, itemsize_of, require_reduction


def check_reduction(source: DistType, target: DistType, dtype: str, accumulate: str | None) -> str | None:
    """The element type to add in, by name; None for that of the array. Sums of integers wrap around.

    Raises:
        ReductionError: if source and target are summands of different kinds, elements of `dtype` have no such
            reduction, or `accumulate` does not hold what is to be added.
        DtypeError: if no element type is called `accumulate`.
    """
    kind = source.reduction or target.reduction
    if accumulate is not None:
        size = itemsize_of(accumulate)
    if kind is None:
        return None
    if source.partial and target.partial and source.reduction != target.reduction:
        raise ReductionError(
            f"summands by {source.reduction} cannot become summands by {target.reduction}; "
            f"reduce {source} first, and make {target} of the result"
        )
    require_reduction(kind, dtype)
    if kind != "sum" or not source.partial:
        return None
    if accumulate is None:
        return added_in(kind, dtype)
    if accumulate == dtype:
        return None
    if _family(accumulate) != _family(dtype) or size < itemsize_of(dtype):
        raise ReductionError(
            f"sums of {dtype} cannot be accumulated in {accumulate}; give a type of the same kind, as wide or wider"
        )
    return accumulate


def _family(dtype: str) -> str:
    return next((family for family in ("complex", "float", "int") if family in dtype), dtype)
