"""A plan beside XLA's own reshard: what is run, compared and counted."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

import redistrib as rd
from redistrib.errors import RunSizeError
from redistrib.explain.profiling.compare import (
    Comparison,
    Contest,
    Side,
    calibration_devices,
    compare,
    counting_array,
    mesh_for,
    with_all_bits,
    wrong_elements,
)
from tests.messages import exactly

PLAN = rd.synthesize("[4{x}8, 8]", "[8, 4{x}8]", "x=2", machine="exact")  # of tiles of 128 bytes


def test_both_sides_move_one_array() -> None:
    found = compare(PLAN, mesh_for(PLAN, jax.devices()[:2]))
    assert found.xla is not None
    ours, theirs = Side(Counter({"all-to-all": 1}), 128, found.ours.scratch, 0), found.xla
    assert found == Comparison(ours, theirs, compared=2 * 32, bound=128, tile=128)
    assert (theirs.received, theirs.wrong) == (128, 0)


def test_programs_are_compiled_once_and_every_array_is_compared() -> None:
    contest = Contest(PLAN, mesh_for(PLAN, jax.devices()[:2]), with_xla=False)
    for k in range(3):
        contest.move(np.full((8, 8), k, np.float32))
    assert contest.result().compared == 3 * 2 * 32
    assert contest.result().xla is None


def test_every_replica_counts_and_every_bit() -> None:
    mesh = jax.make_mesh((4,), ("x",), devices=jax.devices()[:4])
    array = jax.device_put(np.zeros((2, 2), np.float32), NamedSharding(mesh, PartitionSpec()))
    assert wrong_elements(array, np.zeros((2, 2), np.float32)) == 0
    assert wrong_elements(array, np.array([[0, 1], [0, 0]], np.float32)) == 4
    assert wrong_elements(array, np.array([[0, -0.0], [0, 0]], np.float32)) == 4  # equal, and of other bits


@pytest.mark.parametrize("dtype", ["int64", "uint64", "float64", "complex128", "float32", "int8"])
def test_elements_of_64_bits_keep_them_all(dtype: str) -> None:
    values = counting_array((64,), dtype)
    assert len(set(values.tolist())) == 64
    with with_all_bits(dtype):
        assert np.asarray(jax.numpy.asarray(values)).tobytes() == values.tobytes()
    narrow = {"int64": "int32", "uint64": "uint32", "float64": "float32", "complex128": "complex64"}.get(dtype)
    assert narrow is None or not np.array_equal(values.astype(narrow).astype(dtype), values)


def test_what_is_calibrated_on() -> None:
    assert calibration_devices(None) == jax.devices()
    assert calibration_devices(2) == jax.devices()[:2]
    with pytest.raises(
        RunSizeError, match=exactly("the number of devices must be from 2 to 256, got 1; a link has two ends")
    ):
        calibration_devices(1)
    with pytest.raises(RunSizeError):
        calibration_devices(len(jax.devices()) + 1)


def test_links_of_one_accelerator_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = SimpleNamespace(platform="gpu", device_kind="NVIDIA H200")
    monkeypatch.setattr(jax, "devices", lambda *_: [alone])
    with pytest.raises(RunSizeError) as caught:
        calibration_devices(None)
    assert str(caught.value) == (
        "links lie between 2 devices or more, and JAX has 1 of NVIDIA H200; run where there are more, or set "
        "JAX_PLATFORMS=cpu for virtual devices"
    )
