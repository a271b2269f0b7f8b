"""Pictures, tables and options are as they were; `python -m tests.kept_outputs` makes them anew, for whoever means it.

What a picture or a table ought to show is tested elsewhere; here nothing changes unseen.
"""

from __future__ import annotations

import pytest

from tests.kept_outputs import SERIES, drawn, kept, options, pictures, texts

KEPT = kept()
DRAWN, TEXTS, OPTIONS = pictures(), texts(), options()


@pytest.mark.skipif(KEPT["matplotlib"] != SERIES, reason="another matplotlib may draw otherwise")
@pytest.mark.parametrize("name", DRAWN)
def test_a_picture_shows_what_it_did(name: str) -> None:
    (found,) = drawn(DRAWN[name])
    was = KEPT["pictures"][name][0]
    for one, other in zip(found, was, strict=True):
        assert one == other


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_says_what_it_did(name: str) -> None:
    assert TEXTS[name] == KEPT["texts"][name]


@pytest.mark.parametrize("name", OPTIONS)
def test_a_command_takes_what_it_did(name: str) -> None:
    assert OPTIONS[name] == KEPT["options"][name]


def test_all_are_kept() -> None:
    assert [set(KEPT[kind]) for kind in ("pictures", "texts", "options")] == [set(DRAWN), set(TEXTS), set(OPTIONS)]
