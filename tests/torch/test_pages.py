"""What the page and the examples say holds."""

from __future__ import annotations

import os
import resource
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from ranks import Ranks

import redistrib as rd
from redistrib.cli import main
from tests.docs.blocks import blocks_of, inline_commands, shell_lines

PAGE = Path(__file__).parents[2] / "docs" / "torch.md"
TASK = PAGE.parent / "how-to" / "fsdp2-to-tp.md"


def test_the_commands_of_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    text = PAGE.read_text()
    shown = [line for block in blocks_of(text) if block.language == "sh" for line in shell_lines(block.text)]
    for command in [*shown, *inline_commands(text)]:
        words = shlex.split(command)
        if words[0] == "make":
            assert command in (PAGE.parents[1] / ".ci" / "run").read_text().splitlines()
            continue
        assert words[0] == "redistrib", command
        assert main(words[1:]) == 0
        assert capsys.readouterr().out


def test_the_page(ranks: Ranks) -> None:
    assert ranks.run("pages.page", "torch.md") == [9] * 8


@pytest.mark.parametrize("name", [*(f"redistrib.torch.{name}" for name in rd.torch.__all__), "redistrib.to_torch"])
def test_the_example_of_a_name(ranks: Ranks, name: str) -> None:
    assert ranks.run("pages.docstring", name) == [""] * 8


def test_the_task_is_done_from_its_page_alone(tmp_path: Path) -> None:
    """In an empty folder, by the command of the page, and in less than two minutes of machine time."""
    script, command = blocks_of(TASK.read_text())
    (tmp_path / script.file_name).write_text(script.text)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    words = shlex.split(command.text)
    words[0] = str(Path(sys.executable).with_name(words[0]))
    environment = {**os.environ, "PYTHONPATH": str(PAGE.parents[1])}
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr
    assert "in all" in done.stdout
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 120


def test_fsdp_to_tensor_parallel(ranks: Ranks) -> None:
    assert "equal" in ranks.run("pages.example", "torch_fsdp_to_tp.py")[0]


def test_trainers_to_samplers(ranks: Ranks) -> None:
    assert "equal" in ranks.run("pages.example", "torch_trainers_to_samplers.py")[7]
