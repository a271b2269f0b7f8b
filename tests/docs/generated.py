"""Parts of pages drawn from the code and the bench's results; `python -m tests.docs.generated` writes them anew."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path

from bench import front, report
from redistrib.programs.ir.data import Call, Compute, Loop, Move, ProgramData
from redistrib.programs.ir.pullback import DERIVATION_RULES, ScheduledNest

ROOT = Path(__file__).parents[2]
SHOWN = (ScheduledNest, Compute, Move, Call, Loop, ProgramData)


def rules() -> str:
    rows = ["| rule | where | gives |", "| --- | --- | --- |"]
    rows += [f"| {rule.name} | {rule.where} | {rule.gives} |" for rule in DERIVATION_RULES]
    return "\n".join(rows)


def dataclass_listing() -> str:
    lines = []
    for shown in SHOWN:
        first = (shown.__doc__ or "").splitlines()[0]
        fields = ", ".join(f"`{field.name}`" for field in dataclasses.fields(shown))
        lines.append(f"| `{shown.__name__}` | {first} | {fields} |")
    return "\n".join(["| class | what it is | fields |", "| --- | --- | --- |", *lines])


def figures() -> str:
    return str(front.figures(report.load()))


PARTS: dict[Path, dict[str, Callable[[], str]]] = {
    ROOT / "docs" / "programs.md": {"rules": rules, "dataclasses": dataclass_listing},
    ROOT / "docs" / "index.md": {"figures": figures},
    ROOT / "README.md": {"figures": figures},
}


def redrawn(path: Path) -> str:
    """The page with every drawn part as the code has it."""
    page = path.read_text()
    for name, draw in PARTS[path].items():
        marks = (f"<!-- {name} -->", f"<!-- end of {name} -->")
        pattern = re.compile(f"({re.escape(marks[0])}\n).*?({re.escape(marks[1])})", re.DOTALL)
        assert pattern.search(page), f"the page has no part {name}"
        before, after = pattern.split(page)[0], pattern.split(page)[-1]
        page = f"{before}{marks[0]}\n{draw()}\n{marks[1]}{after}"
    return page


if __name__ == "__main__":
    for path in PARTS:
        path.write_text(redrawn(path))
