"""The Python that makes the environment of a version of JAX."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.versions import run


def interpreter(path: Path, has_venv: bool = True) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\nexit {0 if has_venv else 1}\n")
    path.chmod(0o755)
    return str(path)


def test_the_newest_python_with_venv_is_taken_wherever_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    managed = interpreter(tmp_path / ".pyenv/versions/3.13.0/bin/python3.13")
    interpreter(tmp_path / ".pyenv/versions/3.12.1/bin/python3.12")
    assert run._python(newest=True) == managed
    interpreter(tmp_path / "bin/python3.15", has_venv=False)
    newest = interpreter(tmp_path / "bin/python3.14")
    assert run._python(newest=True) == newest
    assert run._python(newest=False) == sys.executable
