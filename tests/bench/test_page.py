"""The page and what it is made of."""

from __future__ import annotations

from bench import report
from bench.children import ROOT


def test_the_page_is_that_of_the_results() -> None:
    kept = (ROOT / "docs" / "benchmarks.md").read_text()
    assert kept == report.page(report.load()), "python -m bench report writes it anew"


def test_the_page_is_short_and_has_every_part() -> None:
    text = report.page(report.load())
    assert len(text.split()) <= 3000
    assert "{{" not in text
    assert "| **no** |" in text and "| yes |" in text
