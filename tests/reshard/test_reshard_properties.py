"""`reshard` agrees with `jax.device_put`, bit for bit, over random meshes, types and dtypes."""

from __future__ import annotations

from dataclasses import replace

import jax
import pytest
from hypothesis import HealthCheck, Phase, given, settings

import redistrib as rd

from .cases import TreeCase, same_shards, tree_cases, tree_of

LEAVES = 24
PHASES = [Phase.explicit, Phase.generate]  # to shrink a tree of 24 leaves takes minutes and tells little more
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]


def _moved_right(case: TreeCase, donate: bool = False) -> int:
    """Checks every leaf of a tree; the number of leaves."""
    values, arrays, shardings = tree_of(case)
    weak = {name: array.aval.weak_type for name, array in arrays.items()}
    with jax.transfer_guard("disallow_explicit"):
        moved = rd.reshard(arrays, shardings, donate=donate)
    for name, array in moved.items():
        assert array.committed
        assert array.aval.weak_type == weak[name], name
        # The values come from the host: jax.device_put between orders of 24 devices can crash XLA.
        expected = jax.device_put(values[name], shardings[name])
        assert array.sharding == expected.sharding, name
        assert same_shards(array, expected), (name, case)
    return len(moved)


TREES = {(2, 3, 4): 32, (6, 8): 32, (8,): 32, (12, 16): 20, (24,): 14}  # by numbers of devices


@pytest.mark.parametrize(
    ("devices", "trees"),
    [
        *((devices, 8) for devices in TREES),
        *(pytest.param(devices, trees, marks=pytest.mark.exhaustive) for devices, trees in TREES.items()),
    ],
)
def test_agrees_with_device_put(devices: tuple[int, ...], trees: int) -> None:
    leaves = 0

    @settings(max_examples=trees, database=None, phases=PHASES, suppress_health_check=SLOW)
    @given(tree_cases(devices, LEAVES))
    def check(case: TreeCase) -> None:
        nonlocal leaves
        leaves += _moved_right(case, donate=leaves % 2 == 1)

    check()
    assert leaves >= trees * LEAVES


@pytest.mark.parametrize(
    "trees", [pytest.param(40, marks=pytest.mark.long), pytest.param(100, marks=pytest.mark.exhaustive)]
)
def test_bfloat16_agrees_with_device_put(trees: int) -> None:
    """Of all dtypes it has the most ways to travel, and XLA:CPU changes some values in most of them."""

    @settings(max_examples=trees, database=None, phases=PHASES, suppress_health_check=SLOW)
    @given(tree_cases((8, 12, 24), LEAVES))
    def check(case: TreeCase) -> None:
        _moved_right(replace(case, leaves=tuple(replace(leaf, dtype="bfloat16") for leaf in case.leaves)))

    check()
