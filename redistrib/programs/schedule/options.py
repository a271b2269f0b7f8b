"""Options of `partition` beside nests and grids: how arrays begin and end, and their element types."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from redistrib.cost.model import CostModel
from redistrib.errors import ProgramError
from redistrib.lang.types import DistType
from redistrib.programs.ir.program import Place, Value
from redistrib.programs.ir.value import with_padding
from redistrib.programs.ir.windows import Held
from redistrib.programs.schedule.root import ROOT

DTYPE = "float32"


@dataclass(frozen=True)
class PartitionOptions:
    """The options; see `redistrib.programs.run.partition.partition`."""

    ranks: int | None
    inputs: dict[str, DistType]
    outputs: dict[str, DistType | None]
    root: bool
    dtype: str | dict[str, str]
    model: CostModel | str
    padding: dict[str, tuple[int, ...]] = field(default_factory=dict)  # of arrays that a grid does not divide

    def dtype_of(self, array: str) -> str:
        """Name of the element type of an array."""
        return self.dtype if isinstance(self.dtype, str) else self.dtype.get(array, DTYPE)

    def value(self, array: str, form: DistType, place: Place, windows: tuple[Held, ...] = ()) -> Value:
        """A layout of an array."""
        return Value(array, form, place, self.dtype_of(array), windows, self.padding.get(array, ()))

    def start(self, target: Value, place: Place) -> Value:
        """The input of an array whose first reader needs the layout `target`."""
        if target.name in self.inputs:
            return replace(target, type=self._type(target, self.inputs[target.name]), place=place, windows=())
        if self.root:
            return replace(target, type=DistType.cut(target.shape, {}, ROOT.mesh), place=ROOT, windows=())
        return target

    def end(self, first: Value, dist_type: DistType | None, place: Place) -> Value:
        """The output of an array that was computed as `first`; `dist_type` is its type, None where any will do."""
        if dist_type is not None:
            return replace(first, type=self._type(first, dist_type), place=place)
        if self.root:
            return replace(first, type=DistType.cut(first.type.global_shape, {}, ROOT.mesh), place=ROOT)
        return replace(first, type=DistType(first.type.dims))

    def _type(self, array: Value, form: DistType) -> DistType:
        """The type of an array with its padding; where the requested type leaves a dimension whole it may be without.

        Raises:
            ProgramError: if it is of another shape, or cuts an array with padding otherwise.
        """
        requested = form
        if not any(array.padding):
            return with_padding(form)[0]
        if form.rank == len(array.padding):
            dims = tuple(
                dim if dim.axes or dim.padding else replace(dim, tile=dim.size + more, padding=more)
                for dim, more in zip(form.dims, array.padding, strict=True)
            )
            form = replace(form, dims=dims)
        even, padding = with_padding(form)
        if form.global_shape != array.array_shape or padding != array.padding:
            why = (
                f"it is to be {requested}, and its shape is {list(array.array_shape)}, with padding of "
                f"{list(array.padding)} elements where it is cut, as in {array.form}; take grids that divide it, or a "
                f"type with this padding"
            )
            raise ProgramError("", array.name, "Schedule", why)
        return even
