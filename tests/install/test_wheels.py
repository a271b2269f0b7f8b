"""The two wheels of a release: what the first imports, and what it says where the second is missing."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import redistrib
from tests.docs.blocks import ROOT
from tests.install.wheels import files_of_programs, of_arrays, of_programs

PROJECT = (ROOT / "pyproject.toml").read_text()
FILES = {path.relative_to(ROOT).as_posix(): path for path in sorted((ROOT / "redistrib").rglob("*.py"))}
LISTED = files_of_programs(PROJECT)
SECOND = {name for name in FILES if any(name == path or name.startswith(f"{path}/") for path in LISTED)}
# Files of the first that import the second where a user asks for it, and say what to install if it is missing.
LAZY = {f"redistrib/{name}.py" for name in ("__init__", "api", "cli")}
ADVICE = "needs the programs part, which is not installed; install it with pip install 'redistrib[programs]'"


def file_of(module: str) -> str | None:
    """The file of a module of the package."""
    path = module.replace(".", "/")
    return next((name for name in (f"{path}.py", f"{path}/__init__.py") if name in FILES), None)


def imported(node: ast.AST, at_once: bool = True) -> Iterator[tuple[str, bool]]:
    """The files of the package that a file imports, and whether it does when it is imported itself."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            for other in child.orelse:
                yield from imported(other, at_once)
            continue
        modules = [alias.name for alias in child.names] if isinstance(child, ast.Import) else []
        if isinstance(child, ast.ImportFrom):
            modules = [str(child.module), *(f"{child.module}.{alias.name}" for alias in child.names)]
        for module in modules:
            file = file_of(module)
            if file is not None:
                yield file, at_once
        yield from imported(child, at_once and not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef))


def test_the_list_of_the_second_wheel_names_what_is_there() -> None:
    assert sorted(LISTED) == LISTED and all((ROOT / path).exists() for path in LISTED)
    assert "redistrib/__init__.py" not in SECOND and len(SECOND) > 100


def test_the_first_wheel_imports_the_second_only_where_a_user_asks_for_it() -> None:
    uses = [
        (name, file, at_once)
        for name in sorted({*FILES} - SECOND)
        for file, at_once in imported(ast.parse(FILES[name].read_text()))
        if file in SECOND
    ]
    assert [use for use in uses if use[2] or use[0] not in LAZY] == []
    assert {name for name, _, _ in uses} == LAZY


def test_the_descriptions_of_the_wheels() -> None:
    first, second = (tomllib.loads(part(PROJECT, "1.2.3")) for part in (of_arrays, of_programs))
    whole = tomllib.loads(PROJECT)
    assert whole["project"]["optional-dependencies"].pop("programs") == []
    assert first["project"]["optional-dependencies"].pop("programs") == ["redistrib-programs==1.2.3"]
    assert first["project"] == whole["project"]
    targets = [part["tool"]["hatch"]["build"]["targets"]["wheel"] for part in (first, second)]
    assert targets[0]["exclude"] == ["*.md", *(f"/{path}" for path in targets[1]["only-include"])]
    assert second["project"]["name"] == "redistrib-programs" and second["project"]["version"] == "1.2.3"
    assert second["project"]["dependencies"] == ["redistrib==1.2.3"]
    assert "scripts" not in second["project"] and second["project"]["requires-python"] == ">=3.11"


def without_the_second(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in an interpreter that does not find the modules of the second wheel."""
    hidden = {name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in SECOND}
    hide = f"""
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name in {hidden}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Hidden())
"""
    return subprocess.run([sys.executable, "-c", hide + code], cwd=ROOT, capture_output=True, text=True, timeout=120)


def test_without_the_second_wheel_every_name_of_it_says_what_to_install() -> None:
    names = {name for name, module in redistrib._HOME.items() if file_of(module) in SECOND}
    assert {"search", "simulate", "view", "pipeline", "partition"} <= names
    code = f"""
import redistrib as rd
for name in {sorted(names)} + ["ir"]:
    try:
        getattr(rd, name)
    except rd.errors.MissingPackageError as error:
        print(error)
for call in (lambda: rd.distribute(len, [], []), lambda: rd.api.calibrate_rates()):
    try:
        call()
    except rd.errors.MissingPackageError as error:
        print(error)
plan = rd.synthesize("[2{{x}}4, 4]", "[4, 2{{x}}4]", "x=2")
print(plan._repr_html_(), rd.verify(plan) is plan)
"""
    done = without_the_second(code)
    wanted = [f"rd.{name} {ADVICE}" for name in [*sorted(names), "ir", "distribute"]] + [f"calibrate_rates {ADVICE}"]
    assert (done.stdout.splitlines(), done.stderr) == ([*wanted, "None True"], "")


def test_without_the_second_wheel_jax_runs_plans() -> None:
    code = """
import jax, numpy as np
import redistrib as rd
plan = rd.synthesize("[2{x}4, 4]", "[4, 2{x}4]", "x=2")
jax.config.update("jax_num_cpu_devices", 2)
print(rd.to_jax(plan, jax.make_mesh((2,), ("x",)))(np.ones((4, 4))).sharding.spec)
print(rd.verify(plan) is plan, "redistrib.programs" in sys.modules)
"""
    done = without_the_second("import sys" + code)
    spec, verified = done.stdout.splitlines()
    assert "'x'" in spec and verified == "True False", done.stderr


@pytest.mark.parametrize("command", ["simulate", "view", "diagnose", "search", "rates", "plan"])
def test_without_the_second_wheel_a_command_says_what_to_install(command: str, tmp_path: Path) -> None:
    problem = ["[2{x}4, 4]", "[4, 2{x}4]", "--mesh", "x=2"]
    arguments = {
        "diagnose": ["examples.jobs:job"],
        "search": ["examples.jobs:job", "--devices", "2"],
        "rates": ["-o", str(tmp_path / "rates.json")],
    }
    done = without_the_second(
        f"from redistrib.cli import main; sys.exit(main({[command, *arguments.get(command, problem)]}))"
    )
    if command == "plan":
        assert done.returncode == 0 and "alltoall" in done.stdout
    else:
        assert (done.returncode, done.stderr) == (2, f"redistrib: this command {ADVICE}\n")
