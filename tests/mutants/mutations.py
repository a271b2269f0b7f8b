"""Mutants of a module's source, by mutmut's operators.

mutmut mutates undecorated functions alone and runs the mutants in forks of one process, where JAX's threads do not
work. So this module takes its operators alone.
"""

from __future__ import annotations

import difflib
import random
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import libcst
import libcst.matchers as m
from mutmut.mutation.mutators import mutation_operators

# Nodes whose mutation changes no behaviour, or breaks the program immediately.
PASSED_OVER = (
    m.Annotation()
    | m.Decorator()
    | m.Import()
    | m.ImportFrom()
    | m.Assert()
    | m.Expr(m.SimpleString())
    | m.FormattedStringText()
    | m.AnnAssign(annotation=m.Annotation(m.Name("TypeAlias")))
    | m.If(m.Name("TYPE_CHECKING"))
    | m.Arg(keyword=m.Name("strict"))
    | m.Call(m.Name("isinstance") | m.Name("len") | m.Name("cast") | m.Name("TypeVar"))
)

STRICT = m.Call(m.Name("zip"), [m.ZeroOrMore(), m.Arg(m.Name("True"), m.Name("strict"))])  # a check, not behaviour


@dataclass(frozen=True)
class Mutant:
    """A module with one fault.

    Attributes:
        path: of the module, from the root of the repository.
        line: the number of the first line that differs.
        before, after: the lines that differ.
        code: the source of the whole module.
    """

    path: str
    line: int
    before: str
    after: str
    code: str


class _Places(libcst.CSTVisitor):
    def __init__(self) -> None:
        self.places: list[tuple[libcst.CSTNode, libcst.CSTNode]] = []

    def on_visit(self, node: libcst.CSTNode) -> bool:
        if m.matches(node, PASSED_OVER):
            return False
        for kind, operator in mutation_operators:
            if isinstance(node, kind):
                strict = m.matches(node, STRICT)
                self.places += [(node, to) for to in operator(node) if not strict or m.matches(to, STRICT)]
        return True


def mutants(
    root: Path, paths: list[str], count: int, seed: int, among: Collection[str] | None = None
) -> Iterator[Mutant]:
    """A sample of `count` distinct mutants of some modules, or those among them whose line `after` is given."""
    modules = {path: libcst.parse_module((root / path).read_text()) for path in paths}
    places = []
    for path, module in modules.items():
        visitor = _Places()
        module.visit(visitor)
        places += [(path, *place) for place in visitor.places]
    random.Random(seed).shuffle(places)
    seen: set[str] = set()
    for path, node, changed in places:
        if among is not None and not _is_within(modules[path], changed, among):  # quicker than the whole module
            continue
        code = modules[path].deep_replace(node, changed).code
        if code in seen or not _compiles(code):
            continue
        line, before, after = _difference(modules[path].code, code)
        if after == before.replace("=False", "=None", 1):  # equivalent for every caller
            continue
        seen.add(code)
        yield Mutant(path, line, before, after, code)
        if len(seen) == count:
            return


def _is_within(module: libcst.Module, changed: Any, texts: Collection[str]) -> bool:
    """Whether the first line of a changed node is in one of some texts."""
    first = "" if changed is libcst.RemovalSentinel.REMOVE else module.code_for_node(changed).strip().partition("\n")[0]
    return any(first.strip() in text for text in texts)


def _compiles(code: str) -> bool:
    try:
        compile(code, "mutant", "exec")
    except SyntaxError:
        return False
    return True


def _difference(before: str, after: str) -> tuple[int, str, str]:
    """The first line that differs, and the lines on both sides."""
    old, new = before.splitlines(), after.splitlines()
    changes = [c for c in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes() if c[0] != "equal"]
    (_, first, _, start, _), (_, _, last, _, stop) = changes[0], changes[-1]
    return first + 1, *("\n".join(map(str.strip, lines)) for lines in (old[first:last], new[start:stop]))
