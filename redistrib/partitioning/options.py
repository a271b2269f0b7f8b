"""Options of `partition` beside nests and grids: how arrays begin and end, and their element types."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from redistrib.cost.model import CostModel
from redistrib.lang.types import DistType
from redistrib.partitioning.root import ROOT
from redistrib.programs.program import Place, Value

DTYPE = "float32"


@dataclass(frozen=True)
class PartitionOptions:
    """The options; see `redistrib.partitioning.partition`."""

    ranks: int | None
    inputs: dict[str, Any]
    outputs: dict[str, Any]
    root: bool
    dtype: str | dict[str, str]
    model: CostModel | str

    def dtype_of(self, array: str) -> str:
        """Name of the element type of an array."""
        return self.dtype if isinstance(self.dtype, str) else self.dtype.get(array, DTYPE)

    def start(self, target: Value, place: Place) -> Value:
        """The input of an array whose first reader needs the layout `target`."""
        if target.name in self.inputs:
            return replace(target, type=DistType.of(self.inputs[target.name]), place=place, windows=())
        if self.root:
            return replace(target, type=DistType.cut(target.shape, {}, ROOT.mesh), place=ROOT, windows=())
        return target

    def end(self, first: Value, dist_type: Any, place: Place) -> Value:
        """The output of an array that was computed as `first`; `dist_type` is its type, None where any will do."""
        if dist_type is not None:
            return replace(first, type=DistType.of(dist_type), place=place)
        if self.root:
            return replace(first, type=DistType.cut(first.type.global_shape, {}, ROOT.mesh), place=ROOT)
        return replace(first, type=DistType(first.type.dims))
