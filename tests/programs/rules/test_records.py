"""No set of names of primitives decides anything about them outside of their records."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from redistrib.programs.ir.primitives import RECORDS
from redistrib.programs.rules.inline import RULES

ROOM = Path(__file__).parents[3] / "redistrib" / "programs"
# Names of what else may be meant: arguments, reductions and ranks, and opcodes of XLA.
OTHERS = {"name", "and", "or", "max", "min", "scatter", "gather"}
ALLOWED = {
    "ir/primitives.py": "the records",
    "rules/pointwise.py": "primitives of one rule",
    "rules/in_parts.py": "the function that joins two blocks, of each primitive",
    "rules/layout.py": "operands of the rule of matrices",
    "rules/effects.py": "primitives that have one parameter",
    "rules/inline.py": "keys that are read as integers, which are no operations",
    "show/diagnosis.py": "opcodes of XLA",
}


def _collections(tree: ast.Module) -> Iterator[list[ast.expr]]:
    """The elements of collections that are written out, but for the names that a rule is registered for."""
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    registered = {id(inner) for one in functions for rule in one.decorator_list for inner in ast.walk(rule)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Set | ast.Tuple | ast.List) and id(node) not in registered:
            yield node.elts
        elif isinstance(node, ast.Dict):
            yield [key for key in node.keys if key is not None]


def test_names_of_primitives_are_in_no_other_collection() -> None:
    found = set()
    for path in ROOM.rglob("*.py"):
        for elements in _collections(ast.parse(path.read_text())):
            names = [one.value for one in elements if isinstance(one, ast.Constant) and one.value in RECORDS]
            if len(set(names) - OTHERS) > 1:
                found.add(str(path.relative_to(ROOM)))
    assert found == {*ALLOWED}


def test_every_rule_has_a_record() -> None:
    assert {*RULES} <= {*RECORDS}
