"""Run Python blocks of a page in one process: `python run_page.py PAGE RANKS`, in the folder where blocks are saved.

Every file runs in a fresh namespace, as if it were started alone. Prints JSON: by the line of a block, what it printed
and how it failed, or null. Of MPI ranks rank 0 prints that; a block that fails on any of them ends all, as for users.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import json
import runpy
import sys
import traceback
from pathlib import Path

from tests.docs.blocks import Block, blocks_of, is_one_session

FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def run_file(block: Block) -> str | None:
    try:
        runpy.run_path(block.file_name, run_name="__main__")
    except BaseException:
        if block.ranks:
            raise
        return traceback.format_exc()
    return None


def run_session(block: Block, namespace: dict[str, object]) -> str | None:
    test = doctest.DocTestParser().get_doctest(block.text, namespace, "page", "page", block.line)
    report = io.StringIO()
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    results = runner.run(test, out=report.write, clear_globs=False)
    namespace.update(test.globs)
    return report.getvalue() if results.failed else None


def main(page: str, ranks: int) -> dict[int, tuple[str, str | None]]:
    results = {}
    namespace: dict[str, object] = {}
    for block in blocks_of(page):
        if block.language != "python" or block.ranks != ranks or block.lacks:
            continue
        if not is_one_session(page):
            namespace = {}
        with contextlib.redirect_stdout(io.StringIO()) as out:
            failure = run_session(block, namespace) if block.is_session else run_file(block)
        results[block.line] = (out.getvalue(), failure)
    return results


def rank_of_this_process() -> int:
    from mpi4py import MPI

    return int(MPI.COMM_WORLD.rank)


if __name__ == "__main__":
    sys.path.insert(0, "")  # blocks import what other blocks are saved to
    ranks = int(sys.argv[2])
    results = main(Path(sys.argv[1]).read_text(), ranks)
    if not ranks or rank_of_this_process() == 0:
        print(json.dumps(results))
