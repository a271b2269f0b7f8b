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


def test_the_pictures_are_of_todays_imports(drawing: ModuleType) -> None:
    """Drawn anew by `python docs/draw_architecture.py`."""
    pictures = {drawing.PICTURE: "of_the_package", drawing.MOVING: "of_moving", drawing.PROGRAMS: "of_programs"}
    for picture, graph in pictures.items():
        assert json.loads(description(picture)) == getattr(drawing, graph)()[1]


@pytest.mark.parametrize("graph", ["of_the_package", "of_moving", "of_programs"])
def test_no_arrow_of_a_picture_crosses_a_box(drawing: ModuleType, graph: str) -> None:
    placed = drawing.placed(*getattr(drawing, graph)())
    for corners in placed.arrows.values():
        points = np.concatenate([np.linspace(a, b, 100) for a, b in pairwise(corners)])
        for left, bottom, width, height in placed.boxes.values():
            inside = (points > (left, bottom + 0.01)) & (points < (left + width, bottom + height - 0.01))
            assert not inside.all(axis=1).any()
    assert len(placed.arrows) >= len(placed.boxes)


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


def test_what_moves_arrays_is_told_shortly() -> None:
    """The page of backends, with what the page of the architecture says of plans, backends and trees."""
    told = PAGE.read_text(encoding="utf-8").split("5. **Programs.**")[0]
    backends = (DOCS.parent / "redistrib/backends/README.md").read_text(encoding="utf-8")
    assert len(told.split()) + len(backends.split()) <= MOST_WORDS
    files = re.findall(r"`([\w.]+/[\w/.]+\.py)`", backends)
    roots = [DOCS.parent, DOCS.parent / "redistrib", DOCS.parent / "redistrib/backends"]
    assert len(files) > 3
    assert [name for name in files if not any((root / name).exists() for root in roots)] == []
