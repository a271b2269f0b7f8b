"""Subsets with rank variables: the part of an array that each device holds, as one text, `x[2*r0 : 2*r0+2, 0 : 16]`.

Every mesh axis is a rank variable: the coordinate of a device along it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from redistrib.errors import UnevenTypeError
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DimType, DistType


class Steps(NamedTuple):
    """What devices hold along a dimension, by the number of their tile.

    Attributes:
        step: elements from the first of one tile to the first of the next.
        start: the first element of the first tile; it may lie before the array.
        length: elements of a tile, those beyond the array included.
    """

    step: int
    start: int
    length: int


def subset(dist_type: DistType | str, mesh: Any, name: str = "x") -> str:
    """The part of an array that each device holds, with the device's coordinates as variables.

    The bounds are arithmetic of Python, with the names of the mesh axes as variables and the element after the last
    as end. Where tiles are partial sums, the axes of these follow: devices along them hold summands of the same part.

    Args:
        dist_type: how the array is cut, as a `DistType` or its notation.
        mesh: the mesh, in any form that `Mesh.of` reads.
        name: of the array.

    Raises:
        TypeFormError: if the type is not well-formed over the mesh.
        UnevenTypeError: if several axes together cut one dimension into tiles of unequal size.

    >>> subset("[2{r0}4, 4{r1}8, 16]", "r0=2,r1=2")
    'x[2*r0 : 2*r0+2, 4*r1 : 4*r1+4, 0 : 16]'
    >>> subset("[3{b,a}24] sum{c}", "a=4,b=2,c=2", "out")
    'out[6*a+3*b : 6*a+3*b+3] sum{c}'
    """
    form, over = DistType.of(dist_type), Mesh.of(mesh)
    form.check(over)
    return text_of(name, form, over, form.global_shape, [Steps(dim.tile, 0, dim.tile) for dim in form.dims])


def text_of(name: str, form: DistType, mesh: Mesh, shape: Sequence[int], steps: Sequence[Steps]) -> str:
    """The subset of a type, where tiles may overlap along some dimensions.

    Args:
        name: of the array.
        form: the type, well-formed over the mesh.
        mesh: its rank variables.
        shape: of the array, in elements.
        steps: for every dimension what devices hold.
    """
    dims = [_bounds(form, k, mesh, size, step) for k, (size, step) in enumerate(zip(shape, steps, strict=True))]
    summed = f" {form.reduction}{{{','.join(form.partial)}}}" if form.partial else ""
    return f"{name}[{', '.join(dims)}]{summed}"


def _bounds(form: DistType, number: int, mesh: Mesh, size: int, steps: Steps) -> str:
    dim = form.dims[number]
    sizes = [mesh.axis(axis).size for axis in dim.axes]
    if dim.cut != "even" and len([size for size in sizes if size > 1]) > 1:
        raise UnevenTypeError("a subset with several rank variables in one dimension", str(form))
    if dim.cut == "balanced" and dim.size % math.prod(sizes):
        return _balanced(dim, math.prod(sizes), next(a for a, n in zip(dim.axes, sizes, strict=True) if n > 1))
    step, start, length = steps
    terms: list[str] = []
    for k, axis in enumerate(dim.axes):  # minor to major
        if sizes[k] > 1:
            terms.insert(0, _times(step * math.prod(sizes[:k]), axis))
    span = step * (math.prod(sizes) - 1)
    return " : ".join(_clipped(terms, constant, span, size) for constant in (start, start + length))


def _clipped(terms: Sequence[str], constant: int, span: int, size: int) -> str:
    """The sum of terms from 0 to `span` and a constant, not below 0 and not above the size."""
    text = "+".join(terms)
    if not text:
        return str(min(max(constant, 0), size))
    text += f"{constant:+d}" if constant else ""
    if constant < 0:
        text = f"max({text}, 0)"
    return f"min({text}, {size})" if constant + span > size else text


def _balanced(dim: DimType, parts: int, axis: str) -> str:
    """Tiles of which the first ones have one element more."""
    least, longer = divmod(dim.size, parts)
    first = f"{_times(least, axis)}+" if least else ""
    end = f"{_times(least, f'({axis}+1)')}+" if least else ""
    return f"{first}min({axis}, {longer}) : {end}min({axis}+1, {longer})"


def _times(factor: int, variable: str) -> str:
    return variable if factor == 1 else f"{factor}*{variable}"
