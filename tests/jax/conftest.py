"""The environment of tests that compile for TPUs."""

from __future__ import annotations

import importlib.util

import jax
import pytest


@pytest.fixture
def libtpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let libtpu be loaded where others use it, and without flags of XLA for CPUs: it ends the process for those."""
    if importlib.util.find_spec("libtpu") is None:
        pytest.skip("libtpu is not installed")
    jax.devices()  # those for CPUs have the flags
    monkeypatch.setenv("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
    monkeypatch.delenv("XLA_FLAGS", raising=False)
