"""What the README and the pages of docs/ show is what happens."""

import doctest
import re
from pathlib import Path

import pytest

from tests.docs.generated import PAGE, redrawn

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_do_what_they_show(page: Path) -> None:
    import redistrib

    result = doctest.testfile(
        str(page),
        module_relative=False,
        globs={"rd": redistrib},
        optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS,
    )
    assert result.failed == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_what_is_drawn_from_the_code_is_as_the_code_has_it() -> None:
    text = PAGE.read_text()
    assert redrawn(text) == text, "python -m tests.docs.generated writes it anew"
