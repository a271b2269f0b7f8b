"""Commands of pages: which run with their page, and of all of them what they name must exist and options must parse.

| command | what is checked before it runs |
| --- | --- |
| `make TARGET` | the Makefile has the target |
| `pip install REQUIREMENT` | the extras are extras of this package |
| `python -m bench ...`, `python -m bench.MODULE` | the bench parses the options; there is such a module |
| `python examples/FILE.py`, also on MPI ranks | there is such a file, which tests of its own run |
| `redistrib calibrate`, `redistrib demo` | the command parses the options |
| a command in a docstring | the same, but values may be words such as FILE: the help names the options |

Commands of pages run too: most of a block of `sh` with their page; those that take minutes, and those between words, in
the long tests.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import re
import shlex
import tomllib

from bench.__main__ import parser_for
from redistrib.cli import parser
from tests.docs.blocks import ROOT

_MEASURED = ("calibrate", "demo")  # they take minutes, or need a model's weights


def runs(command: str) -> bool:
    """Whether a command of a block runs with its page, and not in the long tests."""
    words = _words(command)
    return words[0] == "redistrib" and words[1] not in _MEASURED


def match(command: str, inline: bool = False) -> None:
    """Raise unless what the command names exists, and its options parse or, of a command between words, are there."""
    words = _words(command)
    check = _find_options if inline else _parse
    if words[0] == "redistrib":
        check(command, parser(), words[1:])
    elif words[0] == "make":
        _match_make(words[1:])
    elif words[:2] == ["pip", "install"]:
        _match_requirements([word for word in words[2:] if not word.startswith("-")])
    elif words[:3] == ["python", "-m", "bench"]:
        check(command, parser_for(words[3]), words[3:])
    elif words[:2] == ["python", "-m"]:
        if inline and words[2].isupper():  # MODULE stands for any
            return
        assert importlib.util.find_spec(words[2]) is not None, f"no module {words[2]}: {command}"
    elif words[0] == "python":
        assert (ROOT / words[1]).is_file(), f"no file {words[1]}: {command}"
    else:
        raise AssertionError(f"neither run nor matched: {command}")


def steps_of_ci() -> list[str]:
    """The steps of `.ci/run`, and the targets of the Makefile that they make first."""
    steps = [line.strip().partition(" > ")[0] for line in (ROOT / ".ci" / "run").read_text().splitlines()]
    rules = dict(re.findall(r"^([a-z-]+):(?!=) *([^#\n]*)", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for step in steps:
        if step.startswith("make "):
            steps += [f"make {first}" for first in rules.get(step.split()[1], "").split() if first in rules]
    return steps


def _words(command: str) -> list[str]:
    """The words of a command, without its variables and without what starts it on MPI ranks."""
    words = shlex.split(command, comments=True)
    while re.match(r"[A-Z_]+=", words[0]):
        words = words[1:]
    if words[0] == "mpiexec":
        assert words[1] == "-n" and words[2].isdigit() and words[3:6] == ["python", "-m", "mpi4py"], command
        words = words[7:] if words[6] == "-m" else ["python", *words[6:]]
    return words


def _parse(command: str, accepts: argparse.ArgumentParser, words: list[str]) -> None:
    try:
        accepts.parse_args(words)
    except SystemExit as ended:
        if ended.code:  # --help ends too
            raise AssertionError(f"its options do not parse: {command}") from ended


def _find_options(command: str, accepts: argparse.ArgumentParser, words: list[str]) -> None:
    if words[0].isupper():  # COMMAND stands for any
        return
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
        accepts.parse_args([words[0], "--help"])
    assert out.getvalue(), f"there is no such command: {command}"
    named = set(re.findall(r"(?<![\w-])--?[a-z-]+", out.getvalue()))
    missing = {word for word in words if word.startswith("-")} - named
    assert not missing, f"no options {missing}: {command}"


def _match_make(words: list[str]) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for word in words:
        assert "=" in word or word in targets, f"the Makefile has no target {word}"


def _match_requirements(requirements: list[str]) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for requirement in requirements:
        name, _, asked = requirement.partition("[")
        if name == "redistrib":
            wanted = set(filter(None, asked.rstrip("]").split(",")))
            assert wanted <= set(extras), f"no extras {wanted - set(extras)}"
