"""`view`: a page of a plan, tree plan, program, diagnosis, search or simulation, and the short form of notebooks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import redistrib.programs.show.plans
import redistrib.programs.show.programs  # noqa: F401
from redistrib.programs.show.content import Content, content_about
from redistrib.programs.show.page import notebook, page


class Page:
    """A page about one value. Notebooks show its short form; `save` writes the whole page.

    Attributes:
        html: the page: one file that needs no network.

    >>> from redistrib import synthesize, view
    >>> view(synthesize("[4{x}8]", "[8]", "x=2")).html.startswith("<!doctype html>")
    True
    """

    def __init__(self, value: Any) -> None:
        self._content = content_of(value)

    @property
    def html(self) -> str:
        """The page as text."""
        return page(self._content)

    def save(self, path: str | Path) -> Path:
        """Write the page into a file, and return its path.

        Raises:
            OSError: if the file cannot be written.
        """
        path = Path(path)
        path.write_text(self.html, encoding="utf-8")
        return path

    def _repr_html_(self) -> str:
        return notebook(self._content)

    def __repr__(self) -> str:
        return f"<Page of {self._content.title}; save('page.html') writes the page>"


def view(value: Any) -> Page:
    """A page that shows a value: tiles step by step, operations, timelines, and the bytes held.

    The page is one file without links to the network. Its slider goes through the steps and rounds of a plan; under the
    mouse a tile shows who sends to it. Tables sort by a click on a column. Timelines zoom by the wheel.

    Args:
        value: a `Plan`, `TreePlan`, `Program`, `Diagnosis` or `Simulation`, a result of `rd.distribute` or of
            `rd.search`, or a candidate of a search.

    Raises:
        ViewError: if it is none of these.

    >>> from redistrib.api import synthesize
    >>> view(synthesize("[4{x}8, 8]", "[8, 4{x}8]", {"x": 2}))
    <Page of [4{x}8, 8] -> [8, 4{x}8]; save('page.html') writes the page>
    """
    return Page(value)


def html_of(value: Any) -> str:
    """The short form of a page, for notebooks."""
    return notebook(content_of(value))


def content_of(value: Any) -> Content:
    """The contents of the page about a value.

    Raises:
        ViewError: if there is no page about such values.
    """
    if "jax" in sys.modules:  # values that come with JAX have pages too; without JAX there are none
        import redistrib.programs.show.trees  # noqa: F401
    return content_about(value)
