"""Caches: the bounded kind alone, none by an id that outlives its object, and all emptied by `clear_caches`."""

from __future__ import annotations

import ast
import gc
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

import redistrib as rd
from redistrib.cache import Cache, cached

ROOT = Path(rd.__file__).parent

# Tables of modules that functions change and that are no caches, and why they may stay.
STATE = {
    "backends/jax/meetings.py _CALLS": "the calls of processes so far; a process without them waits for others",
    "programs/rules/collectives.py COLLECTIVES": "filled when modules are imported",
    "programs/rules/equation.py RULES": "filled when modules are imported",
    "backends/torch/world.py _ALL": "filled when modules are imported; what it lists ends with the process group",
    "programs/run/region.py REGIONS": "filled when modules are imported",
    "programs/rules/loops.py LOOPS": "filled when modules are imported",
    "plans/step.py KINDS": "filled when modules are imported",
    "report.py _renderers": "one function",
    "lang/placements.py _GRIDS": "device meshes that are alive, by weak references that remove them",
    "resharding/sharing.py _RELATIONS": "arrays that are alive, by weak references that remove them",
}

_TABLES = {"dict", "list", "set", "defaultdict", "OrderedDict", "deque", "Counter", "WeakKeyDictionary"}
_TABLES |= {"WeakValueDictionary", "WeakSet"}
_CHANGES = {"add", "append", "appendleft", "extend", "insert", "setdefault", "update"}


def _name(node: ast.AST) -> str:
    """The last part of a name, subscripts left out."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _is_table(value: ast.AST | None) -> bool:
    if isinstance(value, ast.Call):
        return _name(value.func) in _TABLES
    return isinstance(value, ast.Dict | ast.List | ast.Set | ast.DictComp | ast.ListComp | ast.SetComp)


def _bindings(body: list[ast.stmt]) -> Iterator[tuple[str, ast.AST | None]]:
    for node in body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                yield _name(target), node.value


def _changed(nodes: list[ast.AST]) -> Iterator[str]:
    """Names whose values are changed in place, or assigned anew as globals."""
    for node in nodes:
        if isinstance(node, ast.Global):
            yield from node.names
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            yield _name(node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGES:
            yield _name(node.func.value)


def unbounded(source: str) -> list[str]:
    """The names of what a module keeps from one call to the next other than by `redistrib.cache`."""
    tree = ast.parse(source)
    scopes = [tree.body, *(node.body for node in ast.walk(tree) if isinstance(node, ast.ClassDef))]
    tables = {name for body in scopes for name, value in _bindings(body) if _is_table(value)}
    found = []
    if tables:
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.Lambda)]
        found += tables & set(_changed([inner for node in functions for inner in ast.walk(node)]))
    if "functools" in source:
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module == "functools":
                found += [name.name for name in node.names if name.name in ("lru_cache", "cache")]
            elif isinstance(node, ast.Attribute) and node.attr in ("lru_cache", "cache"):
                found += [node.attr] if _name(node.value) == "functools" else []
    return found


def test_modules_keep_things_in_bounded_caches_alone() -> None:
    found = {
        f"{path.relative_to(ROOT).as_posix()} {name}"
        for path in sorted(ROOT.rglob("*.py"))
        if path.name != "cache.py"
        for name in unbounded(path.read_text())
    }
    assert found - {*STATE} == set(), "make it a redistrib.cache.Cache, or redistrib.cache.cached"


@pytest.mark.parametrize(
    "source",
    [
        "KEPT = {}\ndef f(x):\n    KEPT[x] = 1",
        "KEPT: dict[int, int] = dict()\ndef f(x):\n    KEPT.setdefault(x, 1)",
        "KEPT = defaultdict(list)\ndef f(x):\n    KEPT[x].append(1)",
        "class A:\n    kept = []\n    def f(self, x):\n        self.kept.append(x)",
        "KEPT = WeakKeyDictionary()\nf = lambda x: KEPT.setdefault(x, 1)",
        "from functools import cache\n@cache\ndef f(x): return x",
        "import functools\n@functools.lru_cache(maxsize=None)\ndef f(x): return x",
        "from functools import lru_cache\ndef g(f): return lru_cache(8)(f)",
    ],
)
def test_what_is_kept_in_another_way_is_found(source: str) -> None:
    assert unbounded(source)


@pytest.mark.parametrize(
    "source",
    [
        "TABLE = {1: 2}\ndef f(x): return TABLE[x]",
        "_K: Cache[int] = Cache(8)\ndef f(x): return _K.get(x, lambda: 1)",
        "@cached(8)\ndef f(x): return x",
        "def f(x):\n    own = {}\n    own[x] = 1",
    ],
)
def test_tables_and_bounded_caches_pass(source: str) -> None:
    assert not unbounded(source)


def test_clear_caches_empties_every_cache_and_keeps_none_alive() -> None:
    kept: Cache[int] = Cache(2)
    kept.get(1, lambda: 2)

    @cached(2)
    def doubled(n: int) -> list[int]:
        return [n]

    first = doubled(1)
    assert doubled(1) is first
    rd.clear_caches()
    assert kept.info.size == 0 and doubled(1) is not first
    seen = weakref.ref(kept)
    del kept
    gc.collect()
    assert seen() is None
