"""The snippets of the pages, as a reader pastes them: each in a file of an empty folder, run by a new interpreter.

A block is a snippet of its own, and so are all sessions of a page that says they continue each other. A snippet that
imports a file which its page has named finds this file beside it, and nothing else.
"""

from __future__ import annotations

import ast
import doctest
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.docs.blocks import PAGES, Block, blocks_of, is_one_session, virtual_devices

# `python -m doctest` has no option for outputs that vary.
_DOCTEST = (
    "import doctest, sys; flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS; "
    "sys.exit(doctest.testfile('snippet.txt', module_relative=False, optionflags=flags).failed)"
)


@dataclass(frozen=True)
class Snippet:
    """One snippet: its page, its line there, its text, and what it takes to run it."""

    page: Path
    line: int
    text: str
    is_session: bool
    ranks: int
    files: tuple[tuple[str, str], ...]

    @property
    def packages(self) -> frozenset[str]:
        """The packages that it imports, without those of Python and the files beside it."""
        beside = {name.removesuffix(".py") for name, _ in self.files}
        texts = [_code(self.text), *(_code(text) for _, text in self.files)]
        return frozenset().union(*map(_imported, texts)) - beside - set(sys.stdlib_module_names)


def snippets_of(page: Path) -> list[Snippet]:
    """The Python snippets of a page, in its order."""
    text = page.read_text()
    blocks = [block for block in blocks_of(text) if block.language == "python"]
    sessions = [block for block in blocks if block.is_session]
    if is_one_session(text) and sessions:
        whole = Block(sessions[0].line, "python", "\n".join(block.text for block in sessions))
        blocks = [whole, *(block for block in blocks if block.is_file)]
    named = {block.file_name: block.text for block in blocks if block.is_file}
    found = []
    for block in blocks:
        needed = [f"{name}.py" for name in sorted(_imported(_code(block.text))) if f"{name}.py" in named]
        files = tuple((name, named[name]) for name in needed)
        found.append(Snippet(page, block.line, block.text, block.is_session, block.ranks, files))
    return found


def run_alone(
    snippet: Snippet, folder: Path, environment: dict[str, str], python: str = sys.executable
) -> subprocess.CompletedProcess[str]:
    """Paste a snippet into a file of the folder and run it there."""
    for name, text in snippet.files:
        (folder / name).write_text(text)
    (folder / ("snippet.txt" if snippet.is_session else "snippet.py")).write_text(snippet.text)
    command = [python, "-c", _DOCTEST] if snippet.is_session else [python, "snippet.py"]
    if snippet.ranks:
        launcher = str(Path(python).with_name("mpiexec"))
        command = [launcher, "-n", str(snippet.ranks), python, "-m", "mpi4py", "snippet.py"]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


def readers_environment(page: Path) -> dict[str, str]:
    """The environment of a reader, whose shell finds the commands, with the devices that the page says to ask for."""
    hidden = ("XLA_FLAGS", "JAX_NUM_CPU_DEVICES", "PYTEST_CURRENT_TEST", "REDISTRIB_VIA")
    inherited = {name: value for name, value in os.environ.items() if name not in hidden}
    devices = virtual_devices(page.read_text())
    asked = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"} if devices else {}
    inherited["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), inherited["PATH"]])
    return inherited | {"COLUMNS": "200", "JAX_PLATFORMS": "cpu"} | asked


def _code(text: str) -> str:
    if ">>>" not in text:
        return text
    return "".join(example.source for example in doctest.DocTestParser().get_examples(text))


def _imported(code: str) -> set[str]:
    nodes = list(ast.walk(ast.parse(code)))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return {name.partition(".")[0] for name in plain | {n.module or "" for n in nodes if isinstance(n, ast.ImportFrom)}}


SNIPPETS = [snippet for page in PAGES for snippet in snippets_of(page)]
