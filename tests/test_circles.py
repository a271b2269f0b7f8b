"""No files import each other, which import-linter says of the package, but not of a folder's `__init__` and its files,
nor of modules that are imported by a name in a string. No two classes of the package have one name.
No file but one of tests has more than 400 lines unless its docstring says why."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


NAMED = re.compile(r"(redistrib(?:\.\w+)+)(?::\w+)?")  # a module, or a module and what it defines, in a string


@cache
def imported(path: Path) -> list[tuple[str, str]]:
    """Modules, each with the name that is taken from it; those imported for types alone, inside functions, or by a
    string as well."""
    return list(_imported(name_of(path), path.read_text()))


def _imported(name: str, text: str) -> Iterator[tuple[str, str]]:
    # A walk over all expressions takes most of the time, and is for strings alone.
    nodes = ast.walk if re.search(r"[\"']redistrib\.", text) else statements
    for node in nodes(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and (named := NAMED.fullmatch(node.value)):
            yield named[1], ""
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = name.split(".")[: -node.level] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            yield from ((module, alias.name) for alias in node.names)


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """The statements inside a node, at any depth."""
    for field in ("body", "handlers", "orelse", "finalbody", "cases"):
        for child in getattr(node, field, ()):
            yield child
            yield from statements(child)


def import_graph(*folders: str) -> dict[str, set[str]]:
    files = {name_of(path): path for folder in folders for path in (ROOT / folder).rglob("*.py")}
    return {
        name: {
            found
            for module, taken in imported(path)
            if (found := f"{module}.{taken}" if f"{module}.{taken}" in files else module) in files and found != name
        }
        for name, path in files.items()
    }


def test_no_circle_among_files() -> None:
    graph = import_graph("redistrib", "tests", "bench", "proofs")
    assert "redistrib.plans.data" in graph["redistrib.plans.verify"]
    assert "tests.reshard.cases" in graph["tests.reshard.arrays"]
    TopologicalSorter(graph).prepare()  # raises a CycleError, which names the files


def test_a_module_named_in_a_string_lies_no_higher_than_its_importer() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = [each["layers"] for each in settings if each.get("containers") == ["redistrib"]]
    height = {room: -level for level, rooms in enumerate(layers) for room in re.split(r" [|:] ", rooms)}
    graph = import_graph("redistrib")
    assert "redistrib.programs.show.trees" in graph["redistrib.programs.show.entry"]  # a string says so
    upward = [
        (name, other)
        for name, others in graph.items()
        for other in others
        if "redistrib" not in (name, other) and height[name.split(".")[1]] < height[other.split(".")[1]]
    ]
    assert upward == []


LONGEST = 400


def unexplained(texts: dict[Path, str]) -> list[Path]:
    """The files that are long and do not say why."""
    long = {path: text for path, text in texts.items() if len(text.splitlines()) > LONGEST}
    return [path for path, text in long.items() if " long" not in (ast.get_docstring(ast.parse(text)) or "")]


def test_a_long_file_says_why_it_is_long() -> None:
    shared = [path for path in (ROOT / "tests").rglob("*.py") if not path.name.startswith("test_")]
    texts = {
        path: path.read_text()
        for path in (*(ROOT / "redistrib").rglob("*.py"), *(ROOT / "bench").rglob("*.py"), *shared)
    }
    assert unexplained(texts) == []
    silent, longest, said = (Path(name) for name in ("silent", "longest", "said"))  # no file is long now
    lines = "\n" * (LONGEST - 1)
    drawn = {
        silent: f'"""A table."""\n{lines}x',
        longest: f'"""A table."""{lines}x',
        said: f'"""A long table."""\n{lines}x',
    }
    assert unexplained(drawn) == [silent]


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
