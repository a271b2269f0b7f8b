"""Results as JSON files, one per bench, with machine, seed and command beside the records."""

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
    """All results there are: bench -> file contents."""

    files: dict[str, dict[str, Any]]

    def records(self, name: str) -> list[Record]:
        found: list[Record] = self.files.get(name, {}).get("records", [])
        return found

    def settings(self, name: str) -> dict[str, Any]:
        return dict(self.files.get(name, {}).get("settings", {}))


def save(name: str, records: list[dict[str, Any]], settings: dict[str, Any], directory: Path | None = None) -> Path:
    """Write `NAME.json`; the path written."""
    folder = directory or DIRECTORY
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    lines = ",\n".join(json.dumps(_short(record), separators=(",", ":")) for record in records)
    head = json.dumps({"machine": machine.describe(), "settings": settings}, indent=1)[:-2]
    path.write_text(f'{head},\n "records": [\n{lines}\n]}}\n')
    return path


def unfinished(name: str) -> tuple[list[dict[str, Any]], dict[str, Any]] | None:
    """The records and settings of a bench that was cut short, for `collect` to go on from; None where none was.

    The settings say which part was measured `earlier`: at which commit, when, and how many records.
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
    """All records of a bench, saved now and then on the way: an interrupted bench keeps its records.

    Args:
        name: of the results file.
        records: the bench; closed when the time is up.
        settings: kept beside the records, which `unfinished` joins where not all were taken.
        minutes: time after which no further record is taken.
        earlier: records that there were before, see `unfinished`.
    """
    found = list(earlier)
    start = saved = time.monotonic()
    for record in records:
        found.append(record)
        now = time.monotonic()
        if minutes is not None and now - start > 60 * minutes:
            records.close()
            settings = {**settings, "unfinished": True}
            break
        if now - saved > SAVE_EVERY:
            save(name, found, {**settings, "unfinished": True})
            saved = now
    save(name, found, settings)
    print(f"wrote {DIRECTORY / name}.json", file=sys.stderr)
    return found


def load(name: str, directory: Path | None = None) -> dict[str, Any] | None:
    """The results that `save` wrote, or None where this bench has not been run."""
    path = (directory or DIRECTORY) / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def _short(value: Any) -> Any:
    """Seven significant digits are more than any timing holds."""
    if isinstance(value, float):
        return float(f"{value:.7g}")
    if isinstance(value, dict):
        return {key: _short(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_short(item) for item in value]
    return value
