"""A suite of the bench: a table of problems, the measurement of each, and a table of the results.

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
    "batch": "examples of a step",
    "cost_model": "cost model, or profile in bench/profiles, for ours",
    "megabytes": "shrink arrays to this size",
    "null": "XLA against itself: the noise of the harness",
    "passes": "times that all is measured, of which the least counts",
    "processes": "processes at a time",
    "profile": "machine that programs are searched for",
    "rate": "rate of each host's link, in each direction",
    "rounds": "measurements of a problem, paired",
    "search_limit": "seconds to search for one schedule",
    "size": "size of the programs",
    "storage": "bytes per second that the storage gives a host",
    "turns": "first calls of a case, paired",
}


def drawn(settings: Settings) -> dict[str, Any]:
    """The problems of the sets in the settings, drawn from a seed, by name."""
    return {problem.name: problem for problem in in_turn(settings["sets"], settings["seed"])}


def name_of(record: Record) -> str:
    """The name of the problem, case or program of a record."""
    return str(record["problem"]["name"] if "problem" in record else record.get("name", record.get("case")))


@dataclass(frozen=True)
class Suite:
    """Problems, their measurement, and its requirements.

    Attributes:
        name: name of the results file, of the table and of the goals.
        measure: function of problems, settings and seconds per problem, which yields a record per problem.
        sample: number of problems by set, or 1 by the name of a case.
        full: the same for `--full`; by default that of the sample.
        options: settings and their defaults, beside the seed and the sets.
        more: other defaults for `--full`.
        problems: function from settings to problems by name.
        prepared: function that adds settings measured before the problems.
        missing: function that returns why the suite cannot run, or None.
        limit: default of the seconds per problem.
        identity: name of a record's problem, by which a resumed run leaves it out.
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
        """Add the options of all suites, and those of this suite."""
        parser.add_argument("--full", action="store_true", help="all problems instead of a sample")
        parser.add_argument("--sets", help="sets, with counts, or cases: U222=50,paper")
        parser.add_argument("--seed", type=int, default=DEFAULT_SEED, help="seed of random problems")
        parser.add_argument("--limit", type=float, default=self.limit, help="seconds per problem")
        parser.add_argument("--minutes", type=float, default=None, help="take no new problem after this time")
        parser.add_argument("--resume", action="store_true", help="continue an interrupted run with its settings")
        parser.add_argument("--name", default=self.name, help="name of the results file")
        for option, default in self.options.items():
            flag = "--" + option.replace("_", "-")
            if isinstance(default, bool):
                parser.add_argument(flag, action="store_true", help=HELP[option])
            else:
                kind = str if default is None else type(default)
                parser.add_argument(flag, type=kind, default=None, help=f"{HELP[option]}; by default {default}")

    def settings(self, arguments: argparse.Namespace) -> Settings:
        """The settings of a run, which are saved beside the records.

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
        """Parse `"U222=50,paper"` into set -> count. A name without a count takes the default count; a part of a name
        takes all cases that contain it; an empty text takes all defaults."""
        if not text:
            return counts
        defaults = {**(self.full or {}), **self.sample, **counts}
        chosen = {}
        for item in text.split(","):
            name, _, count = item.partition("=")
            names = [name] if name in SETS or name in defaults else [case for case in defaults if name in case]
            if not names:
                raise ValueError(f"{name!r} is none of the sets of {self.name}: {', '.join(defaults)}")
            chosen |= {case: int(count) if count else defaults.get(case, 10) for case in names}
        return chosen

    def main(self, arguments: argparse.Namespace, show: Callable[[str, results.Results], None]) -> int:
        """Measure the problems of the arguments, save and show the records; return 1 if a result was wrong."""
        try:
            settings, earlier = self.settings(arguments), []
        except ValueError as error:
            print(error, file=sys.stderr)
            return 2
        if reason := self.missing(settings):
            print(f"skipped: {reason}", file=sys.stderr)
            return SKIPPED
        if arguments.resume:
            interrupted = results.unfinished(arguments.name)
            if interrupted is None:
                print(f"nothing to resume: {arguments.name} was not interrupted", file=sys.stderr)
                return 2
            earlier, settings = interrupted[0], {**settings, **interrupted[1]}  # older files lack some settings
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
    """`problems` of a suite with fixed cases: those of a table that the settings name."""
    return lambda settings: {name: names[name] for name in settings["sets"]}


def once(names: Any) -> dict[str, int]:
    """`sample` of a suite with fixed cases: each once."""
    return dict.fromkeys(names, 1)
