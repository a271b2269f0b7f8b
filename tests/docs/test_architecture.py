"""The page of the architecture names every room, and its picture is drawn from today's imports."""

from __future__ import annotations

import importlib.util
import json
import re
import struct
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "architecture.md"
MOST_WORDS = 1500


@pytest.fixture(scope="module")
def drawing() -> ModuleType:
    spec = importlib.util.spec_from_file_location("draw_architecture", DOCS / "draw_architecture.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def description(picture: Path) -> str:
    """The text that a PNG carries under the key `Description`."""
    data = picture.read_bytes()
    at = 8
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        if kind == b"tEXt" and body.startswith(b"Description\0"):
            return body.split(b"\0", 1)[1].decode("latin-1")
        at += 12 + length
    raise AssertionError(f"{picture.name} has no description; run python docs/draw_architecture.py")


def test_the_picture_is_of_todays_imports(drawing: ModuleType) -> None:
    """Drawn anew by `python docs/draw_architecture.py`."""
    assert json.loads(description(drawing.PICTURE)) == drawing.imports()


def test_no_arrow_of_the_picture_crosses_a_box(drawing: ModuleType) -> None:
    placed = drawing.placed()
    for corners in placed.arrows.values():
        points = np.concatenate([np.linspace(a, b, 100) for a, b in pairwise(corners)])
        for left, bottom, width, height in placed.boxes.values():
            inside = (points > (left, bottom + 0.01)) & (points < (left + width, bottom + height - 0.01))
            assert not inside.all(axis=1).any()
    assert len(placed.arrows) > len(placed.boxes)


def test_the_page_names_every_room(drawing: ModuleType) -> None:
    text = PAGE.read_text(encoding="utf-8")
    rooms = [room for row in drawing.layers() for room in row if room != "__main__"]
    assert [room for room in rooms if f"`{room}`" not in text] == []


def test_the_files_that_the_page_names_are_there() -> None:
    root = DOCS.parent
    names = re.findall(r"`([\w*]+/[\w/.*]+)`", PAGE.read_text(encoding="utf-8"))
    assert len(names) > 15
    assert [name for name in names if not any([*root.glob(name), *(root / "redistrib").glob(name)])] == []


def test_the_page_is_short() -> None:
    assert len(PAGE.read_text(encoding="utf-8").split()) <= MOST_WORDS
