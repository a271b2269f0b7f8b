"""Each snippet of the pages pasted alone into a file, and each task done from its page alone."""

from __future__ import annotations

import resource
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.docs import commands
from tests.docs.alone import SNIPPETS, Snippet, readers_environment, run_alone, snippets_of
from tests.docs.blocks import PAGES, ROOT, blocks_of, is_one_session, shell_lines

TASKS = [page for page in PAGES if page.parent.name == "how-to"]
SECONDS = 120  # of a processor, for a task


def test_all_blocks_of_python_are_collected() -> None:
    for page in PAGES:
        text = page.read_text()
        blocks = [block for block in blocks_of(text) if block.language == "python"]
        joined = "\n".join(snippet.text for snippet in SNIPPETS if snippet.page == page)
        assert all(block.text in joined for block in blocks)
        if not is_one_session(text):
            assert [block.line for block in blocks] == [s.line for s in SNIPPETS if s.page == page]
    assert len(SNIPPETS) > 40


def test_what_a_snippet_leaves_out_is_seen(tmp_path: Path) -> None:
    """In one process the second block would find what the first has imported and set."""
    page = tmp_path / "page.md"
    page.write_text("```python\nimport json\n```\n\n```python\njson.dumps(1)\n```\n\n```python\n>>> 1 + 1\n3\n```\n")
    codes = []
    for number, snippet in enumerate(snippets_of(page)):
        folder = tmp_path / str(number)
        folder.mkdir()
        codes.append(run_alone(snippet, folder, readers_environment(page)).returncode)
    assert codes == [0, 1, 1]


def marked(snippet: Snippet) -> Any:
    """The first of a page, but for tasks, which are done below, is for the long tests."""
    is_first = snippet is next(other for other in SNIPPETS if other.page == snippet.page)
    mark = pytest.mark.long if is_first and snippet.page not in TASKS else pytest.mark.exhaustive
    return pytest.param(snippet, marks=mark, id=f"{snippet.page.stem}:{snippet.line}")


@pytest.mark.parametrize("snippet", map(marked, SNIPPETS))
def test_a_snippet_runs_alone(snippet: Snippet, tmp_path: Path) -> None:
    for package in sorted(snippet.packages - {"redistrib"}):
        pytest.importorskip(package)
    done = run_alone(snippet, tmp_path, readers_environment(snippet.page) | {"PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.parametrize("page", TASKS, ids=lambda page: page.stem)
def test_a_task_is_done_from_its_page_alone(page: Path, tmp_path: Path) -> None:
    """In an empty folder, in the order of the page, and in less than two minutes of machine time."""
    environment = readers_environment(page) | {"PYTHONPATH": str(ROOT)}
    before = _processor_seconds()
    python = {snippet.line: snippet for snippet in snippets_of(page)}
    for block in blocks_of(page.read_text()):
        if block.language == "python" and not block.lacks:
            if block.ranks:
                pytest.importorskip("mpi4py")
            (tmp_path / block.file_name).write_text(block.text)
            done = run_alone(python[block.line], tmp_path, environment)
            assert done.returncode == 0, done.stdout + done.stderr
        elif block.language == "sh":
            for command in filter(commands.runs, shell_lines(block.text)):
                shell = subprocess.run(
                    ["bash", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
                )
                assert shell.returncode == 0, shell.stdout + shell.stderr
    assert _processor_seconds() - before < SECONDS


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
