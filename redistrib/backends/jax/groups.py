"""Device groups as mesh axes: a collective over named axes reads better than over a table of numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from redistrib.theory.placement import Int64


def axes_of_groups(groups: Int64, sizes: Sequence[int]) -> tuple[int, ...] | None:
    """The mesh axes that the groups run along, major first, so that members come in row-major order over them.

    Args:
        groups: `[groups, members]` row-major mesh positions, every position once.
        sizes: of the mesh axes.

    Returns:
        Positions of axes, any subset in any order, or None if the groups follow no axes.

    >>> axes_of_groups(np.array([[0, 3], [1, 4], [2, 5]]), (2, 3))
    (0,)
    >>> axes_of_groups(np.array([[0, 3, 1, 4, 2, 5]]), (2, 3))
    (1, 0)
    >>> axes_of_groups(np.array([[0, 1], [2, 3], [4, 5]]), (2, 3)) is None
    True
    """
    members = groups.shape[1]
    coordinates = np.stack(np.unravel_index(groups, tuple(sizes)), axis=-1)  # [groups, members, axes]
    strides = {}
    for axis in range(len(sizes)):
        along = coordinates[0, :, axis]
        if (along != along[0]).any():
            strides[axis] = int(np.argmax(along != along[0]))
    order = tuple(sorted(strides, key=lambda axis: -strides[axis]))
    if math.prod(sizes[axis] for axis in order) != members:
        return None
    number = np.arange(members)
    for axis in range(len(sizes)):
        expected = number // strides[axis] % sizes[axis] if axis in strides else coordinates[:, :1, axis]
        if (coordinates[:, :, axis] != expected).any():
            return None
    return order
