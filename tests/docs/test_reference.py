"""Every public name has its place in the reference, and the site has every page."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.docs import reference
from tests.docs.blocks import ROOT

DOCS = ROOT / "docs"


def test_every_public_name_has_a_page() -> None:
    documented = reference.documented_names()
    assert len(documented) == len(set(documented))
    names = reference.public_names() | reference.result_names()
    assert set(documented) == names, "python -m tests.docs.reference writes the pages anew"


def test_the_pages_are_as_they_are_written() -> None:
    for page, text in reference.pages().items():
        assert (DOCS / "reference" / f"{page}.rst").read_text() == text


def test_classes_of_results_are_there_under_the_names_that_pages_give() -> None:
    for name in reference.result_names():
        assert _value_of(name).__module__ == name.rpartition(".")[0]


def test_every_name_that_is_called_has_an_example() -> None:
    """PyTorch's names apart, whose examples are run where PyTorch is."""
    names = sorted(reference.public_names() | reference.result_names())
    values = {name: _value_of(name) for name in names if not name.startswith("redistrib.torch.")}
    assert [name for name, value in values.items() if callable(value) and ">>> " not in (value.__doc__ or "")] == []


def _value_of(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    return getattr(import_module(module), attribute)


def test_every_page_is_in_the_table_of_contents() -> None:
    listed = set(re.findall(r"^([a-z][\w/-]+)$", (DOCS / "index.md").read_text(), re.MULTILINE))
    pages = {path.relative_to(DOCS).with_suffix("").as_posix() for path in DOCS.rglob("*") if _is_page(path)}
    assert listed == pages


def test_the_pages_have_few_words() -> None:
    """Without the lines between the columns of tables, which have no letter."""
    pages = [path.read_text() for path in DOCS.rglob("*.md") if "_build" not in path.parts]
    assert sum(bool(re.search(r"\w", word)) for page in pages for word in page.split()) < 28_000


def _is_page(path: Path) -> bool:
    return (
        path.suffix in (".md", ".rst", ".ipynb")
        and path.name != "index.md"
        and not {"_build", "api", "templates"} & {*path.parts}
    )


@pytest.mark.parametrize("path", sorted(DOCS.glob("*.md")), ids=lambda path: path.stem)
def test_a_page_begins_with_a_sentence(path: Path) -> None:
    title, first, _ = path.read_text().split("\n\n", 2)
    assert title.startswith("# ") and "\n" not in title
    assert re.match(r"[A-Z0-9`]", first) and not first.startswith("```")


@pytest.mark.parametrize("path", sorted((DOCS / "how-to").glob("*.md")), ids=lambda path: path.stem)
def test_a_task_begins_with_what_the_reader_gets_and_then_code(path: Path) -> None:
    _, gets, code = path.read_text().split("\n\n", 2)
    assert gets.startswith("You get: ")
    assert code.startswith("```python")


@pytest.mark.parametrize("path", sorted((DOCS / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebooks_are_kept_without_outputs(path: Path) -> None:
    cells = json.loads(path.read_text())["cells"]
    assert "You get: " in "".join(cells[0]["source"])
    assert not [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")]


def test_a_page_of_a_name_has_its_example_first_its_source_and_links(tmp_path: Path) -> None:
    pytest.importorskip("sphinx", reason="sphinx is not installed; `make docs` does")
    (tmp_path / "reference").mkdir()
    settings = f"exec(open({str(DOCS / 'conf.py')!r}).read())\n"
    (tmp_path / "conf.py").write_text(
        f"{settings}extensions = [one for one in extensions if one not in ('myst_nb', 'sphinx_copybutton')]\n"
        f"templates_path, html_static_path, html_theme = [{str(DOCS / 'templates')!r}], [], 'basic'\n"
    )
    names = ("redistrib.reshard", "redistrib.TreePlan", "redistrib.errors.LeafError")
    rows = "".join(f"   ~{name}\n" for name in names)
    told = "``rd.reshard(tree)``, `TreePlan`, `LeafError`, ``work``"
    text = f"Names\n=====\n\n{told}\n\n.. autosummary::\n   :toctree: api\n\n"
    (tmp_path / "index.rst").write_text(f"{text}{rows}")
    built = tmp_path / "built"
    subprocess.run([sys.executable, "-m", "sphinx", "-q", tmp_path, built], check=True)
    page = (built / "api" / "redistrib.reshard.html").read_text()
    assert page.index("Move arrays to other shardings") < page.index("&gt;&gt;&gt;") < page.index("Parameters")
    assert 'href="../_modules/redistrib/resharding/entry.html#reshard"' in page
    error = (built / "api" / "redistrib.errors.LeafError.html").read_text()
    assert re.search(r'href="../_modules/redistrib/errors/\w+.html#LeafError"', error)
    index = (built / "index.html").read_text()
    for name, shown in zip(names, ("rd.reshard(tree)", "TreePlan", "LeafError"), strict=True):
        link = re.search(rf'<a class="reference internal" href="api/{name}.html#{name}"[^>]*>(.*?)</a>', index)
        assert link is not None
        assert re.sub("<.*?>", "", link[1]) == shown
