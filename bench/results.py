"""Results as JSON files, one per suite, with the machine and the settings beside the records."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import machine

DIRECTORY = Path(os.environ.get("BENCH_RESULTS", Path(__file__).parent / "results"))

Record = dict[str, Any]

SAVE_EVERY = 60.0  # seconds


@dataclass(frozen=True)
class Results:
    """Saved results: suite -> contents of its file."""

    files: dict[str, dict[str, Any]]

    def records(self, name: str) -> list[Record]:
        records: list[Record] = self.files.get(name, {}).get("records", [])
        return records

    def settings(self, name: str) -> dict[str, Any]:
        return dict(self.files.get(name, {}).get("settings", {}))


def save(name: str, records: list[dict[str, Any]], settings: dict[str, Any], directory: Path | None = None) -> Path:
    """Write `NAME.json`; return its path."""
    folder = directory or DIRECTORY
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    lines = ",\n".join(json.dumps(_short(record), separators=(",", ":")) for record in records)
    head = json.dumps({"machine": machine.describe(), "settings": settings}, indent=1)[:-2]
    path.write_text(f'{head},\n "records": [\n{lines}\n]}}\n')
    return path


def unfinished(name: str) -> tuple[list[dict[str, Any]], dict[str, Any]] | None:
    """The records and settings of an interrupted bench, for `collect` to continue; None where none was interrupted.

    The settings list the `earlier` parts of the run: the commit, the date and the number of records of each.
    """
    file = load(name)
    if file is None or not file["settings"].get("unfinished"):
        return None
    records, settings = file["records"], {**file["settings"]}
    del settings["unfinished"]
    before = settings.get("earlier", [])
    this = {key: file["machine"][key] for key in ("commit", "date")}
    new = len(records) - sum(part["records"] for part in before)
    return records, {**settings, "earlier": [*before, {**this, "records": new}]}


def collect(
    name: str,
    records: Generator[dict[str, Any]],
    settings: dict[str, Any],
    minutes: float | None = None,
    earlier: Iterable[dict[str, Any]] = (),
) -> list[dict[str, Any]]:
    """All records of a bench, saved every `SAVE_EVERY` seconds, so that a killed bench keeps its records.

    Args:
        name: of the results file.
        records: a generator of records; closed after `minutes`.
        settings: saved beside the records, with `unfinished` where the bench was interrupted.
        minutes: time after which no further record is taken.
        earlier: records of the run that is resumed, see `unfinished`.
    """
    collected = list(earlier)
    start = saved = time.monotonic()
    for record in records:
        collected.append(record)
        now = time.monotonic()
        if minutes is not None and now - start > 60 * minutes:
            records.close()
            settings = {**settings, "unfinished": True}
            break
        if now - saved > SAVE_EVERY:
            save(name, collected, {**settings, "unfinished": True})
            saved = now
    save(name, collected, settings)
    print(f"wrote {DIRECTORY / name}.json", file=sys.stderr)
    return collected


def load(name: str, directory: Path | None = None) -> dict[str, Any] | None:
    """The file that `save` wrote, or None where there is none."""
    path = (directory or DIRECTORY) / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def _short(value: Any) -> Any:
    """Round floats to seven significant digits, more than the precision of any timing."""
    if isinstance(value, float):
        return float(f"{value:.7g}")
    if isinstance(value, dict):
        return {key: _short(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_short(item) for item in value]
    return value
