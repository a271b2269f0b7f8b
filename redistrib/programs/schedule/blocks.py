"""Products cut along the dimensions that they reduce: no collective multiplies, so that it is done in two operations.

A product over `j` that a grid cuts into 4 parts becomes the products of 4 blocks of `j`, one on each device, and the
product of these results. The second operation has the name and the grid of the first, whole along `j`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from redistrib.errors import CutError
from redistrib.programs.ir.nest import Nest
from redistrib.programs.schedule.grids import parts_of

_Grids = Mapping[str, Sequence[int] | Mapping[str, int]]


def in_blocks(nests: Sequence[Nest], grids: _Grids, groups: Mapping[str, Sequence[str]]) -> tuple[list[Nest], _Grids]:
    """The nests, with two in the place of each whose reduced dimensions are cut and have blocks; and their grids.

    A block has the points of a part where the parts divide the range, and else as many as divide both.

    Raises:
        CutError: if such an operation is in a group, in which nothing may move.
    """
    grouped = {member: name for name, members in groups.items() for member in members}
    divided: list[Nest] = []
    schedule = dict(grids)
    for nest in nests:
        parts = dict(zip(nest.position, parts_of(nest, grids), strict=True)) if nest.blocks else {}
        written = {name for access in nest.writes for name in access.names}
        cut = {name: count for name, count in parts.items() if count > 1 and name not in written}
        if nest.blocks is None or not cut:
            divided.append(nest)
            continue
        if nest.name in grouped:
            why = f"a product cut along {', '.join(cut)} is two operations and a move between them"
            raise nest.error("Combine", f"{why}; leave it out of group {grouped[nest.name]!r}", kind=CutError)
        sizes = dict(zip(nest.position, nest.sizes, strict=True))
        lengths = {name: math.gcd(sizes[name], -(-sizes[name] // count)) or 1 for name, count in cut.items()}
        of_blocks, of_results = nest.blocks(lengths)
        uncut = {name: count for name, count in parts.items() if name not in cut}
        of_cut = dict(zip(of_blocks.position, cut.values(), strict=False))  # the blocks stand first
        schedule[of_blocks.name] = {**uncut, **of_cut}
        schedule[of_results.name] = {name: uncut.get(name, 1) for name in of_results.position}
        divided += [of_blocks, of_results]
    return divided, schedule
