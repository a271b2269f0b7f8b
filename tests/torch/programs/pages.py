"""The blocks of docs/torch.md, the examples, and those of docstrings."""

from __future__ import annotations

import doctest
import re
import runpy
from importlib import import_module
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


def docstring(name: str) -> str:
    """Run the example of a public name; what fails in it, and that it has none."""
    module, _, attribute = name.rpartition(".")
    text, out = getattr(import_module(module), attribute).__doc__, list[str]()
    test = doctest.DocTestParser().get_doctest(text, {}, name, None, None)
    ran = doctest.DocTestRunner().run(test, out.append)
    return "".join(out) if ran.attempted else "no example"
