"""Runs of pytest-benchmark files, as records."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.children import ROOT


def run(tests: str, *options: str, **variables: str) -> list[dict[str, Any]]:
    """Run a file of tests under environment `variables`; return pytest-benchmark's record of each test."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "speed.json"
        fixed = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--benchmark-only", f"--benchmark-json={path}"]
        command = [sys.executable, "-m", "pytest", tests, *fixed, *options]
        subprocess.run(command, cwd=ROOT, env={**os.environ, **variables}, check=True, stdout=sys.stderr)
        records: list[dict[str, Any]] = json.loads(path.read_text())["benchmarks"]
    return records
