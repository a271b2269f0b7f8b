"""What a release needs: `python tests/install/dist.py [--repository URL] [--all] [--upload] [TEST ...]`.

Builds two wheels and the sdist into `dist` and has twine check their metadata; a wheel of 700,000 bytes or more is an
error. In empty environments it installs the first wheel alone, which moves arrays, both wheels, which distribute
functions and run the README, and the sdist, which has everything. It collects all tests of the unpacked sdist and runs
some. With `--all` it runs the whole `make test` there, in an environment that it makes itself. With the address of the
repository, the README's links and the project's URLs are absolute in all archives, as the page of an index needs them;
the sources stay as they are. CHANGELOG.md must have a part for the version. At the end it says how to upload;
`--upload` does it, with the index's key in `TWINE_PASSWORD`.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.install.wheels import LIMIT, PROGRAMS, of_arrays, of_programs  # noqa: E402

TESTS = ("tests/lang", "tests/theory", "tests/test_package.py", "tests/docs/test_reference.py")
LEFT_OUT = (".venv*", ".git", "dist", "_build", "__pycache__", ".*_cache", ".hypothesis", "*.vo*", "*.glob")


def absolute(text: str, repository: str) -> str:
    """A page whose relative links and pictures have the repository's address.

    >>> absolute("[a](docs/a.md) ![b](docs/b.png) [c](https://c)", "https://example.org/r")
    '[a](https://example.org/r/blob/main/docs/a.md) ![b](https://example.org/r/raw/main/docs/b.png) [c](https://c)'
    """
    address = repository.rstrip("/")
    text = re.sub(r"(!\[[^\]]*\]\()(?!\w+:)", rf"\1{address}/raw/main/", text)
    return re.sub(r"((?<!!)\[[^\]]*\]\()(?!\w+:|#)", rf"\1{address}/blob/main/", text)


def with_urls(project: str, repository: str) -> str:
    """The project's description with its URLs."""
    address = repository.rstrip("/")
    urls = {"Repository": address, "Changelog": f"{address}/blob/main/CHANGELOG.md", "Issues": f"{address}/issues"}
    lines = "\n".join(f'{name} = "{url}"' for name, url in urls.items())
    return project.replace("[project.scripts]", f"[project.urls]\n{lines}\n\n[project.scripts]", 1)


def main() -> None:
    """Build and check."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repository", default="", help="address of the repository, such as https://host/owner/name")
    parser.add_argument("--all", action="store_true", help="run `make test` of the unpacked sdist, 10 minutes")
    parser.add_argument("tests", nargs="*", default=TESTS)
    parser.add_argument("--upload", action="store_true", help="upload it, with the key in TWINE_PASSWORD")
    options = parser.parse_args()
    if wrong := unready(options.upload, options.repository):
        parser.error(wrong)
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(*LEFT_OUT))
        if options.repository:
            for name, change in (("README.md", absolute), ("pyproject.toml", with_urls)):
                path = source / name
                path.write_text(change(path.read_text(), options.repository))
        else:
            print("without REPOSITORY=https://... links of the README stay relative, and the project has no URLs")
        build(source, "--sdist")
        (sdist,) = (ROOT / "dist").glob("*.tar.gz")
        arrays, programs = wheels(source)
        archives = [arrays, programs, sdist]
        run(sys.executable, "-m", "twine", "check", "--strict", *archives)
        for archive in archives:
            print(f"{archive.relative_to(ROOT)}: {archive.stat().st_size:,} bytes", flush=True)
        require_every_module_once(arrays, programs)
        for wheel in (arrays, programs):
            assert wheel.stat().st_size < LIMIT, (
                f"{wheel.name} has {wheel.stat().st_size:,} bytes; {LIMIT:,} is the limit"
            )
        installed(Path(folder) / "arrays", "arrays", f"{arrays}[jax]")
        installed(Path(folder) / "both", "both", f"{arrays}[jax,programs]")
        installed(Path(folder) / "sdist", "core", sdist)
        with tarfile.open(sdist) as tar:
            tar.extractall(folder, filter="data")
        unpacked = Path(folder) / sdist.name.removesuffix(".tar.gz")
        pytest = (sys.executable, "-m", "pytest", "-q")
        run(
            *pytest, "-n", "0", "--collect-only", cwd=unpacked, quiet=True
        )  # a file that a test imports or lists is missing
        if options.all:
            run("make", "test", cwd=unpacked)
        else:
            run(*pytest, "-n", "2", "-m", "not long and not exhaustive", *options.tests, cwd=unpacked)
    upload = [sys.executable, "-m", "twine", "upload", "--non-interactive", *archives]
    if options.upload:
        run(*upload)
    else:
        print("checked, and not uploaded; with the key of the index:")
        print("  TWINE_USERNAME=__token__ TWINE_PASSWORD=KEY make release REPOSITORY=https://... ARGS=--upload")


def unready(upload: bool, repository: str) -> str:
    """Why no release can be made or uploaded now; empty if it can."""
    if f"\n## {version_of(ROOT)}\n" not in (ROOT / "CHANGELOG.md").read_text():
        return f"CHANGELOG.md has no part '## {version_of(ROOT)}'"
    if upload and not os.environ.get("TWINE_PASSWORD"):
        return "an upload needs the key of the index in TWINE_PASSWORD"
    if upload and not repository:
        return "an upload needs REPOSITORY=https://..., for the links of its page"
    return ""


def version_of(source: Path) -> str:
    """The version of a folder, which is written in its package."""
    return re.search(r'^__version__ = "(.+)"', (source / "redistrib" / "__init__.py").read_text(), re.M)[1]


def build(source: Path, kind: str) -> None:
    """Build one archive of a folder into `dist`."""
    run(sys.executable, "-m", "build", kind, "--no-isolation", "--outdir", ROOT / "dist", source, quiet=True)


def wheels(source: Path) -> list[Path]:
    """Build both wheels of a folder, whose description is then that of the second, and return their paths."""
    description = source / "pyproject.toml"
    project = description.read_text()
    version = version_of(source)
    for part in (of_arrays, of_programs):
        description.write_text(part(project, version))
        build(source, "--wheel")
    name = PROGRAMS.replace("-", "_")
    return [ROOT / "dist" / f"{part}-{version}-py3-none-any.whl" for part in ("redistrib", name)]


def require_every_module_once(*wheels: Path) -> None:
    """Check that the wheels have no file in common, and all modules together."""
    names = [name for wheel in wheels for name in zipfile.ZipFile(wheel).namelist()]
    assert len(names) == len({*names}), "a file is in both wheels"
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "redistrib").rglob("*.py")}
    assert not modules - {*names}, f"no wheel has {sorted(modules - {*names})}"


def installed(folder: Path, check: str, archive: object) -> None:
    """Install an archive in an empty environment, where an extra may bring the second wheel, and use it there."""
    run(sys.executable, "-m", "venv", folder)
    python = folder / "bin" / "python"
    pip = (python, "-m", "pip", "--disable-pip-version-check", "--quiet", "install")
    run(*pip, "--find-links", ROOT / "dist", archive)
    script = "check.py" if check == "core" else "check_wheels.py"
    run(python, ROOT / "tests" / "install" / script, check, cwd=folder)
    run(folder / "bin" / "redistrib", "--version", cwd=folder)


def run(*command: object, cwd: Path | None = None, quiet: bool = False) -> None:
    """A command that must succeed."""
    output = subprocess.DEVNULL if quiet else None
    subprocess.run([str(word) for word in command], cwd=cwd, check=True, stdout=output)


if __name__ == "__main__":
    main()
