"""Nests: operations as iteration spaces with affine reads and writes.

A nest says over which points an operation iterates and which elements of its arrays each point touches; it says
nothing of devices. `pullback` derives the types of arrays from a cut of the iteration space.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

from redistrib.arith import as_integer
from redistrib.errors import ProgramError
from redistrib.lang.notation import REDUCTIONS
from redistrib.programs.ir.record import Record
from redistrib.programs.ir.windows import Window, reached, unfit


def _pairs(value: Any) -> tuple[Any, ...]:
    return tuple(value.items() if isinstance(value, Mapping) else value)


_LARGEST = 2**63 - 1  # points of a range that Python can count


@dataclass(frozen=True)
class Access:
    """How one array is read or written.

    Attributes:
        array: name of the array.
        dims: for every array dimension the iteration dimensions it is made of, major to minor: `("h", "e")` is the
            index `h * size(e) + e`. An empty tuple reads, or writes, the dimension whole at every point.
        extents: the sizes of the dimensions that are read whole, in order, in elements.
        windows: for every array dimension the number of elements that a point reads, from its index on; empty: one
            each. The array is longer than the points by the further elements of the last one. A `Stencil` describes
            windows with strides, dilation or padding, and the length of the array.

    >>> Access("A", (("i",), ()), (8,)).windows        # A[i, :] with 8 columns
    ()
    >>> Access("p", (("i",),), windows=(2,)).windows   # p[i:i + 2]
    (2,)
    """

    array: str
    dims: tuple[tuple[str, ...], ...]
    extents: tuple[int, ...] = ()
    windows: tuple[Window, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "dims", tuple(map(tuple, self.dims)))
        object.__setattr__(self, "extents", tuple(self.extents))
        object.__setattr__(self, "windows", tuple(self.windows) if any(n != 1 for n in self.windows) else ())

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The iteration dimensions it depends on."""
        return tuple(name for dim in self.dims for name in dim)


@dataclass(frozen=True)
class Nest:
    """An operation over an iteration space.

    Attributes:
        name: the operation.
        ranges: the iteration dimensions in order, each with its range; a mapping from names to ranges or sizes will do.
        reads, writes: the accesses, in the order of the body's arguments and results.
        combine: for iteration dimensions that are not written, how the results along them are combined: `"sum"`,
            `"max"` or `"min"`.
        whole: iteration dimensions that may never be cut.
        linear: groups of reads, by position, that a summand passes through: the operation is linear in the reads of a
            group taken together. For `a + b` that is `((0, 1),)`, for a product `((0,), (1,))`.
        indexed: iteration dimensions of which the body must be told where in the whole range it stands.
        fills: a reduction of which every result is the identity: this result may be taken for a summand.
        body: computes the results: called with the range of every iteration dimension and one array for each
            read, `body(at, *arrays)`; returns one array, or a tuple with one for each write. The ranges begin where
            the whole ranges do, except along `indexed` dimensions. None: the nest can be planned but not run.
        flops: floating-point operations at each point; a fraction where the body does not work at each.
        effectful: whether the body has effects besides its results, as printing has: it is run once and in its order.
        replicated: numbers of the writes that are the same in every part, along the dimensions that they lack.
        record: what is known of the operation besides; None: what is known of its kind.
        blocks: for a reduction that no collective has, with the points of a block along each cut dimension: the nest of
            the blocks, which its first dimensions number, and the one that combines their results.

    Raises:
        ProgramError: if the parts do not fit together.

    >>> rows, sums = Access("A", (("i",), ("k",))), Access("s", (("i",),))
    >>> Nest("rowsum", {"i": 4, "k": 8}, [rows], [sums], {"k": "sum"}).work
    32
    """

    name: str
    ranges: tuple[tuple[str, range], ...]
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]
    combine: tuple[tuple[str, str], ...] = ()
    whole: frozenset[str] = frozenset()
    linear: tuple[tuple[int, ...], ...] = ()
    indexed: frozenset[str] = frozenset()
    fills: str | None = None
    body: Callable[..., Any] | None = None
    flops: int | Fraction = 1
    effectful: bool = False
    replicated: frozenset[int] = frozenset()
    record: Record | None = None
    blocks: Callable[[Mapping[str, int]], tuple[Nest, Nest]] | None = None

    def __post_init__(self) -> None:
        ranges = tuple((name, self._range(name, size)) for name, size in _pairs(self.ranges))
        object.__setattr__(self, "ranges", ranges)
        object.__setattr__(self, "combine", _pairs(self.combine))
        for name in ("reads", "writes"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        object.__setattr__(self, "linear", tuple(map(tuple, self.linear)))
        for name in ("whole", "indexed", "replicated"):
            object.__setattr__(self, name, frozenset(getattr(self, name)))
        self._check()

    def _range(self, name: str, size_or_range: Any) -> range:
        size = as_integer(size_or_range)
        if isinstance(size_or_range, range) or (size is not None and size >= 0):
            over = size_or_range if size is None else range(size)
            if max(abs(over.start), abs(over.stop), abs(over.step)) > _LARGEST:
                raise self.error("Nest", f"the range of {name!r} goes beyond {_LARGEST}; take a smaller one")
            return over
        raise self.error("Nest", f"{size_or_range!r} is no size of {name!r}; give an integer, or a range")

    def _check(self) -> None:
        if len(self.position) != len(self.ranges):
            raise self.error("Nest", "two iteration dimensions have one name; give each its own")
        for access in (*self.reads, *self.writes):
            self._require_known(access.names, access.array)
            if len(set(access.names)) != len(access.names):
                raise self.error("Nest", "an iteration dimension is used twice; read one of them whole", access.array)
            whole, extents = access.dims.count(()), len(access.extents)
            if whole != extents:
                why = f"{whole} dimensions are read whole and {extents} extents are given; give one for each"
                raise self.error("Whole", why, access.array)
            self._check_windows(access)
        self._require_known((*self.combiner, *self.whole, *self.indexed))
        for kind in (*self.combiner.values(), *([self.fills] if self.fills else [])):
            if kind not in REDUCTIONS:
                raise self.error("Combine", f"no reduction {kind!r}; take one of {', '.join(REDUCTIONS)}")
        carried = [k for group in self.linear for k in group]
        if len(set(carried)) != len(carried) or not set(carried) <= set(range(len(self.reads))):
            why = f"groups {self.linear} do not name reads of {len(self.reads)}, each at most once"
            raise self.error("Linear", why)
        if not self.replicated <= set(range(len(self.writes))):
            why = f"{sorted(self.replicated)} are not all numbers of writes, of which there are {len(self.writes)}"
            raise self.error("Combine", why)

    def _check_windows(self, access: Access) -> None:
        if access.windows and access in self.writes:
            raise self.error("Window", "an array is written one element at each point", access.array)
        if access.windows and (why := unfit(access.dims, access.windows)):
            raise self.error("Window", why, access.array)

    def _require_known(self, names: Iterable[str], array: str = "") -> None:
        for name in names:
            if name not in self.position:
                names_there = ", ".join(self.position) or "none"
                raise self.error("Nest", f"no iteration dimension {name!r}; there are {names_there}", array)

    def error(self, rule: str, message: str, array: str = "", kind: type[ProgramError] = ProgramError) -> ProgramError:
        """An error of this operation, or of one of its arrays, that breaks a rule."""
        return kind(self.name, array, rule, message)

    @cached_property
    def position(self) -> dict[str, int]:
        """Place of every iteration dimension in the order."""
        return {name: k for k, (name, _) in enumerate(self.ranges)}

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Points along each iteration dimension."""
        return tuple(len(over) for _, over in self.ranges)

    @cached_property
    def combiner(self) -> dict[str, str]:
        """The reduction of each iteration dimension that has one."""
        return dict(self.combine)

    def is_summed(self, write: int, name: str) -> bool:
        """Whether a write is partial sums where an iteration dimension is cut."""
        return self.combiner.get(name) == "sum" and not (write in self.replicated or name in self.writes[write].names)

    @property
    def points(self) -> int:
        """Points of the iteration space."""
        return math.prod(self.sizes)

    @property
    def work(self) -> int:
        """Floating-point operations at all points."""
        return int(self.points * self.flops)

    def size(self, name: str) -> int:
        """Points along one iteration dimension."""
        return self.sizes[self.position[name]]

    def shape(self, access: Access) -> tuple[int, ...]:
        """Shape of an accessed array, in elements."""
        extents = iter(access.extents)
        points = tuple(math.prod(map(self.size, dim)) if dim else next(extents) for dim in access.dims)
        return reached(points, access.windows)
