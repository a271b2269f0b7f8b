"""Parts of docs/programs.md that are drawn from the code; `python -m tests.docs.generated` writes them anew."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from redistrib.programs.ir.data import Call, Compute, Loop, Move, ProgramData
from redistrib.programs.ir.nest import Access, Nest
from redistrib.programs.ir.pullback import RULES, ScheduledNest
from redistrib.programs.ir.value import Place, Value

PAGE = Path(__file__).parents[2] / "docs" / "programs.md"
SHOWN = (Access, Nest, ScheduledNest, Place, Value, Compute, Move, Call, Loop, ProgramData)


def rules() -> str:
    rows = ["| rule | where | gives |", "| --- | --- | --- |"]
    rows += [f"| {rule.name} | {rule.where} | {rule.gives} |" for rule in RULES]
    return "\n".join(rows)


def dataclass_listing() -> str:
    lines = []
    for shown in SHOWN:
        first = (shown.__doc__ or "").splitlines()[0]
        fields = ", ".join(f"`{field.name}`" for field in dataclasses.fields(shown))
        lines.append(f"| `{shown.__name__}` | {first} | {fields} |")
    return "\n".join(["| class | what it is | fields |", "| --- | --- | --- |", *lines])


PARTS = {"rules": rules, "dataclasses": dataclass_listing}


def redrawn(page: str) -> str:
    """The page with every drawn part as the code has it."""
    for name, draw in PARTS.items():
        marks = (f"<!-- {name} -->", f"<!-- end of {name} -->")
        pattern = re.compile(f"({re.escape(marks[0])}\n).*?(\n{re.escape(marks[1])})", re.DOTALL)
        assert pattern.search(page), f"the page has no part {name}"
        before, after = pattern.split(page)[0], pattern.split(page)[-1]
        page = f"{before}{marks[0]}\n{draw()}\n{marks[1]}{after}"
    return page


if __name__ == "__main__":
    PAGE.write_text(redrawn(PAGE.read_text()))
