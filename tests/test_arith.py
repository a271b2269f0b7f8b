"""Prime factors, divisors and mixed-radix digits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redistrib.arith import as_integer, distinct_rows, divisors, from_digits, prime_factors, to_digits


@given(st.integers(1, 10**6))
def test_prime_factors_multiply_to_the_number_and_are_prime(n: int) -> None:
    factors = prime_factors(n)
    assert math.prod(factors) == n
    assert list(factors) == sorted(factors)
    assert all(p > 1 and all(p % d for d in range(2, math.isqrt(p) + 1)) for p in factors)


@given(st.integers(1, 5000))
def test_divisors_are_all_that_divide(n: int) -> None:
    assert list(divisors(n)) == [d for d in range(1, n + 1) if n % d == 0]


@pytest.mark.parametrize("function", [prime_factors, divisors])
@pytest.mark.parametrize("n", [0, -4])
def test_only_positive_integers_factor(function: object, n: int) -> None:
    with pytest.raises(ValueError, match=f"only positive integers have a prime factorisation, got {n}"):
        function(n)  # type: ignore[operator]


@given(st.lists(st.integers(1, 7), max_size=5))
def test_digits_and_numbers_correspond_one_to_one(radices: list[int]) -> None:
    numbers = np.arange(math.prod(radices)).reshape(-1, radices[0] if radices else 1)
    digits = to_digits(numbers, radices)
    assert digits.shape == (*numbers.shape, len(radices))
    assert (digits >= 0).all()
    assert (digits < np.array(radices)).all()
    assert (from_digits(digits, radices) == numbers).all()


def test_the_first_digit_is_the_least_significant() -> None:
    assert to_digits(7, (2, 3, 4)).tolist() == [1, 0, 1]
    assert from_digits([1, 0, 1], (2, 3, 4)) == 7


@pytest.mark.parametrize(
    ("value", "expected"),
    [(3, 3), (np.int32(3), 3), (np.uint64(2**63), 2**63), (True, None), (np.True_, None), (3.0, None), ("3", None)],
)
def test_what_counts_as_an_integer(value: object, expected: int | None) -> None:
    result = as_integer(value)
    assert result == expected
    assert type(result) is type(expected)


@given(st.integers(0, 4).flatmap(lambda n: st.lists(st.tuples(*[st.integers(-2, 2)] * n), min_size=1, max_size=12)))
def test_distinct_rows_are_those_of_numpy(rows: list[tuple[int, ...]]) -> None:
    table = np.array(rows, dtype=np.int64).reshape(len(rows), -1)
    if table.shape[1] == 0:  # which NumPy does not take
        assert distinct_rows(table).counts.tolist() == [len(rows)]
        return
    values, first, inverse, counts = np.unique(
        table, axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    mine = distinct_rows(table)
    for ours, theirs in zip(mine, (values, first, inverse.reshape(-1), counts), strict=True):
        np.testing.assert_array_equal(ours, theirs)
