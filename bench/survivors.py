"""What the tests say of the faults that `bench.mutants` puts into the code: rates by room, and what outlives them."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.markdown import table
from bench.results import Results
from bench.summary import Record

REASONS = Path(__file__).parent / "mutants.toml"
LEAST = 0.9  # of the mutants of each room are to be killed
FEWEST = 10  # mutants of a room that tell anything of it
TEXT = """## Faults put into the code

*Mutants* are the operators of mutmut at every place of code that runs: a seeded sample of each folder (seed {seeds}, at
most {count} of each), one at a time, against the tests of that folder. Killed is one for which a test fails that passes
without it, or that lets tests take more than four times as long by the processor's clock. What outlives the tests and
changes nothing that anyone could see is not counted; `bench/mutants.toml` says of each why.
"""


@dataclass(frozen=True)
class Room:
    """The mutants of one folder.

    Attributes:
        name: of the room.
        killed: how many a test finds.
        equivalent: how many change nothing that anyone could see.
        holes: those that no test finds though they change something.
    """

    name: str
    killed: int
    equivalent: int
    holes: Sequence[Record]

    @property
    def counted(self) -> int:
        return self.killed + len(self.holes)

    @property
    def rate(self) -> float:
        return self.killed / self.counted if self.counted else 1.0


def rooms(records: Sequence[Record]) -> list[Room]:
    """The rooms of these records, in their order."""
    made = []
    for name in dict.fromkeys(record["room"] for record in records):
        own = [record for record in records if record["room"] == name]
        alive = [record for record in own if not record["killed_by"]]
        holes = [record for record in alive if not reason(record)]
        made.append(Room(name, len(own) - len(alive), len(alive) - len(holes), holes))
    return made


def reason(record: Record) -> str:
    """Why a survivor changes nothing that anyone could see; empty where nobody has said so."""
    known = tomllib.loads(REASONS.read_text())["equivalent"] if REASONS.exists() else []
    told = (entry for entry in known if all(entry[key] == record[key] for key in ("path", "before", "after")))
    return str(next(told, {}).get("why", ""))


def listed(records: Sequence[Record]) -> str:
    """The rate of every room, and the survivors with their reasons, for a terminal."""
    lines = []
    for room in rooms(records):
        lines.append(
            f"{room.name:10} {room.killed} of {room.counted} killed, {100 * room.rate:.0f}%; "
            f"{room.equivalent} more change nothing"
        )
        for record in (record for record in records if record["room"] == room.name and not record["killed_by"]):
            lines.append(f"  {record['path']}:{record['line']}: {reason(record) or 'NOT KILLED'}")
            lines += [f"    - {line}" for line in record["before"].splitlines()]
            lines += [f"    + {line}" for line in record["after"].splitlines()]
    return "\n".join(lines)


def parts(found: Results) -> list[str]:
    """The parts of the page."""
    records = found.records("mutants")
    if not records:
        return []
    settings = found.settings("mutants")
    rooms_of: dict[int, list[str]] = {}
    for room, seed in settings["seeds"].items():
        rooms_of.setdefault(seed, []).append(room)
    most, *others = sorted(rooms_of, key=lambda seed: (-len(rooms_of[seed]), seed))
    seeds = "; ".join([str(most), *(f"{seed} of {', '.join(rooms_of[seed])}" for seed in sorted(others))])
    return [TEXT.format(seeds=seeds, count=settings["count"]), table(*rows(records))]


def rows(records: Sequence[Record]) -> tuple[list[str], list[list[str]]]:
    """Head and rows of the report's table."""
    body = [
        [room.name, str(room.killed + len(room.holes) + room.equivalent), str(room.killed), str(room.equivalent),
         f"{100 * room.rate:.0f}%", "; ".join(f"`{_place(record)}`" for record in room.holes) or "none"]
        for room in rooms(records)
    ]  # fmt: skip
    return ["folder", "mutants", "killed", "change nothing", "killed of the others", "outlived the tests"], body


def _place(record: Record) -> str:
    return f"{record['path'].removeprefix('redistrib/')}:{record['line']}"
