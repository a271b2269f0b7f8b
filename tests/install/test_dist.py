"""The archives of a release: what they hold, and the README as an index shows it."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT
from tests.install import dist
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


def test_the_readme_and_the_changelog_are_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 100
    assert (ROOT / "CHANGELOG.md").stat().st_size <= 12_000


def test_a_release_needs_its_part_of_the_changelog_and_an_upload_a_key(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("TWINE_PASSWORD", raising=False)
    assert dist.unready(upload=False, repository="") == ""
    assert "TWINE_PASSWORD" in dist.unready(upload=True, repository=ADDRESS)
    monkeypatch.setenv("TWINE_PASSWORD", "key")
    assert "REPOSITORY" in dist.unready(upload=True, repository="")
    assert dist.unready(upload=True, repository=ADDRESS) == ""
    (tmp_path / "redistrib").mkdir()
    (tmp_path / "redistrib" / "__init__.py").write_text('__version__ = "9.9"\n')
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n")
    monkeypatch.setattr(dist, "ROOT", tmp_path)
    assert "'## 9.9'" in dist.unready(upload=False, repository="")


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names of the files of the sdist, without its folder."""
    pytest.importorskip("build")
    folder = tmp_path_factory.mktemp("sdist")
    command = [sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        return {name.partition("/")[2] for name in tar.getnames()}


def test_the_sdist_has_every_file_of_the_repository(sdist: set[str]) -> None:
    """Its tests, its Makefile and its continuous integration work from the unpacked archive alone."""
    if not (ROOT / ".git").exists():
        pytest.skip("no repository to compare with")
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    assert [name for name in listed if name not in sdist and (ROOT / name).exists()] == []


def test_the_sdist_has_what_its_tests_read_and_nothing_that_they_make(sdist: set[str]) -> None:
    wanted = (
        ".ci/run",
        "CITATION.cff",
        "Makefile",
        "README.md",
        "bench/__main__.py",
        "conftest.py",
        "docs/index.md",
        "examples/jobs.py",
    )
    assert [name for name in wanted if name not in sdist] == []
    assert not [name for name in sdist if "/_build/" in name or "__pycache__" in name or name.startswith(".venv")]
