"""Messages of errors, compared as a whole."""

from __future__ import annotations

import re


def exactly(message: str) -> str:
    """The pattern, for `pytest.raises(match=...)`, of this message and no other; JAX may note something below it.

    Before JAX 0.10 a partition spec prints as `PartitionSpec(...)`.
    """
    text = re.sub(r"(?<![A-Za-z])P\\\(", r"(?:PartitionSpec|P)\\(", re.escape(message))
    return rf"(?s)\A{text}(\n-+\n.*)?\Z"
