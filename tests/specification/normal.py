"""Normal forms: what they are, and how any weak sequence becomes one (Sections 4.3 and 5).

A sequence is in normal form if its slices come first and its gathers last (Definition 4.5). Three rewrites lead there:
a peak, a gather followed by a slice, becomes a valley or vanishes (Lemma 4.6); a rising edge, a gather followed by an
all-to-all, and a falling edge, an all-to-all followed by a slice, change places (Lemma 4.7). The lemmas speak of single
prime axes; here factors may be composite, and what two of them share takes the place of the equal axes. None of the
rewrites raises the largest tile or the price in the paper's model (Lemma 6.5).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from redistrib.theory.weak import EdgeKind, Grid, WeakEdge, divided, scaled

_LETTER = {
    "dynslice": "s", "reduce_scatter": "r", "all_reduce": "a", "reduce_exchange": "e",
    "alltoall": "x", "allpermute": "x", "exchange": "x", "allgather": "g", "unreduce": "u",
}  # fmt: skip
_NORMAL = re.compile(r"s*r*a*e*x*g*u*")


def is_normal_form(kinds: Sequence[str]) -> bool:
    """Whether steps of these kinds are in normal form (Definition 4.5); our exchanges stand where all-to-alls do.

    Where tiles are summands, reductions stand between slices and exchanges (an exchange that adds is both), and what
    makes summands stands last.

    >>> is_normal_form(["dynslice", "alltoall", "allpermute", "allgather"])
    True
    >>> is_normal_form(["allgather", "dynslice"])
    False
    >>> is_normal_form(["reduce_scatter", "allgather", "unreduce"])
    True
    """
    return _NORMAL.fullmatch("".join(_LETTER[kind] for kind in kinds)) is not None


def sequence(start: Grid, moves: Sequence[tuple[EdgeKind, int, int, int]]) -> list[WeakEdge]:
    """Weak collectives (kind, dimension, other dimension, factor) one after the other; factors of 1 are left out.

    Raises:
        ValueError: if a factor is to be taken from a dimension that does not have it.
    """
    edges = []
    for kind, dim, to, factor in moves:
        if factor == 1:
            continue
        onto = start
        if kind != "dynslice":
            if onto[dim] % factor:
                raise ValueError(f"dimension {dim} of {onto} has no factor {factor} to give")
            onto = divided(onto, dim, factor)
        if kind != "allgather":
            onto = scaled(onto, to, factor)
        edges.append(WeakEdge(kind, start, onto, dim, to, factor))
        start = onto
    return edges


def rewritten(first: WeakEdge, second: WeakEdge) -> list[WeakEdge] | None:
    """What two neighbours become that are out of order; None where they are in order.

    >>> peak = sequence((4, 1), [("allgather", 0, 0, 4), ("dynslice", 1, 1, 2)])
    >>> [(edge.kind, edge.factor) for edge in rewritten(*peak) or []]
    [('alltoall', 2), ('allgather', 2)]
    """
    start, m, n = first.source, first.factor, second.factor
    shared = math.gcd(m, n)
    match first.kind, second.kind:
        case "allgather", "dynslice":
            i, j = first.dim, second.dim
            # What is gathered and cut again need not be gathered: it stays where it is, or changes dimension.
            middle: list[tuple[EdgeKind, int, int, int]] = [("alltoall", i, j, shared)] if i != j else []
            return sequence(start, [("dynslice", j, j, n // shared), *middle, ("allgather", i, i, m // shared)])
        case "allgather", "alltoall":
            i, k, to = first.dim, second.dim, second.to
            if to != i:
                return sequence(start, [("alltoall", k, to, n), ("allgather", i, i, m)])
            # The dimension gathered is refilled: what refills it is gathered from its own dimension instead.
            return sequence(
                start,
                [("alltoall", k, i, n // shared), ("allgather", k, k, shared), ("allgather", i, i, m // shared)],
            )
        case "alltoall", "dynslice":
            k, to, j = first.dim, first.to, second.dim
            if j != k:
                return sequence(start, [("dynslice", j, j, n), ("alltoall", k, to, m)])
            # The dimension emptied is cut again: what would be taken from it is cut from the other one instead.
            return sequence(
                start,
                [("dynslice", to, to, shared), ("dynslice", k, k, n // shared), ("alltoall", k, to, m // shared)],
            )
        case _:
            return None


def normalised(edges: Sequence[WeakEdge]) -> list[WeakEdge]:
    """A normal form between the same two weak types, no higher and in the paper's model no dearer (Lemma 6.5).

    It puts one edge at a time in front of a normal form and moves it to its place, since every rewrite brings a slice
    forward or a gather back.
    """
    done: list[WeakEdge] = []
    for edge in reversed(edges):
        done = _settled([edge, *done])
    return done


def _settled(edges: list[WeakEdge]) -> list[WeakEdge]:
    at = 0
    while at + 1 < len(edges):
        found = rewritten(edges[at], edges[at + 1])
        if found is None:
            at += 1
        else:
            edges = [*edges[:at], *found, *edges[at + 2 :]]
            at = max(0, at - 1)
    return edges
