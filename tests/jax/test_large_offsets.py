"""Offsets beyond the largest index, in small arrays under a small largest index, and in large ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product

import jax
import numpy as np
import pytest

import redistrib as rd
from redistrib.backends.jax import execute
from redistrib.backends.jax.boxes import box, put
from redistrib.backends.jax.context import LoweringContext, context_of
from redistrib.backends.jax.offsets import LargeOffset
from tests.jax.running import check_values


def one_dimensional(largest: int) -> Iterator[tuple[int, int, list[int]]]:
    """An extent, the size of a box and places of it: some that cells divide, and some that they do not."""
    for extent, size in product((6, 8, 9), (1, 2, 3, 4)):
        for values in ([5], [0, size], [extent - size, 2], [1, 4, extent], [4, 4 + size // 2]):
            if max(values) > largest:
                yield extent, size, values


@pytest.mark.parametrize("largest", [2, 4])
def test_boxes_at_large_offsets(largest: int) -> None:
    """Read and written along two dimensions, as NumPy does; beyond the end like JAX, at the nearest place inside."""
    for extent, size, values in one_dimensional(largest):
        tile = np.arange(2 * extent * extent).reshape(2, extent, extent)
        part = -np.arange(1, 1 + 2 * size * size).reshape(2, size, size)

        def both(
            tile: jax.Array, part: jax.Array, number: jax.Array, values: list[int] = values
        ) -> tuple[jax.Array, jax.Array]:
            at = [0, LargeOffset(values, number, largest), LargeOffset((values[-1],), 0, largest)]
            return box(tile, at, part.shape), put(tile, part, at)

        run = jax.jit(both)
        for number in range(len(values)):
            first, last = (min(value, extent - size) for value in (values[number], values[-1]))
            where = (slice(None), slice(first, first + size), slice(last, last + size))
            read, written = run(tile, part, number)
            assert np.array_equal(read, tile[where])
            expected = tile.copy()
            expected[where] = part
            assert np.array_equal(written, expected)


@pytest.fixture
def with_largest(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes contexts with a largest index, and other changes."""

    def change(largest_index: int, **changed: object) -> None:
        def small(*args: object) -> LoweringContext:
            return replace(context_of(*args), largest_index=largest_index, **changed)

        monkeypatch.setattr(execute, "context_of", small)

    return change


EXAMPLES = [  # a slice, a gather and all-to-alls of leading and trailing dimensions, rounds, padding
    ("[24]", "[6{x}24]", "x=4"),
    ("[6{x}24]", "[24]", "x=4"),
    ("[4, 6{x}24]", "[4, 24]", "x=4"),
    ("[24, 6{x}24]", "[6{x}24, 24]", "x=4"),
    ("[8{x}24, 24]", "[24, 8{x}24]", "x=3"),
    ("[3{x}12, 2{y}12]", "[2{y}12, 3{x}12]", "x=4,y=6"),
    ("[6{x}24]", "[4{y}24]", "x=4,y=6"),
]
CONTEXTS = {"overlap": {}, "copies": {"copies_results": True}, "slices": {"chunk": 16, "copies_results": True}}


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("largest", [0, 5])
def test_every_kind_of_step(largest: int, context: str, with_largest: Callable[..., None]) -> None:
    with_largest(largest, **CONTEXTS[context])
    for source, target, mesh in EXAMPLES:
        check_values(rd.synthesize(source, target, mesh), "overlap")
        check_values(rd.synthesize(source, target, mesh), "sequential")
