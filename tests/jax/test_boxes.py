"""Parts put together to a tile, against NumPy."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from redistrib.backends.jax.boxes import are_consecutive, concatenated, joined


def whole(parts, factors):
    """The parts, row-major over the factors, side by side."""
    rows, columns = parts.shape[1:]
    result = np.zeros((factors[0] * rows, factors[1] * columns), parts.dtype)
    for number, (i, j) in enumerate(np.ndindex(*factors)):
        result[i * rows : (i + 1) * rows, j * columns : (j + 1) * columns] = parts[number]
    return result


@pytest.mark.parametrize("factors", list(itertools.product((1, 2, 3), repeat=2)))
@pytest.mark.parametrize("part", [(1, 1), (1, 4), (4, 1), (2, 20)])
def test_joined_and_concatenated_are_the_whole(factors, part):
    count = factors[0] * factors[1]
    parts = np.arange(count * part[0] * part[1], dtype=np.int32).reshape(count, *part)
    wanted = whole(parts, factors)
    np.testing.assert_array_equal(np.asarray(joined(jnp.asarray(parts), factors)), wanted)
    np.testing.assert_array_equal(np.asarray(concatenated([jnp.asarray(p) for p in parts], factors)), wanted)
    flat = parts.reshape(-1)
    assert not are_consecutive(part, factors) or np.array_equal(flat, wanted.reshape(-1))


@pytest.mark.parametrize(
    ("part", "factors", "consecutive"),
    [
        ((4, 4), (2, 1), True),
        ((4, 4), (1, 2), False),
        ((1, 4), (1, 2), True),
        ((1, 4), (3, 2), True),
        ((4, 4), (1, 1), True),  # there is one part, and it is the whole
    ],
)
def test_consecutive_parts_follow_one_another_in_memory(part, factors, consecutive):
    assert are_consecutive(part, factors) is consecutive
