"""The page and what it is made of."""

from __future__ import annotations

from functools import cache

from bench import report
from bench.children import ROOT


@cache
def page() -> str:
    return report.page(report.load())


def test_the_page_is_that_of_the_results() -> None:
    kept = (ROOT / "docs" / "benchmarks.md").read_text()
    assert kept == page(), "python -m bench report writes it anew"


def test_the_page_is_short_and_has_every_part() -> None:
    text = page()
    assert len(text.split()) <= 3000
    assert "{{" not in text
    assert "| **no** |" in text and "| yes |" in text
