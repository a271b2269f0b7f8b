"""Rules, normal forms and the weak graph of partial types are a specification, which the library does not run.

The typing rules know nothing of what types mean, and the meaning knows nothing of the rules, so that their agreement,
in `tests/laws`, says something.
"""

from __future__ import annotations

import grimp
import pytest

MEANING = "redistrib.theory.placement"


@pytest.fixture(scope="module")
def imports() -> grimp.ImportGraph:
    return grimp.build_graph("redistrib", "tests.specification", cache_dir=None)


@pytest.mark.parametrize("name", ["rules", "reductions"])
def test_rules_and_meaning_do_not_import_each_other(imports: grimp.ImportGraph, name: str) -> None:
    rules = f"tests.specification.{name}"
    assert {rules, MEANING} <= imports.modules
    assert not imports.chain_exists(rules, MEANING)
    assert not imports.chain_exists(MEANING, rules)


def test_the_package_imports_no_specification(imports: grimp.ImportGraph) -> None:
    package = [name for name in imports.modules if name.startswith("redistrib")]
    importing = {
        name
        for name in package
        if any(found.startswith("tests") for found in imports.find_modules_directly_imported_by(name))
    }
    assert not importing


def test_what_the_specification_imports_is_seen(imports: grimp.ImportGraph) -> None:
    assert imports.chain_exists("tests.specification.weak_partial", "redistrib.theory.weak")
