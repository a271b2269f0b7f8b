"""The page of the zoo is drawn from its results, which are right."""

from __future__ import annotations

import json

from bench.zoo.table import PAGE, RESULTS, page

RECORDS = [json.loads(line) for line in RESULTS.read_text().splitlines()]


def test_the_page_is_as_it_is_drawn() -> None:
    assert page(RECORDS) == PAGE.read_text(), "python -m bench.zoo.run --draw draws it anew"


def test_every_program_that_is_accepted_is_right() -> None:
    assert [record["name"] for record in RECORDS if not record.get("right", True)] == []


def test_where_xla_receives_less_the_page_says_why() -> None:
    more = [record for record in RECORDS if "error" not in record and not _no_more(record)]
    assert [record["name"] for record in more if not record["note"]] == []


def _no_more(record: dict[str, dict[str, int]]) -> bool:
    return record["ours"]["received"] <= record["xla"]["received"]
