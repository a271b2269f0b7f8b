"""What stays true under `python -O`, which drops the package's assertions: `make strict` runs the core so."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import redistrib

PACKAGE = Path(redistrib.__file__).parent


def test_assertions_of_tests_are_never_dropped() -> None:
    with pytest.raises(AssertionError):
        assert __debug__ is None


def tells_a_type_alone(test: ast.expr) -> bool:
    """Whether an assertion says no more than a type checker must know: `x is not None` or `isinstance(x, ...)`."""
    match test:
        case ast.BoolOp(ast.And(), parts):
            return all(map(tells_a_type_alone, parts))
        case ast.UnaryOp(ast.Not(), inner):
            return tells_a_type_alone(inner)
        case ast.Call(ast.Name("isinstance")):
            return True
        case ast.Compare(_, [ast.IsNot()], [ast.Constant(None)]):
            return True
    return False


def test_no_assertion_of_the_package_does_anything() -> None:
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Assert):
                assert tells_a_type_alone(node.test), f"{path}:{node.lineno}: {ast.unparse(node)}"
