"""Completion scripts: what the shell that reads them completes."""

from __future__ import annotations

import shutil
import subprocess

import pytest

import redistrib
from redistrib.cli import main, parser
from redistrib.completion import script


def completed(words: list[str]) -> list[str]:
    """What bash completes the last of some words to."""
    text = script(parser(), "bash")
    line = " ".join(f"'{word}'" for word in words)
    test = f"COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _redistrib_complete; echo ${{COMPREPLY[@]}}"
    done = subprocess.run(["bash", "-c", f"{text}\n{test}"], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_commands_options_and_choices_complete() -> None:
    assert completed(["redistrib", "pl"]) == ["plan"]
    assert completed(["redistrib", "--v"]) == ["--version"]
    assert completed(["redistrib", "plan", "--mac"]) == ["--machine"]
    assert set(completed(["redistrib", "plan", "--algorithm", ""])) == {"best", "paper"}
    assert set(completed(["redistrib", "completion", "--h"])) == {"--help"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_command_is_in_every_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    text = capsys.readouterr().out
    assert all(command in text for command in ("plan", "view", "simulate", "calibrate", "machine"))
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=text, text=True, check=True)


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"redistrib {redistrib.__version__}\n"
