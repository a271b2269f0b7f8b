"""Messages of errors, compared as a whole."""

from __future__ import annotations

import re


def exactly(message: str) -> str:
    """The pattern, for `pytest.raises(match=...)`, of this message and no other; JAX may note something below it."""
    return rf"(?s)\A{re.escape(message)}(\n-+\n.*)?\Z"
