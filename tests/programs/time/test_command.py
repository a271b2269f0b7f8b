"""`redistrib simulate`: what it takes, writes, and how it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import redistrib as rd
from redistrib.cli import main
from redistrib.cost.presets import PRESETS
from redistrib.programs.ir.text import to_text
from redistrib.report import seconds_text
from tests.programs.time.mlp import gpipe

MODULE = """
import redistrib as rd

def product(mesh):
    return rd.partition(rd.nest("ij,jk->ik", (64, 64, 64)), {"matmul": {"j": mesh.size}})

ready = product(rd.Mesh.of("x=2"))

def none():
    return 3

def broken():
    return 1 // 0
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "programs_here.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    return "programs_here"


def test_a_function_is_called_with_the_mesh(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    for what in (f"{module}:product", f"{module}.py:product"):
        assert main(["simulate", what, "--mesh", "x=4", "--machine", "v100"]) == 0
        out = capsys.readouterr().out
        assert out.startswith("main on v100: ") and " 0-3 " in out
    assert main(["simulate", f"{module}:ready", "--machine", "v100"]) == 0
    assert " 0-1 " in capsys.readouterr().out


def test_the_trace_and_the_picture_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    trace, picture = tmp_path / "trace.json", tmp_path / "timeline.png"
    (tmp_path / "gpipe.txt").write_text(to_text(gpipe(4)))
    asked = ["--machine", "v100", "--streams", "moves", "-o", str(trace), "-o", str(picture)]
    assert main(["simulate", str(tmp_path / "gpipe.txt"), *asked]) == 0
    assert capsys.readouterr().out.endswith(f"wrote {trace}\nwrote {picture}\n")
    found = rd.simulate(gpipe(4), "v100", streams="moves")
    ends = [e["ts"] + e["dur"] for e in json.loads(trace.read_text())["traceEvents"] if e["ph"] == "X"]
    assert max(ends) == pytest.approx(found.seconds * 1e6)
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("suffix", "begins"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")])
def test_pictures_of_every_format(suffix: str, begins: bytes, module: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / f"timeline.{suffix}"
    assert main(["simulate", f"{module}:ready", "-o", str(picture)]) == 0
    assert picture.read_bytes().startswith(begins)


def test_plans_are_simulated_from_their_file_or_from_types(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ends = ["[3{x}12, 2{y}12]", "[2{y}12, 3{x}12]"]
    plan = rd.synthesize(*ends, {"x": 4, "y": 6}, machine="gpu")
    (tmp_path / "plan.json").write_text(plan.to_json())
    (tmp_path / "profile.json").write_text(PRESETS["gpu"].to_json())
    assert main(["simulate", str(tmp_path / "plan.json"), "--machine", "gpu"]) == 0
    first = capsys.readouterr().out
    assert f"plan on gpu: {seconds_text(plan.cost)}" in first
    assert main(["simulate", *ends, "--mesh", "x=4,y=6", "--machine", str(tmp_path / "profile.json")]) == 0
    assert capsys.readouterr().out == first


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["nowhere_at_all:f"], "'nowhere_at_all:f' failed: ModuleNotFoundError: No module named 'nowhere_at_all'"),
        (["MODULE:absent"], "'MODULE' has no 'absent'"),
        (["MODULE:product"], "'MODULE:product' takes a mesh; give one with --mesh"),
        (["MODULE:none"], "'MODULE:none' is of type int, and a program or a plan is simulated"),
        (["MODULE:broken"], "'MODULE:broken' failed: ZeroDivisionError"),
        (["absent.py:f"], "no file 'absent.py'"),
        (["absent.txt"], "no file 'absent.txt'"),
        (["."], ".: Is a directory"),
        (["MODULE:ready", "--machine", "h9"], "no machine 'h9'"),
        (["MODULE:ready", "--machine", "h9.json"], "cannot read the profile"),
        (["MODULE:ready", "-o", "trace.xyz"], "trace.xyz is neither a trace (.json) nor a picture"),
        (["MODULE:ready", "-o", "none/trace.json"], "none/trace.json: No such file or directory"),
        (["[8]", "[8]"], "give one program or plan, or two types and --mesh"),
        (["MODULE:product", "--mesh", "x"], "x"),
    ],
)
def test_bad_input_ends_with_2_and_one_line(
    arguments: list[str], why: str, module: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", *(one.replace("MODULE", module) for one in arguments)]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.startswith("redistrib: ")
    assert why.replace("MODULE", module) in captured.err
