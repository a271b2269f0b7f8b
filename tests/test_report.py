"""Tables fit the terminal, break no word, and end after some lines, unless all of them are asked for."""

from __future__ import annotations

import io
import os
import re
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import NamedSharding, PartitionSpec

import redistrib as rd
from redistrib.cli import main
from redistrib.programs.time.entry import simulate
from redistrib.report import LINES, Printed, lines_shown, rendered, status_shown
from tests.kept_outputs import programs

WORDS = st.lists(st.text("abc/_.,1", min_size=1, max_size=24), max_size=6).map(" ".join)
LONG = programs()["long"]


def wide(patch: pytest.MonkeyPatch, columns: int) -> None:
    patch.setattr("os.get_terminal_size", lambda fd: os.terminal_size((columns, 50)))


@settings(max_examples=150)
@given(st.integers(1, 6).flatmap(lambda n: st.lists(st.tuples(*[WORDS] * n), min_size=2, max_size=5)), st.data())
def test_tables_fit_the_terminal_and_break_no_word(rows: list[tuple[str, ...]], data: Any) -> None:
    width = data.draw(st.integers(40, 150))
    with pytest.MonkeyPatch.context() as patch:
        wide(patch, width)
        text = rendered("", rows[0], rows[1:])
    words = [word for line in text.splitlines() for word in line.split() if not re.fullmatch("-+", word)]
    assert sorted(words) == sorted(word for row in rows for cell in row for word in cell.split())
    assert all(len(line) <= width for line in text.splitlines())


def values() -> dict[str, Any]:
    """A value of each kind that prints as a table."""
    mesh = jax.make_mesh((2,), ("x",), devices=jax.devices()[:2])
    tree = {f"params/decoder/layers/{k}/attention/kernel": jnp.ones((8, 8 * (k + 1))) for k in range(3)}
    placed = rd.reshard(tree, NamedSharding(mesh, PartitionSpec("x")))
    multiply = (lambda x, w: x @ w, (jnp.ones((8, 8)), jnp.ones((8, 8))))
    gathered = jax.jit(lambda x: jax.lax.with_sharding_constraint(x, NamedSharding(mesh, PartitionSpec())))
    return {
        "plan": rd.synthesize("[4{x}16, 8] sum{y}", "[16, 1{x,y}8]", {"x": 4, "y": 2}, machine="exact"),
        "tree plan": rd.reshard_plan(placed, NamedSharding(mesh, PartitionSpec(None, "x"))),
        "program": LONG,
        "simulation": simulate(LONG, "gpu"),
        "search": rd.search(*multiply, devices=4),
        "schedule": rd.search(*multiply, devices=4).schedule,
        "distributed": rd.distribute(*multiply, mesh, schedule=[]),
        "diagnosis": rd.diagnose(gathered, next(iter(placed.values()))),
    }


@pytest.mark.parametrize("columns", [60, 80, 140])
def test_everything_printed_fits_the_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in values().items():
        assert isinstance(value, Printed), name
        elsewhere = re.findall(r"[\w,./{}\[\]]+", value.table())
        with monkeypatch.context() as patch:
            wide(patch, columns)
            assert max(map(len, str(value).splitlines())) <= columns, name
            assert sorted(re.findall(r"[\w,./{}\[\]]+", value.table())) == sorted(elsewhere), name


def test_a_long_table_ends_with_the_count_of_the_rest_and_table_has_it() -> None:
    rows = [[str(k)] for k in range(160)]
    assert rendered("", ["k"], rows, foot=["sum"]).splitlines()[1 + LINES :] == [
        " 39", " ... 120 more, `.table()`", " " + "-" * 3, " sum",
    ]  # fmt: skip
    assert len(str(LONG).splitlines()) < 60 < 140 < len(LONG.table().splitlines())
    assert "... 240 more, `.table()`" in str(simulate(LONG, "gpu"))
    with lines_shown(5, "so"):
        assert rendered("", ["k"], rows).splitlines()[-1] == " ... 155 more, so"
    assert len(rendered("", ["k"], rows[:LINES]).splitlines()) == LINES + 2


def test_the_command_line_writes_all_lines_into_files(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "made.py").write_text("from tests.test_report import LONG as long\n")
    command = ["simulate", f"{tmp_path}/made.py:long"]
    assert main(command) == 0
    assert "more" not in capsys.readouterr().out
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main(command) == 0
    assert "more, `| less` shows all" in capsys.readouterr().out


def test_progress_shows_the_time_that_passed_and_the_time_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit, allowed in ((90.0, "of 0:01:30 "), (None, "")):
        shown = io.StringIO()
        shown.isatty = lambda: True  # type: ignore[method-assign]
        monkeypatch.setattr("sys.stderr", shown)
        with status_shown("searching", True, limit) as report:
            report("axis [x], round 2")
        text = re.sub("\x1b\\[[0-9;?]*[A-Za-z]", "", shown.getvalue())
        assert f"0:00:00 {allowed}searching axis [x], round 2" in text
