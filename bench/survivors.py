"""Records of mutants, summed up: the rate of killed mutants by room, and the survivors."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.results import Record

REASONS = Path(__file__).parent / "mutants.toml"
LEAST = 0.9  # share of the mutants of each room that tests must kill
FEWEST = 10  # mutants of a room below which its rate has no meaning


@dataclass(frozen=True)
class Room:
    """The mutants of one folder.

    Attributes:
        name: name of the room.
        killed: number of mutants that a test kills.
        equivalent: number of survivors that change no visible behaviour.
        holes: the other survivors.
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
    """The rooms of the records, in their order."""
    result = []
    for name in dict.fromkeys(record["room"] for record in records):
        group = [record for record in records if record["room"] == name]
        alive = [record for record in group if not record["killed_by"]]
        holes = [record for record in alive if not reason(record)]
        result.append(Room(name, len(group) - len(alive), len(alive) - len(holes), holes))
    return result


def equivalent() -> list[dict[str, str]]:
    """The mutants that change no visible behaviour, each with the reason."""
    entries: list[dict[str, str]] = tomllib.loads(REASONS.read_text())["equivalent"]
    return entries


def reason(record: Record) -> str:
    """The reason why a survivor changes no visible behaviour; empty where none is written down."""
    matches = (entry for entry in equivalent() if all(entry[key] == record[key] for key in ("path", "before", "after")))
    return str(next(matches, {}).get("why", ""))


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
    """The path and line of a mutant."""
    return f"{record['path'].removeprefix('redistrib/')}:{record['line']}"
