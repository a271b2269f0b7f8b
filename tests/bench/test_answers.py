"""Answers of the suite `answers` whose searches take seconds, and the page that has them."""

from __future__ import annotations

import pytest

from bench import answers, report
from bench.children import ROOT

KEPT = {record["name"]: record["ours"] for record in report.load().records("answers")}


def test_the_page_of_real_sizes_is_that_of_the_results() -> None:
    kept = (ROOT / "docs" / "real-size.md").read_text()
    assert kept == report.page(report.load(), report.REAL_SIZE), "python -m bench report writes it anew"
    assert all(name in kept for name in answers.QUESTIONS)


def test_few_tokens_leave_weights_where_they_are_and_many_gather_them() -> None:
    """Pope et al. 2022, section 3.2: two dimensions on 64 chips, then weights gathered over more and more of them."""
    mesh = {"x": 4, "y": 4, "z": 4}
    found = [answers.stationary(mesh, tokens, 118) for tokens in (64, 2**14, 2**18, 2**22)]
    assert found == ["2D", "gathered over 4", "gathered over 16", "gathered over 64"]


def test_weights_of_fewer_bits_fit_on_fewer_chips() -> None:
    """The book, part 7: 70B needs 16 chips of v5e in bfloat16, 8 in int8."""
    assert answers.decoding("bfloat16", 8, 8) is None
    assert answers.decoding("int8", 4, 8) is None
    for dtype, chips, weights in (("bfloat16", 16, 140 * 10**9), ("int8", 8, 70 * 10**9)):
        found = answers.decoding(dtype, chips, 8)
        assert found is not None
        assert not answers.are_gathered(found, weights)


@pytest.mark.parametrize("name", ["tensor parallel, one dimension of v5p"])
def test_answers_are_those_kept(name: str) -> None:
    assert answers.QUESTIONS[name].ours() == KEPT[name]
