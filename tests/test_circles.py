"""No files import each other, which import-linter says of the package, but not of a folder's `__init__` and its files.
And no two classes of the package have one name."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imported(name: str, text: str) -> Iterator[tuple[str, str]]:
    """Modules, each with the name that is taken from it; those imported for types alone or inside functions as well."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = name.split(".")[: -node.level] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            yield from ((module, alias.name) for alias in node.names)


def test_no_circle_among_files() -> None:
    folders = ("redistrib", "tests", "bench", "proofs")
    files = {name_of(path): path for folder in folders for path in (ROOT / folder).rglob("*.py")}
    graph = {
        name: {
            found
            for module, taken in imported(name, path.read_text())
            if (found := f"{module}.{taken}" if f"{module}.{taken}" in files else module) in files and found != name
        }
        for name, path in files.items()
    }
    assert "redistrib.plans.data" in graph["redistrib.plans.verify"]
    assert "tests.reshard.cases" in graph["tests.reshard.arrays"]
    TopologicalSorter(graph).prepare()  # raises a CycleError, which names the files


def test_no_two_classes_have_one_name() -> None:
    classes = Counter(
        node.name
        for path in (ROOT / "redistrib").rglob("*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert {name for name, count in classes.items() if count > 1} == set()


def test_what_packages_say_they_have_is_there() -> None:
    said = {}
    for path in (ROOT / "redistrib").rglob("__init__.py"):
        name = name_of(path)
        try:
            module = import_module(name)
        except ModuleNotFoundError as error:
            assert error.name == "torch", name  # the tests of PyTorch have an environment of their own
            continue
        if hasattr(module, "__all__"):
            said[name] = module.__all__
    assert {"redistrib", "redistrib.errors", "redistrib.explain"} <= set(said)
    missing = [(name, own) for name, names in said.items() for own in names if not hasattr(import_module(name), own)]
    assert missing == []
