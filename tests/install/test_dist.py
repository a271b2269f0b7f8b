"""The archives of a release: what they hold, and the README as an index shows it."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest

import redistrib
from tests.docs.blocks import ROOT
from tests.install.dist import absolute, with_urls

ADDRESS = "https://example.org/owner/redistrib"


def test_links_of_the_readme_are_absolute_on_an_index() -> None:
    text = absolute((ROOT / "README.md").read_text(), ADDRESS)
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert len(links) > 15
    assert all(link.startswith(f"{ADDRESS}/") for link in links)
    assert (
        f"![Four panels: the source tiles, the tiles after two all-to-alls, and after the permute]({ADDRESS}/raw/"
        in text
    )


def test_the_project_has_urls_on_an_index() -> None:
    project = tomllib.loads(with_urls((ROOT / "pyproject.toml").read_text(), ADDRESS))["project"]
    assert project["urls"]["Changelog"] == f"{ADDRESS}/blob/main/CHANGELOG.md"
    assert project["scripts"] == {"redistrib": "redistrib.cli:main"}


def test_the_readme_is_short_and_the_citation_has_the_version() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120
    assert f"version: {redistrib.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_the_sdist_has_what_its_tests_read(tmp_path: Path) -> None:
    pytest.importorskip("build")
    command = [sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    (sdist,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    wanted = (
        "Makefile",
        "README.md",
        "docs/index.rst",
        "examples/jobs.py",
        "bench/__main__.py",
        "CITATION.cff",
        "conftest.py",
    )
    assert [name for name in wanted if name not in names] == []
    assert not [name for name in names if "/_build/" in name or "__pycache__" in name]
