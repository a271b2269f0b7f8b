"""Suites of the bench: a table of problems, a measurement of one after the other, and a table of the results.

All suites share the parsing of options, the saving and resuming of records, the table and the verdict on the goals.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any

from bench import results
from bench.problems import DEFAULT_SEED, SETS, in_turn
from bench.results import Record

SKIPPED = 3  # exit status of a suite that cannot run here
Settings = dict[str, Any]

HELP = {
    "algorithm": "algorithm given to synthesize",
    "cost_model": "cost model, or profile in bench/profiles, for ours",
    "megabytes": "shrink arrays to this size",
    "null": "XLA against itself: what the harness's noise is",
    "processes": "processes at a time",
    "profile": "machine that programs are searched for",
    "rate": "of each host's link, in each direction",
    "rounds": "paired measurements of a problem",
    "schedule": "how ours runs its rounds",
    "search_limit": "seconds to search for one schedule",
    "size": "of the programs",
    "storage": "bytes per second that the storage gives a host",
    "turns": "paired first calls of a case",
}


def drawn(settings: Settings) -> dict[str, Any]:
    """The problems of the sets that are drawn from a seed, by name."""
    return {problem.name: problem for problem in in_turn(settings["sets"], settings["seed"])}


def name_of(record: Record) -> str:
    """The name of the problem, case or program that a record is of."""
    return str(record["problem"]["name"] if "problem" in record else record.get("name", record.get("case")))


@dataclass(frozen=True)
class Suite:
    """Problems, a measurement, and its requirements.

    Attributes:
        name: of the results file, and of the suite's table and goals.
        measure: from problems, settings and the seconds that each may take, to a record for each problem.
        sample: how many problems of each set; or cases by name, each once.
        full: the same for `--full`; by default as in the sample.
        options: settings and their defaults, beside the seed and the sets.
        more: other defaults for `--full`.
        problems: by name, for some settings.
        prepared: settings that are measured before the rest.
        missing: why the suite cannot run, or None.
        limit: seconds that each problem may take, unless told.
        identity: the name of a record's problem, by which a resumed run leaves it out.
    """

    name: str
    measure: Callable[[list[Any], Settings, float], Generator[Record]]
    sample: Mapping[str, int] = field(default_factory=dict)
    full: Mapping[str, int] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)
    problems: Callable[[Settings], dict[str, Any]] = drawn
    prepared: Callable[[Settings], Settings] = lambda settings: settings
    missing: Callable[[Settings], str | None] = lambda settings: None
    limit: float = 120.0
    identity: Callable[[Record], str] = name_of

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The options that all suites have, and those of this one."""
        parser.add_argument("--full", action="store_true", help="all problems instead of a sample")
        parser.add_argument("--sets", help="sets or cases, with counts where they are drawn, as U222=50,paper")
        parser.add_argument("--seed", type=int, default=DEFAULT_SEED, help="of problems that are drawn")
        parser.add_argument("--limit", type=float, default=self.limit, help="seconds per problem")
        parser.add_argument("--minutes", type=float, default=None, help="take no new problem after this time")
        parser.add_argument("--resume", action="store_true", help="go on where a run was cut short, with its settings")
        parser.add_argument("--name", default=self.name, help="name of the results file")
        for option, default in self.options.items():
            flag = "--" + option.replace("_", "-")
            if isinstance(default, bool):
                parser.add_argument(flag, action="store_true", help=HELP[option])
            else:
                kind = str if default is None else type(default)
                parser.add_argument(flag, type=kind, default=None, help=f"{HELP[option]}; by default {default}")

    def settings(self, arguments: argparse.Namespace) -> Settings:
        """The versions and settings of a run, as they are saved beside the records.

        Raises:
            ValueError: if a set or a case is not one of this suite.
        """
        defaults = {**self.options, **(self.more if arguments.full else {})}
        counts = dict(self.full if arguments.full and self.full is not None else self.sample)
        chosen = {key: getattr(arguments, key) for key in self.options}
        return {
            "seed": arguments.seed,
            "sets": self._sets(arguments.sets, counts),
            "limit_s": arguments.limit,
            **{key: default if chosen[key] is None else chosen[key] for key, default in defaults.items()},
        }

    def _sets(self, text: str | None, counts: dict[str, int]) -> dict[str, int]:
        """`"U222=50,paper"` as set -> count: a bare name takes the default count, a part of a name all cases with it,
        and no text all defaults."""
        if not text:
            return counts
        known = {**(self.full or {}), **self.sample, **counts}
        chosen = {}
        for item in text.split(","):
            name, _, count = item.partition("=")
            names = [name] if name in SETS or name in known else [one for one in known if name in one]
            if not names:
                raise ValueError(f"{name!r} is none of the sets of {self.name}: {', '.join(known)}")
            chosen |= {one: int(count) if count else known.get(one, 10) for one in names}
        return chosen

    def main(self, arguments: argparse.Namespace, show: Callable[[str, results.Results], None]) -> int:
        """Measure the problems asked for, save the records and show them; returns 1 if a result was wrong."""
        try:
            settings, earlier = self.settings(arguments), []
        except ValueError as error:
            print(error, file=sys.stderr)
            return 2
        if reason := self.missing(settings):
            print(f"skipped: {reason}", file=sys.stderr)
            return SKIPPED
        if arguments.resume:
            cut_short = results.unfinished(arguments.name)
            if cut_short is None:
                print(f"nothing to resume: {arguments.name} was not cut short", file=sys.stderr)
                return 2
            earlier, settings = cut_short[0], {**settings, **cut_short[1]}  # older files lack some settings
        else:
            settings = self.prepared(settings)
        measured = {self.identity(record) for record in earlier}
        left = [problem for name, problem in self.problems(settings).items() if name not in measured]
        run = self.measure(left, settings, settings.get("limit_s", arguments.limit))
        records = results.collect(arguments.name, run, settings, arguments.minutes, earlier)
        show(self.name, results.Results({self.name: {"records": records, "settings": settings}}))
        wrong = [self.identity(record) for record in records if record.get("wrong")]
        if wrong:
            print(f"WRONG RESULTS: {', '.join(wrong)}", file=sys.stderr)
        return 1 if wrong else 0


def cases(names: Mapping[str, Any]) -> Callable[[Settings], dict[str, Any]]:
    """`problems` of a suite whose cases are fixed: those of a table that the settings name."""
    return lambda settings: {name: names[name] for name in settings["sets"]}


def once(names: Any) -> dict[str, int]:
    """`sample` of such a suite."""
    return dict.fromkeys(names, 1)
