"""The results of the tests for the faults of `bench.mutants`: rates by room, and surviving mutants."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.results import Record

REASONS = Path(__file__).parent / "mutants.toml"
LEAST = 0.9  # of the mutants of each room are to be killed
FEWEST = 10  # mutants of a room that tell anything of it


@dataclass(frozen=True)
class Room:
    """The mutants of one folder.

    Attributes:
        name: of the room.
        killed: how many a test finds.
        equivalent: mutants that change nothing observable.
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
    """Why a survivor changes nothing observable; empty where no reason is known."""
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


def place(record: Record) -> str:
    """Where the fault of a record was put."""
    return f"{record['path'].removeprefix('redistrib/')}:{record['line']}"
