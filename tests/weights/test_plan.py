"""`load_plan` and its command: bytes by host, what moves, and seconds; and the speed of a storage in profiles."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import redistrib as rd
from redistrib.cli import main
from redistrib.cost.latency import LatencyBandwidth
from redistrib.cost.presets import cost_model
from redistrib.cost.profiles import load_profile
from redistrib.errors import ChoiceError, WeightsFileError
from redistrib.report import seconds_text
from redistrib.weights.storage import storage_bandwidth
from tests.weights.files import arrays, written


def test_each_byte_is_read_by_one_host(tmp_path: Path) -> None:
    tensors = arrays()
    path = written(tmp_path, tensors)
    grid = Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("a", "b"))
    shardings = {name: NamedSharding(grid, P()) for name in tensors}
    gpu = cost_model("gpu")
    assert isinstance(gpu, LatencyBandwidth)
    model = replace(gpu, storage_bandwidth=1e6)
    plan = rd.load_plan(path, shardings, hosts=4, machine=model)
    total = sum(array.nbytes for array in tensors.values())
    assert plan.total_bytes == total and len(plan.read_bytes) == 4
    assert max(plan.read_bytes) < 1.1 * total / 4
    assert plan.reading_seconds == max(plan.read_bytes) / 1e6 and plan.seconds == plan.reading_seconds
    # What is replicated is received by 7 of 8 devices; the padding of 1003 rows is not sent.
    assert plan.moved_bytes >= plan.bound_bytes == 7 * total
    assert f"{total:,} bytes, each read once" in str(plan)
    with pytest.raises(ChoiceError, match="8 devices cannot belong to 3 hosts alike"):
        rd.load_plan(path, shardings, hosts=3)


def test_small_tensors_are_counted_as_they_are_read_and_moved(tmp_path: Path) -> None:
    """End to end, in parts of 4096 bytes for each device, with zeros behind them."""
    path = written(tmp_path, {f"w{k}": np.ones(750, np.float32) for k in range(2)})
    plan = rd.load_plan(path, NamedSharding(Mesh(np.array(jax.devices()[:4]), ("x",)), P()), hosts=4)
    assert plan.read_bytes == (4096, 6000 - 4096, 0, 0)
    assert (plan.moved_bytes, plan.bound_bytes) == (4 * 3 * 4096, 3 * 6000)
    assert plan.moving_seconds is not None and plan.moving_seconds > 0


def test_a_plan_of_no_tensor_is_empty(tmp_path: Path) -> None:
    path = written(tmp_path, {"w": np.ones((4, 4), np.float32)})
    plan = rd.load_plan(path, {})
    assert (plan.tensors, plan.total_bytes, plan.moved_bytes, plan.bound_bytes) == (0, 0, 0, 0)
    assert "0 tensors, 0 bytes" in str(plan) and rd.load(path, {}) == {}


def test_narrower_types_move_fewer_bytes(tmp_path: Path) -> None:
    path = written(tmp_path, {"w": np.ones((1024, 1024), np.float32)})
    target = NamedSharding(Mesh(np.array(jax.devices()[:8]), ("x",)), P(None, "x"))
    plan, half = (rd.load_plan(path, {"w": target}, dtype=dtype) for dtype in (None, "bfloat16"))
    assert plan.bound_bytes == 2 * half.bound_bytes == 4 * 1024 * 1024 * 7 // 8
    assert plan.seconds is None and plan.moving_seconds is not None  # nobody says how fast the storage is


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, arrays())
    assert main(["load", "--plan", str(path), "--mesh", "fsdp=4,tp=2", "--hosts", "4", "--dtype", "bfloat16"]) == 0
    shown = capsys.readouterr().out
    assert "11 tensors" in shown and "each read once" in shown and "predicted: reading unknown and moving" in shown
    assert main(["load", "--plan", str(tmp_path / "gone"), "--mesh", "x=2"]) == 2


def test_the_speed_of_a_storage_is_kept_in_a_profile(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(2**20))
    gpu = cost_model("gpu")
    assert isinstance(gpu, LatencyBandwidth)
    profile = replace(gpu, storage_bandwidth=storage_bandwidth(path))
    assert profile.storage_bandwidth is not None and profile.storage_bandwidth > 0
    assert LatencyBandwidth.from_json(profile.to_json()).storage_bandwidth == profile.storage_bandwidth
    assert "storage_bandwidth" not in gpu.to_json()
    path.write_bytes(b"")
    for bad, message in ((path, "the file is empty"), (tmp_path / "gone", "No such file")):
        with pytest.raises(WeightsFileError, match=message):
            storage_bandwidth(bad)


def test_a_calibrated_profile_predicts_how_long_reading_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, profile = written(tmp_path, {"w": np.ones((1024, 1024), np.float32)}), tmp_path / "profile.json"
    assert main(["calibrate", "--devices", "2", "--storage", str(path), "-o", str(profile)]) == 0
    assert f"{path} is read at" in capsys.readouterr().err
    model = load_profile(profile)
    assert model.storage_bandwidth is not None
    command = ["load", "--plan", str(path), "--mesh", "fsdp=4,tp=2", "--hosts", "4", "--machine", str(profile)]
    assert main(command) == 0
    assert f"predicted: reading {seconds_text(2**20 / model.storage_bandwidth)} and moving" in capsys.readouterr().out
