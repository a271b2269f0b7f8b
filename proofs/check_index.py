"""Holds the index in README.md against the proofs and the tests. Standard library only.

Fails when a theorem, file or test that the index names does not exist, when a `Theorem` of `Thm/` is missing from
the index, or when a source has an axiom or something admitted. With `--assumptions` it also asks Coq, for every theorem
of the index, what it assumes; the only accepted answer is "Closed under the global context".
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
INDEXES = (HERE / "README.md", HERE / "Checker" / "index.md")
STATEMENT = re.compile(r"^\s*(Theorem|Lemma|Corollary|Fact|Remark|Example|Definition)\s+([\w']+)", re.MULTILINE)
FORBIDDEN = re.compile(
    r"\b(Axioms?|Parameters?|Conjectures?|Admitted|admit|Admit\s+Obligations|give_up|"
    r"bypass_check|Unset\s+(?:Guard|Positivity|Universe)\s+Check\w*|type_in_type)\b"
)
CLOSED = "Closed under the global context"


class Row(NamedTuple):
    """One line of an index table: property | theorems | file | laws."""

    place: str
    theorems: list[str]
    file: str
    laws: list[str]


def without_comments(text: str) -> str:
    """Coq source with its (nested) comments blanked, so that line numbers stay."""
    out, depth, i = [], 0, 0
    while i < len(text):
        if text.startswith("(*", i):
            depth, i = depth + 1, i + 2
        elif text.startswith("*)", i) and depth:
            depth, i = depth - 1, i + 2
        else:
            out.append(text[i] if depth == 0 or text[i] == "\n" else " ")
            i += 1
    return "".join(out)


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def read_index(path: Path) -> list[Row]:
    rows = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.startswith("|"):
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) != 4 or set(cells[0]) <= set("-: ") or cells[1] == "theorem":
            continue
        files = quoted(cells[2])
        rows.append(Row(f"{path.name}:{number}", quoted(cells[1]), files[0] if files else "", quoted(cells[3])))
    return rows


def check_rows(rows: list[Row]) -> list[str]:
    """What is wrong with the names in the index."""
    wrong = []
    for row in rows:
        source = HERE / row.file
        if not row.file or not source.is_file():
            wrong.append(f"{row.place}: no file {row.file or '(none named)'}")
            continue
        stated = {name for _, name in STATEMENT.findall(without_comments(source.read_text()))}
        if not row.theorems:
            wrong.append(f"{row.place}: names no theorem")
        wrong += [f"{row.place}: {row.file} states no {name}" for name in row.theorems if name not in stated]
        wrong += [f"{row.place}: no test {law}" for law in row.laws if not test_exists(law)]
    return wrong


def test_exists(law: str) -> bool:
    """Whether `tests/file.py`, or the function of `tests/file.py::function`, is there."""
    path, _, function = law.partition("::")
    file = HERE.parent / path
    return file.is_file() and (not function or re.search(rf"^def {function}\(", file.read_text(), re.M) is not None)


def check_sources(rows: list[Row]) -> list[str]:
    """Forbidden words in the sources, and theorems that the index forgets."""
    wrong = []
    indexed = {(row.file, name) for row in rows for name in row.theorems}
    for source in sorted(HERE.glob("*/*.v")):
        file, text = source.relative_to(HERE).as_posix(), without_comments(source.read_text())
        for match in FORBIDDEN.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            wrong.append(f"{file}:{line}: {match.group()} is not allowed")
        if file.startswith("Thm/"):
            for kind, name in STATEMENT.findall(text):
                if kind == "Theorem" and (file, name) not in indexed:
                    wrong.append(f"{file}: Theorem {name} is not in the index")
    return wrong


def check_assumptions(rows: list[Row]) -> list[str]:
    """Theorems that rest on something, as Coq itself reports."""
    names = sorted({(row.file, name) for row in rows for name in row.theorems})
    qualified = [f"Redistrib.{file.removesuffix('.v').replace('/', '.')}.{name}" for file, name in names]
    modules = sorted({name.rsplit(".", 1)[0] for name in qualified})
    lines = [f"Require {module}." for module in modules] + [f"Print Assumptions {name}." for name in qualified]
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "assumptions.v"
        script.write_text("\n".join(lines) + "\n")
        command = ["coqc", "-q", "-w", "none", "-R", str(HERE), "Redistrib", str(script)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return [f"coqc failed on the list of theorems:\n{done.stdout}{done.stderr}"]
    answers = [line for line in done.stdout.splitlines() if line.strip()]
    if answers == [CLOSED] * len(qualified):
        print(f"{len(qualified)} theorems of the index: each {CLOSED[0].lower()}{CLOSED[1:]}")
        return []
    return [f"a theorem rests on an assumption; Coq says, in the order {qualified}:\n{done.stdout}"]


def main(arguments: list[str]) -> int:
    rows = [row for path in INDEXES if path.is_file() for row in read_index(path)]
    wrong = check_rows(rows) + check_sources(rows)
    if not rows:
        wrong.append("the index is empty")
    if not wrong and "--assumptions" in arguments:
        wrong = check_assumptions(rows)
    for line in wrong:
        print(line, file=sys.stderr)
    if not wrong and "--assumptions" not in arguments:
        print(f"index: {len(rows)} rows, {sum(len(row.theorems) for row in rows)} theorems, nothing missing")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
