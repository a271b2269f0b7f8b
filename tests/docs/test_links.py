"""Links: those between files lead to a file and a heading, those to the net have the form and the host of a known one.

The net is no part of this: `make docs-links` asks the hosts.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.docs.blocks import ROOT

PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted(path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts),
    *sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")),
]
# A link to another host is added here by whoever has opened it.
HOSTS = {
    "arxiv.org",
    "cloud.google.com",
    "jax-ml.github.io",
    "keepachangelog.com",
    "semver.org",
    "ui.perfetto.dev",
}
_FENCE = re.compile(r"^[ \t]*```.*?^[ \t]*```[ \t]*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_BARE = re.compile(r"https?://[^\s)\]>\"'`]+")


def text_of(page: Path) -> str:
    """The words of a page, without its code."""
    if page.suffix == ".ipynb":
        cells = json.loads(page.read_text())["cells"]
        return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    return _FENCE.sub("", page.read_text())


def anchors_of(page: Path) -> set[str]:
    """The anchors of a page's headings, as MyST and code hosts form them.

    >>> sorted(anchors_of(ROOT / "SECURITY.md"))
    ['security']
    """
    headings = re.findall(r"^#+ (.+)$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def faults(page: Path) -> list[str]:
    """The links of a page that lead nowhere, or to a host that nobody has opened."""
    text = text_of(page)
    found = []
    for link in _LINK.findall(text):
        target, _, anchor = link.partition("#")
        if ":" in target:
            continue
        path = (page.parent / target).resolve() if target else page
        if not path.is_relative_to(ROOT) or not path.exists():
            found.append(f"{link}: no such file")
        elif anchor and anchor not in anchors_of(path):
            found.append(f"{link}: no such heading; there are {', '.join(sorted(anchors_of(path)))}")
    for address in (*_BARE.findall(text), *(link for link in _LINK.findall(text) if ":" in link)):
        parts = urlsplit(address.rstrip(".,;:"))
        if parts.scheme != "https" or parts.netloc not in HOSTS or "//" in parts.path:
            found.append(f"{address}: not https, or not one of {', '.join(sorted(HOSTS))}")
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    assert faults(page) == []


def test_links_that_lead_nowhere_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.docs.test_links.ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(
        "# Page: 1 of 2\n[a](#page-1-of-2) [b](#page) [c](page.md#page-1-of-2) [d](other.md) [e](../page.md)\n"
        "[f](http://arxiv.org/abs/1) [g](https://arxiv.orq/abs/1) [h](https://arxiv.org/abs/1) [i](ftp:there)\n"
        "```text\n[j](other.md)\n```\n"
    )
    assert {fault.partition(": ")[0] for fault in faults(page)} == {
        "#page", "other.md", "../page.md", "http://arxiv.org/abs/1", "https://arxiv.orq/abs/1", "ftp:there"
    }  # fmt: skip
