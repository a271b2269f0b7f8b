"""Integer arithmetic: prime factors, divisors and mixed-radix digits."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from redistrib.cache import cached

Int64 = npt.NDArray[np.int64]


def as_integer(value: object) -> int | None:
    """The value as a Python integer if it is an integer of Python or NumPy; None for booleans and all other values."""
    if isinstance(value, bool | np.bool_):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


@cached(4096)
def prime_factors(n: int) -> tuple[int, ...]:
    """Prime factors of `n >= 1` with multiplicity, ascending; the empty tuple for 1.

    Trial division is fast enough for the sizes of mesh axes, but not for large integers.

    >>> prime_factors(360)
    (2, 2, 2, 3, 3, 5)
    """
    if n < 1:
        raise ValueError(f"only positive integers have a prime factorisation, got {n}")
    return tuple(_prime_factors(n))


def _prime_factors(n: int) -> Iterator[int]:
    factor = 2
    while factor * factor <= n:
        while n % factor == 0:
            yield factor
            n //= factor
        factor += 1 if factor == 2 else 2
    if n > 1:
        yield n


@cached(4096)
def divisors(n: int) -> tuple[int, ...]:
    """All divisors of `n >= 1`, ascending.

    >>> divisors(12)
    (1, 2, 3, 4, 6, 12)
    """
    result = [1]
    for prime, repeats in groupby(prime_factors(n)):
        powers = [prime**k for k in range(len(list(repeats)) + 1)]
        result = [divisor * power for divisor in result for power in powers]
    return tuple(sorted(result))


def to_digits(numbers: npt.ArrayLike, radices: Sequence[int]) -> Int64:
    """Mixed-radix digits `[..., len(radices)]` of `numbers` `[...]`, least significant first.

    >>> to_digits([0, 1, 3, 5], (3, 2)).tolist()
    [[0, 0], [1, 0], [0, 1], [2, 1]]
    """
    rest = np.asarray(numbers, dtype=np.int64)
    digits = np.empty((*rest.shape, len(radices)), dtype=np.int64)
    for k, radix in enumerate(radices):
        digits[..., k] = rest % radix
        rest = rest // radix
    return digits


def from_digits(digits: npt.ArrayLike, radices: Sequence[int]) -> Int64:
    """Numbers `[...]` of mixed-radix `digits` `[..., len(radices)]`, least significant first; inverts `to_digits`.

    >>> from_digits([[0, 0], [1, 0], [0, 1], [2, 1]], (3, 2)).tolist()
    [0, 1, 3, 5]
    """
    table = np.asarray(digits, dtype=np.int64)
    numbers = np.zeros(table.shape[:-1], dtype=np.int64)
    weight = 1
    for k, radix in enumerate(radices):
        numbers += weight * table[..., k]
        weight *= radix
    return numbers


def unravel(number: Int64, extent: Int64) -> Int64:
    """Row-major indices of numbers in boxes of different extents, `[boxes, rank]`."""
    index = np.empty_like(extent)
    for i in range(extent.shape[1] - 1, -1, -1):
        index[:, i] = number % extent[:, i]
        number = number // extent[:, i]
    return index


def repeated(counts: Int64) -> tuple[Int64, Int64]:
    """Every row number as often as its count says, and for each of them how often it came before.

    >>> [column.tolist() for column in repeated(np.array([2, 0, 3]))]
    [[0, 0, 2, 2, 2], [0, 1, 0, 1, 2]]
    """
    number = np.repeat(np.arange(len(counts)), counts)
    return number, np.arange(len(number)) - np.repeat(counts.cumsum() - counts, counts)


class DistinctRows(NamedTuple):
    """The rows of a table without repetitions, in lexicographic order.

    Attributes:
        rows: `[n, columns]`, each once.
        first: `[n]` number of the first row of the table that is equal to it.
        inverse: for each row of the table the number of its equal in `rows`.
        counts: `[n]` how often the table has it.
    """

    rows: Int64
    first: Int64
    inverse: Int64
    counts: Int64


def distinct_rows(table: Int64) -> DistinctRows:
    """The distinct rows of an integer table.

    `numpy.unique(axis=0)` does the same, but turns an exception of a signal handler into a `TypeError`.

    >>> distinct_rows(np.array([[2, 1], [0, 3], [2, 1]]))
    DistinctRows(rows=array([[0, 3],
           [2, 1]]), first=array([1, 0]), inverse=array([1, 0, 1]), counts=array([1, 2]))
    """
    length, columns = table.shape
    order = np.lexsort(table.T[::-1]) if columns else np.arange(length)
    ordered = table[order]
    is_new = np.ones(length, dtype=bool)
    is_new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    starts = np.flatnonzero(is_new)
    inverse = np.empty(length, dtype=np.int64)
    inverse[order] = np.cumsum(is_new) - 1
    return DistinctRows(ordered[starts], order[starts], inverse, np.diff(np.append(starts, length)))
