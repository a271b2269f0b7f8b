"""The blocks of docs/torch.md, and the examples."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent.parent


def page(name: str) -> int:
    """Run the blocks of a page, as one program; how many there are."""
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / name).read_text(), re.MULTILINE | re.DOTALL)
    names: dict[str, object] = {"__name__": "page"}
    for block in blocks:
        exec(compile(block, name, "exec"), names)
    return len(blocks)


def example(name: str) -> str:
    """Run an example as a module; what its `main` returns."""
    return str(runpy.run_path(str(ROOT / "examples" / name))["main"]())
