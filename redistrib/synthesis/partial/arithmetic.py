"""The element type in which partial sums are reduced, and the reductions of each element type."""

from __future__ import annotations

from redistrib.errors import ReductionError
from redistrib.lang.types import DistType
from redistrib.plans.dtypes import default_accumulation, itemsize_of, require_reduction


def check_reduction(source: DistType, target: DistType, dtype: str, accumulate: str | None) -> str | None:
    """The name of the element type to add in; None for that of the array. Sums of integers wrap around.

    Raises:
        ReductionError: if source and target are partial by different reductions, elements of `dtype` have no such
            reduction, or `accumulate` cannot represent the elements.
        DtypeError: if no element type is called `accumulate`.
    """
    kind = source.reduction or target.reduction
    if accumulate is not None:
        size = itemsize_of(accumulate)
    if kind is None:
        return None
    if source.partial and target.partial and source.reduction != target.reduction:
        raise ReductionError(
            f"partial sums by {source.reduction} cannot become partial sums by {target.reduction}; "
            f"reduce {source} first, and make {target} of the result"
        )
    require_reduction(kind, dtype)
    if kind != "sum" or not source.partial:
        return None
    if accumulate is None:
        return default_accumulation(kind, dtype)
    if accumulate == dtype:
        return None
    if _family(accumulate) != _family(dtype) or size < itemsize_of(dtype):
        raise ReductionError(
            f"sums of {dtype} cannot be accumulated in {accumulate}; give a type of the same kind, as wide or wider"
        )
    return accumulate


def _family(dtype: str) -> str:
    return next((family for family in ("complex", "float", "int") if family in dtype), dtype)
