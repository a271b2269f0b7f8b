"""Every message that an error has for a rule is used, with the values that it names."""

from __future__ import annotations

import ast
import string
from functools import cache
from pathlib import Path

import redistrib
from redistrib import errors
from redistrib.errors import RuleBroken
from tests.specification.errors import RuleError

WORDED = {
    name: kind
    for name in errors.__all__
    if isinstance(kind := getattr(errors, name), type) and "wordings" in vars(kind)
} | {"RuleError": RuleError}
WORDED.pop("RuleBroken")
SOURCES = (Path(redistrib.__file__).parent, Path(__file__).parent / "specification")


@cache
def raised() -> dict[tuple[str, str], list[set[str] | None]]:
    """(class, rule) -> the names of the values given at each place; None where they are not spelled out."""
    found: dict[tuple[str, str], list[set[str] | None]] = {}
    for path in (path for folder in SOURCES for path in folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and len(node.args) == 1 and isinstance(node.args[0], ast.Constant):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                names = [keyword.arg for keyword in node.keywords]
                spelled = None if None in names else {name for name in names if name}
                found.setdefault((name, str(node.args[0].value)), []).append(spelled)
            elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "_broken":
                rule = node.args[0]
                assert isinstance(rule, ast.Constant)
                names = {keyword.arg for keyword in node.keywords if keyword.arg}
                found.setdefault(("RuleError", str(rule.value)), []).append({*names, "collective", "dist_type"})
    return found


def test_every_wording_is_used_with_the_values_it_names() -> None:
    places = raised()
    assert len(WORDED) >= 10
    for name, kind in WORDED.items():
        for rule, wording in kind.wordings.items():
            wanted = {field for _, field, _, _ in string.Formatter().parse(wording) if field}
            given = places.get((name, rule), [])
            assert given, f"{name} has a message for {rule!r}, which nothing breaks"
            assert all(values is None or wanted <= values for values in given), (name, rule, wanted, given)


def test_every_rule_without_a_message_of_its_own_has_a_wording() -> None:
    for (name, rule), places in raised().items():
        if name in WORDED:
            assert rule in WORDED[name].wordings, (name, rule, places)


def test_values_in_a_wording_are_cut_and_listed() -> None:
    class Sample(RuleBroken):
        wordings = {"sample": "{a!v} {b!l} {c!c} {d!r} {d}"}  # noqa: RUF012

    error = Sample("sample", a="x" * 100, b=("p", "q"), c="y" * 300, d="z")
    assert str(error) == f"'{'x' * 76}... 'p', 'q' {'y' * 197}... 'z' z"
    assert (error.rule, error.d) == ("sample", "z")
