"""The descriptions of the two wheels of a release, from that of the whole project.

`pyproject.toml` lists the files of the second wheel. Everything else is in the first. No file is in both.
"""

from __future__ import annotations

import tomllib
from typing import Any

LIMIT = 700_000  # bytes of a wheel
ARRAYS, PROGRAMS = "redistrib", "redistrib-programs"
_WHEEL = '[tool.hatch.build.targets.wheel]\ncore-metadata-version = "2.4" # the newest that twine and indexes know\n'
_EXTRA = "\nprograms = [] #"


def files_of_programs(project: str) -> list[str]:
    """The folders and files of the second wheel, as paths from the root."""
    files: list[str] = tomllib.loads(project)["tool"]["redistrib"]["programs"]["files"]
    return files


def of_arrays(project: str, version: str) -> str:
    """The description of the first wheel: without the files of the second, which its extra `programs` requires."""
    excluded = ["*.md", *(f"/{path}" for path in files_of_programs(project))]  # no pages
    project = _replaced(project, _WHEEL, f"{_WHEEL}exclude = {excluded}\n")
    return _replaced(project, _EXTRA, f'\nprograms = ["{PROGRAMS}=={version}"] #')


def of_programs(project: str, version: str) -> str:
    """The description of the second wheel: its files alone, which need the first of the same version."""
    whole: dict[str, Any] = tomllib.loads(project)
    about, part = whole["project"], whole["tool"]["redistrib"]["programs"]
    shared = ("readme", "license", "license-files", "requires-python", "keywords", "classifiers")
    fields = {
        **{name: about[name] for name in shared},
        "name": PROGRAMS,
        "version": version,
        "description": part["description"],
        "dependencies": [f"{ARRAYS}=={version}"],
    }
    tables = {
        "build-system": whole["build-system"],
        "project": fields,
        **({"project.urls": about["urls"]} if "urls" in about else {}),
        "tool.hatch.build.targets.wheel": {"core-metadata-version": "2.4", "only-include": part["files"]},
    }
    return "\n".join(f"[{name}]\n{_lines(table)}" for name, table in tables.items())


def _lines(table: dict[str, Any]) -> str:
    """Strings and lists of strings as TOML, whose literals are those of Python here."""
    return "".join(f"{key} = {value!r}\n" for key, value in table.items())


def _replaced(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1, f"pyproject.toml has {old!r} {text.count(old)} times"
    return text.replace(old, new)
