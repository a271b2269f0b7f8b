"""Kernels with several results: operations that are computed beside others, in one pass over the same points.

Kernels have levels. One reads results of lower levels only, so that no two kernels wait for each other. An operation
joins the kernel that computes what it reads, or one that reads the same array, and raises that kernel's level where no
other kernel reads its results yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from redistrib.programs.ir.graph import Graph
from redistrib.programs.ir.record import WorkClass

SHARED = 1 / 3  # of the bytes that an operation reads: the least part that it has in common with a kernel that it joins


class Root(NamedTuple):
    """An operation whose results come out of a kernel.

    Attributes:
        reads: stored arrays that it is computed from, by name.
        kind: `"loop"`, `"reduction"`, `"product"`; `"renaming"` for the same elements in another shape, which are no
            kernel; or empty for a kernel of its own.
        points: elements of the result; of a reduction, of what it reads.
    """

    reads: tuple[str, ...]
    kind: str
    points: int


@dataclass
class _Group:
    """Operations of one kernel.

    Attributes:
        kind: of the first operation.
        points, scope: of all.
        level: above those of the kernels whose results it reads.
        is_read: whether another kernel reads its results.
    """

    kind: str
    points: int
    scope: int | None
    level: int
    is_read: bool = False


def groups_of(graph: Graph, roots: Sequence[Root | None], sizes: Mapping[str, int]) -> dict[int, int]:
    """For every operation with a root, by number, the number of its kernel.

    Args:
        graph: the operations.
        roots: for every operation; None for those that are computed inside others.
        sizes: bytes of every array by name.
    """
    groups: list[_Group] = []
    group_of: dict[int, int] = {}
    made_in: dict[str, int] = {}  # for arrays the groups that they come from
    readers: dict[str, list[int]] = {}  # for arrays the groups that read them
    highest = 0

    def placed(number: int, root: Root) -> int:
        scope = graph.scopes[number]
        makers = {name: graph.makers[name][0] for name in root.reads if name in graph.makers}
        by = {name: made_in[name] for name in root.reads if name in made_in}
        level = max((groups[group].level for group in by.values()), default=0)
        if root.kind == "renaming" and len(by) == 1 and all(groups[g].scope == scope for g in by.values()):
            return next(iter(by.values()))
        if root.kind in ("loop", "reduction"):
            chosen = _follows(root, scope, by, makers) or _shares(root, scope, level, {*by.values()})
            if chosen is not None:
                group, new = chosen
                groups[group].level = new
                for other in by.values():
                    groups[other].is_read |= other != group
                return group
        for other in by.values():
            groups[other].is_read = True
        groups.append(_Group(root.kind, root.points, scope, level + 1))
        return len(groups) - 1

    def _follows(
        root: Root, scope: int | None, by: Mapping[str, int], makers: Mapping[str, int]
    ) -> tuple[int, int] | None:
        """The kernel among the makers of the operands that it joins, and that kernel's level then."""
        best: tuple[int, int, int] | None = None
        for group in dict.fromkeys(by.values()):
            names, kernel = [name for name, other in by.items() if other == group], groups[group]
            pointwise = all(
                (maker := roots[makers[name]]) is not None
                and maker.kind in ("loop", "product")
                and maker.points == root.points
                for name in names
            )
            if not pointwise or kernel.scope != scope or kernel.points != root.points or not kernel.kind:
                continue
            others = max((groups[other].level for other in by.values() if other != group), default=0)
            if kernel.level <= others and kernel.is_read:
                continue
            size = sum(sizes[name] for name in names) * (2 if kernel.kind == "product" else 1)
            if best is None or size > best[0]:
                best = (size, group, max(kernel.level, others + 1))
        return None if best is None else best[1:]

    def _shares(root: Root, scope: int | None, level: int, makers: set[int]) -> tuple[int, int] | None:
        """The kernel that reads the same array which it joins, and that kernel's level then."""
        total = sum(sizes[name] for name in root.reads)
        for name in root.reads:
            if sizes[name] < SHARED * total:
                continue
            for group in readers.get(name, ()):
                kernel = groups[group]
                fits = kernel.kind in ("loop", "reduction") and kernel.points == root.points and kernel.scope == scope
                if fits and group not in makers and (kernel.level > level or not kernel.is_read):
                    return group, max(kernel.level, level + 1)
        return None

    for number, root in enumerate(roots):
        if root is not None:
            group = group_of[number] = placed(number, root)
            highest = max(highest, groups[group].level)
            made_in |= {array.name: group for array in graph.operations[number].outs}
            for name in root.reads:
                if group not in readers.setdefault(name, []):
                    readers[name].append(group)
        for loop in graph.ending.get(number, ()):  # its results are there when it is over
            highest += 1
            made_in |= dict.fromkeys(graph.loops[loop].outs, len(groups))
            groups.append(_Group("", 0, loop, highest))
    return group_of


def without_products(graph: Graph, roots: Sequence[Root | None]) -> list[Root | None]:
    """The roots where a product has a kernel of its own, which may transpose its result."""

    def changed(number: int, root: Root | None) -> Root | None:
        if root is not None and root.kind == "product":
            return root._replace(kind="", points=0)
        return root._replace(kind="renaming", points=0) if _is_turned(graph, roots, number) and root else root

    return [changed(number, root) for number, root in enumerate(roots)]


def _is_turned(graph: Graph, roots: Sequence[Root | None], number: int) -> bool:
    """Whether an operation transposes the result of a product beside it."""
    root = roots[number]
    if root is None or graph.operations[number].record.work is not WorkClass.TRANSPOSE or len(root.reads) != 1:
        return False
    maker = graph.makers[root.reads[0]][0] if root.reads[0] in graph.makers else -1
    before = roots[maker] if maker >= 0 and graph.scopes[maker] == graph.scopes[number] else None
    return before is not None and before.kind == "product"


def alone(graph: Graph, roots: Sequence[Root | None]) -> dict[int, int]:
    """For every operation with a root, by number, the number of its kernel where kernels have one result.

    The same elements in another shape are no kernel, nor is the result of a product that is transposed.
    """
    group_of: dict[int, int] = {}
    for number, root in enumerate(roots):
        if root is None:
            continue
        maker = graph.makers[root.reads[0]][0] if len(root.reads) == 1 and root.reads[0] in graph.makers else -1
        before = roots[maker] if maker in group_of and graph.scopes[maker] == graph.scopes[number] else None
        joins = before is not None and (root.kind == "renaming" or _is_turned(graph, roots, number))
        group_of[number] = group_of[maker] if joins else number
    return group_of
