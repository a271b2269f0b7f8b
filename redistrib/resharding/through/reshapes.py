"""Boxes through a reshape: the dimensions that belong together, and a run of elements as boxes of another shape."""

from __future__ import annotations

import math
from collections.abc import Sequence

from redistrib.theory.boxes import Edges


def dimension_groups(before: Sequence[int], after: Sequence[int]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Dimensions of two shapes in the shortest groups of equal product, in order.

    >>> dimension_groups((6, 4, 5), (2, 3, 20))
    [((6,), (2, 3)), ((4, 5), (20,))]
    """
    groups: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    i = j = 0
    while i < len(before) or j < len(after):
        left, right = [i], [j]
        product_before, product_after = 1, 1
        while True:
            if product_before == product_after and (i > left[0] or j > right[0]):
                break
            if (product_before <= product_after and i < len(before)) or j == len(after):
                product_before *= before[i]
                i += 1
            else:
                product_after *= after[j]
                j += 1
        groups.append((tuple(before[left[0] : i]), tuple(after[right[0] : j])))
    return groups


def boxes_of_run(shape: Sequence[int], start: int, stop: int) -> list[Edges]:
    """A run of an array that lies row by row, as the edges of boxes one behind the other.

    >>> boxes_of_run((4, 6), 8, 21)
    [((1, 2), (2, 6)), ((2, 3), (0, 6)), ((3, 4), (0, 3))]
    """
    if start == stop:
        return []
    if not shape:
        return [()]
    if len(shape) == 1:
        return [((start, stop),)]
    row = math.prod(shape[1:])
    first, last = -(-start // row), stop // row
    whole = tuple((0, size) for size in shape[1:])
    if first > last:  # inside one row
        return [((last, last + 1), *box) for box in boxes_of_run(shape[1:], start - last * row, stop - last * row)]
    head = boxes_of_run(shape[1:], start - (first - 1) * row, row) if start < first * row else []
    tail = boxes_of_run(shape[1:], 0, stop - last * row) if stop > last * row else []
    result: list[Edges] = [((first - 1, first), *box) for box in head]
    if first < last:
        result.append(((first, last), *whole))
    return result + [((last, last + 1), *box) for box in tail]
