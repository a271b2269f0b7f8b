"""The selected tests with one version of JAX, in an environment of its own: `python tests/versions/run.py VERSION`.

VERSION is a number such as 0.8.0, `newest`, or `pre` for a pre-release. What fails with a pre-release is a warning. The
newest JAX may need a newer Python than the oldest: the newest Python that is found makes the environment.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = (
    *("numpy>=2,<3", "scipy", "rich", "ml-dtypes", "matplotlib", "networkx", "flax", "equinox", "optax"),
    *("pytest", "pytest-xdist", "hypothesis", "typeguard"),
)


def main(version: str) -> int:
    """Make the environment, if it is not there, and run the tests; the exit code is that of pytest."""
    environment = ROOT / ".venv-jax" / version
    python = environment / "bin" / "python"
    if not (environment / ".installed").exists():
        shutil.rmtree(environment, ignore_errors=True)
        subprocess.run([_python(newest=not version[0].isdigit()), "-m", "venv", environment], check=True)
        pip = [python, "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
        wanted = f"jax=={version}" if version[0].isdigit() else "jax"
        pre = ["--pre"] if version == "pre" else []
        subprocess.run([*pip, *pre, wanted], check=True)
        installed = _version(python)
        # The others must not change it.
        subprocess.run([*pip, f"jax=={installed}", *PACKAGES], check=True)
        (environment / ".installed").touch()
    installed = _version(python)
    if version == "pre" and not re.search(r"(a|b|rc|dev)\d", installed):
        print(f"there is no pre-release of JAX after {installed}")
        return 0
    python_version = subprocess.run([python, "-V"], check=True, capture_output=True, text=True).stdout.strip()
    print(f"JAX {installed} on {python_version}", flush=True)
    lines = (ROOT / "tests" / "versions" / "selection.txt").read_text().splitlines()
    chosen = [line for line in lines if line and not line.startswith("#")]
    command = [python, "-m", "pytest", "-q", "-n", "2", "--dist", "worksteal", "-m", "not long and not exhaustive"]
    settings = {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "PYTHONDONTWRITEBYTECODE": "1"}
    settings["REDISTRIB_TESTS_OPTIMIZED"] = "1"
    code = subprocess.run([*command, "--durations", "5", *chosen], cwd=ROOT, env=os.environ | settings).returncode
    if code and version == "pre":
        print(f"warning: tests fail with the pre-release {installed} of JAX")
        return 0
    return code


def _version(python: Path) -> str:
    code = "import importlib.metadata; print(importlib.metadata.version('jax'))"
    return subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def _python(newest: bool) -> str:
    """A Python with venv: the newest that there is, or the one that runs this."""
    if not newest:
        return sys.executable
    managed = map(str, Path.home().glob(".pyenv/versions/*/bin/python3.1[1-9]"))
    for name in sorted((*(f"python3.{minor}" for minor in range(11, 20)), *managed), key=_minor, reverse=True):
        path = shutil.which(name)
        if path is not None and subprocess.run([path, "-c", "import ensurepip"], capture_output=True).returncode == 0:
            return path
    return sys.executable


def _minor(name: str) -> int:
    return int(name.rpartition(".")[2])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
