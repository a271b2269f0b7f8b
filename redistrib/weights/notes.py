"""Long texts, compressed for the notes that processes exchange."""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode


def packed(text: str) -> str:
    """A long text, compressed."""
    return b64encode(zlib.compress(text.encode(), 1)).decode()


def unpacked(text: str) -> str:
    """The text of `packed`."""
    return zlib.decompress(b64decode(text)).decode()
