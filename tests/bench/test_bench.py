"""The benches themselves: problems are what they claim, children survive crashes, verdicts can say no."""

from __future__ import annotations

import argparse
import fcntl
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import redistrib as rd
from bench import goals, network, partial, results, sets, summary, survivors, tables, trees
from bench.__main__ import COMMANDS, parser_for, suite_of
from bench.children import ROOT, Child
from bench.everything import SUITES
from bench.problems import (
    ALIGNED_TILE,
    SETS,
    SIZE_RANGE,
    Problem,
    layout_problems,
    paper_problems,
    problem_set,
    swap_problem,
)
from bench.results import Record, Results
from bench.stats import bootstrap_median, geomean, paired_ratio, spearman
from bench.suite import Suite
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.theory.bounds import least_received
from redistrib.theory.placement import Placement, placement_of
from tests.mutants import bench as bench_mutants
from tests.mutants import watched
from tests.mutants.mutations import Mutant, mutants

FIXED = [*paper_problems(), *layout_problems(), swap_problem(4, 6, 48)]


def ends(problem: Problem) -> list[Placement]:
    mesh = Mesh.of(problem.axes)
    return [placement_of(DistType.parse(text), mesh) for text in (problem.source, problem.target)]


@pytest.mark.parametrize("name", SETS)
def test_drawn_problems_are_well_formed_and_bounds_agree_with_the_library(name: str) -> None:
    for problem in problem_set(name, count=8):
        mesh = Mesh.of(problem.axes)
        source, target = DistType.parse(problem.source), DistType.parse(problem.target)
        source.check(mesh)
        target.check(mesh)
        assert problem.lower_bound_bytes() == least_received(*ends(problem)) * problem.itemsize > 0
        assert bool(problem.partial) == SETS[name].partial
        assert problem.tile_bytes == max(source.local_size, target.local_size) * problem.itemsize
        if SETS[name].aligned:
            assert ALIGNED_TILE[0] <= problem.tile_bytes <= ALIGNED_TILE[1] * 2
            for tile in (source.local_shape, target.local_shape):
                assert tile[-1] % 128 == 0
                assert len(tile) == 1 or tile[-2] % 8 == 0
        elif not SETS[name].small_dimensions:
            assert SIZE_RANGE[0] <= problem.nbytes <= SIZE_RANGE[1]


@pytest.mark.parametrize("problem", FIXED, ids=lambda p: p.name)
def test_fixed_problems_are_well_formed(problem: Problem) -> None:
    for text in (problem.source, problem.target):
        assert DistType.parse(text).global_shape == problem.shape
        DistType.parse(text).check(Mesh.of(problem.axes))


def test_partition_entries_are_major_to_minor() -> None:
    problem = Problem("p", (8, 8), (("x", "y"), ()), ((), ("y", "x")), (("x", 2), ("y", 4)))
    assert problem.source == "[1{x,y}8, 8]"
    assert problem.source_entries == (("y", "x"), None)
    assert problem.target_entries == (None, ("x", "y"))


def test_seed_makes_the_problems_and_a_sample_is_a_prefix() -> None:
    assert problem_set("U222", seed=5, count=9)[:4] == problem_set("U222", seed=5, count=4)
    assert problem_set("U222", seed=5, count=4) != problem_set("U222", seed=6, count=4)


def test_paper_sizes() -> None:
    assert [math.floor(p.nbytes / 2**20 + 0.5) for p in paper_problems()] == [162, 113, 127, 64]  # Figure 13


@pytest.mark.parametrize("problem", problem_set("U234", count=6) + problem_set("U222", count=6), ids=lambda p: p.name)
def test_scaled_problems_stay_divisible(problem: Problem) -> None:
    small = problem.scaled(8_000_000)
    assert small.nbytes <= 8_000_000
    assert (small.source_axes, small.target_axes) == (problem.source_axes, problem.target_axes)
    for text in (small.source, small.target):
        DistType.parse(text).check(Mesh.of(small.axes))


def test_a_child_that_dies_is_counted_and_replaced(tmp_path: Path) -> None:
    (tmp_path / "dying_worker.py").write_text(
        textwrap.dedent("""
        import os, signal, time
        from bench.children import serve
        def handle(task, part):
            part({"first": task["n"]})
            if task["do"] == "crash":
                os.kill(os.getpid(), signal.SIGFPE)
            if task["do"] == "hang":
                time.sleep(60)
            if task["do"] == "raise":
                raise ValueError("told")
            part({"second": task["n"]})
        serve(handle)
        """)
    )
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    with Child("dying_worker", {"PYTHONPATH": path}) as child:
        assert child.ask({"do": "work", "n": 1}, 30) == {"status": "ok", "first": 1, "second": 1}
        crash = child.ask({"do": "crash", "n": 2}, 30)
        assert (crash["status"], crash["signal"], crash["first"]) == ("crash", "SIGFPE", 2)
        assert child.ask({"do": "hang", "n": 3}, 0.5) == {"status": "limit", "first": 3}
        told = child.ask({"do": "raise", "n": 4}, 30)
        assert (told["status"], told["error"]) == ("error", "ValueError: told")
        assert child.ask({"do": "work", "n": 5}, 30)["second"] == 5
        assert child.restarts == 2


def test_a_suite_that_was_cut_short_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "DIRECTORY", tmp_path)
    plan = {"received": 1.0}
    monkeypatch.setattr(partial, "counted", lambda p: {**p.record(), "exact": plan, "default": plan, "reachable": 1.0})
    monkeypatch.setattr(Child, "ask", lambda *_: {"status": "ok"})
    parser = argparse.ArgumentParser()
    partial.SUITE.add_arguments(parser)

    def run(arguments: argparse.Namespace) -> int:
        return partial.SUITE.main(arguments, lambda *_: None)

    assert run(parser.parse_args(["--sets", "P8=3,P24=2", "--minutes", "0", "--limit", "7"])) == 0
    for minutes, taken in ((["--minutes", "0"], 2), ([], 5)):
        assert run(parser.parse_args(["--resume", *minutes])) == 0
        file = results.load("partial")
        assert file is not None
        names = [record["problem"]["name"] for record in file["records"]]
        assert names == ["P8/0", "P24/0", "P8/1", "P24/1", "P8/2"][:taken]
        assert file["settings"]["limit_s"] == 7
        assert [part["records"] for part in file["settings"]["earlier"]] == [1] * min(taken - 1, 2)
    assert "unfinished" not in file["settings"]
    assert run(parser.parse_args(["--resume"])) == 2
    assert run(parser.parse_args(["--sets", "U9"])) == 2


def test_options_and_sets_of_a_suite() -> None:
    parser = argparse.ArgumentParser()
    trees.SUITE.add_arguments(parser)
    settings = trees.SUITE.settings(parser.parse_args(["--sets", "billion", "--turns", "2"]))
    assert settings["turns"] == 2 and settings["rounds"] == trees.SUITE.options["rounds"]
    assert settings["sets"] and all("billion" in name for name in settings["sets"])
    assert [case.name for case in trees.SUITE.problems(settings).values()] == list(settings["sets"])
    with pytest.raises(ValueError, match="'nothing' is none of the sets of trees"):
        trees.SUITE.settings(parser.parse_args(["--sets", "nothing"]))
    parser = argparse.ArgumentParser()
    sets.SUITE.add_arguments(parser)
    for words, rounds in (([], 5), (["--full"], 15), (["--full", "--rounds", "0"], 0)):
        assert sets.SUITE.settings(parser.parse_args(words))["rounds"] == rounds


@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in ("sample", "full")])
def test_every_suite_is_run_and_reported(command: str) -> None:
    suite = suite_of(command)
    if isinstance(suite, Suite):
        assert suite.name in tables.TABLES
        assert any(words.split()[0] == command for words, _, _ in SUITES)


@pytest.mark.parametrize("words", [words for words, _, _ in SUITES])
def test_what_everything_runs_parses(words: str) -> None:
    arguments = parser_for(words.split()[0]).parse_args([*words.split(), "--seed", "7", "--minutes", "1", "--full"])
    suite = suite_of(arguments.command)
    if isinstance(suite, Suite):
        settings = suite.settings(arguments)
        assert settings["seed"] == 7 and settings["sets"]


def test_statistics() -> None:
    assert geomean([1.0, 4.0]) == pytest.approx(2.0)
    assert math.isnan(geomean([]))
    assert spearman([1.0, 2.0, 3.0], [1.0, 4.0, 9.0]) == 1.0
    assert math.isnan(spearman([1.0, 1.0], [1.0, 2.0]))
    assert paired_ratio([2.0, 4.0, 6.0], [1.0, 2.0, 3.0]).value == 2.0
    found = bootstrap_median([1.0, 1.1, 0.9, 1.0, 1.05])
    assert 0.9 <= found.low <= found.value <= found.high <= 1.1


def _record(name: str, ours: float, xla: float, received: float) -> Record:
    problem = paper_problems()[0]
    side = {"received": received, "largest": 10, "scratch": 5, "copied": 3, "compile_s": 1.0}
    side["kinds"] = {"all-gather": 1}
    return {
        "problem": {**problem.to_json(), "name": name}, "bound": 1.0, "tile": 10, "status": "ok", "stage": "done",
        "ours": {**side, "plan_s": 0.0}, "xla": dict(side), "times": {"ours": [ours] * 5, "xla": [xla] * 5},
    }  # fmt: skip


def test_reports_of_a_crash_count_against_that_side() -> None:
    record = _record("U222/0", 1.0, 1.0, 1.0)
    del record["xla"], record["times"]
    record |= {"status": "crash", "stage": "xla"}
    assert (summary.fate(record, "ours"), summary.fate(record, "xla")) == ("ok", "crash")
    assert summary.sides([record], "xla").problems == 0


@pytest.mark.parametrize(("ours", "holds"), [(1.0, True), (3.0, False)])
def test_a_goal_holds_or_not(ours: float, holds: bool) -> None:
    records = [_record(f"U222/{k}", ours, 2.0, 1.0) for k in range(3)]
    found = Results({"cluster": {"settings": {"rate": "500mbit"}, "records": records}})
    goal = goals.cluster(found)[0]
    assert goal.holds is holds and goal.measured.endswith(" of 3")
    assert goals.cluster(Results({}))[0].verdict == "not measured"
    (row,) = tables.paired(found, "cluster").rows
    assert row[:3] == ["cluster U222", "3", f"{2 / ours:.2f} [{2 / ours:.2f}, {2 / ours:.2f}]"]


@pytest.fixture
def alone() -> Iterator[None]:
    """No other process of the tests builds a network meanwhile: it would remove what a killed one leaves behind."""
    with (Path(tempfile.gettempdir()) / "redistrib-network.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.mark.usefixtures("alone")
@pytest.mark.skipif(network.why_not() is not None, reason=str(network.why_not()))
@pytest.mark.parametrize("signal_name", ["SIGINT", "SIGTERM", "SIGKILL"])
def test_a_network_leaves_nothing_behind(signal_name: str) -> None:
    program = """if True:
        import time
        from bench.network import Network
        with Network(2) as n:
            print(n.names[0], flush=True)
            time.sleep(60)
    """
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    name = process.stdout.readline().strip()
    tag = name.removesuffix("n0")
    listed = _listed(tag)
    assert len(listed) == 7  # two namespaces, two hosts files, a bridge and two links
    process.send_signal(getattr(signal, signal_name))
    process.wait(30)
    if signal_name == "SIGKILL":
        assert _listed(tag) == listed
        assert set(network.remove_stale()) >= {f"{tag}n0", f"{tag}n1", f"{tag}b"}
    # The kernel removes the links of a deleted namespace a moment after `ip` has returned.
    until = time.monotonic() + 10
    while _listed(tag) and time.monotonic() < until:
        time.sleep(0.05)
    assert _listed(tag) == []


def _listed(tag: str) -> list[str]:
    """What there is by that tag: namespaces, interfaces, and folders with a hosts file."""
    namespaces = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    folders = [p.name for p in network.HOSTS_DIRECTORY.iterdir()] if network.HOSTS_DIRECTORY.is_dir() else []
    found = [f"namespace {name}" for name in re.findall(rf"^({tag}n\d)\b", namespaces, re.MULTILINE)]
    found += [f"link {name}" for name in re.findall(rf"^\d+: ({tag}\w+)[@:]", links, re.MULTILINE)]
    return sorted(found + [f"folder {name}" for name in folders if name.startswith(tag)])


def test_the_same_plan_is_priced_for_the_cluster_and_by_bytes() -> None:
    from bench.library import plan_of

    plan, seconds = plan_of(paper_problems()[1], {"cost_model": "cluster"})
    assert isinstance(plan, rd.Plan)
    assert plan.unit == "seconds"
    assert seconds > 0


def test_the_report_shows_device_sets() -> None:
    def record(case: str, ours: float, **others: float) -> Record:
        times = {summary.OURS: ours, sets.DIRECT: 2.0, sets.HOST: 1.0, **others}
        plan = {"steps": ["exchange"], "crossing": 8, "crossing_bound": 4}
        return {
            "case": case,
            "status": "ok",
            "plan": plan,
            "times": {name: [taken] * 3 for name, taken in times.items()},
        }

    slow = {sets.SOCKETS: 0.5}
    records = [record(case, 1.0) | {sets.SOCKETS: record(case, 1.0, **slow)} for case in sets.SAME_TILES]
    records = [record(case, 1.0) for case in sets.CASES if case not in sets.SAME_TILES] + records
    found = Results({"sets": {"settings": {"megabytes": 16, "rate": "500mbit"}, "records": records}})
    by_name = {goal.name.removeprefix("other devices, "): goal for goal in goals.sets(found)}
    for devices in (2, 4):
        goal = by_name[f"rows to replicated, {devices} a host: direct pull/ours >= 2"]
        assert goal[1:] == (f"2.00, bytes allow {devices}", True)
    assert by_name["same tiles: ours/JAX's sockets <= 1.5"][1:] == ("2.00", False)
    host = goals.sets(found)[-1]
    assert host[1:] == (f"least 1.00 (rows to columns), {len(records)} cases", True)
    assert ("rows to columns", "1000", "2.00/1.00/-") in [tuple(row) for row in tables.sets(found, "sets").rows]
    few = [{**records[0], "wrong": {}}, {"case": "x", "status": "limit"}]
    found = Results({"sets": {"settings": {}, "records": few}})
    assert goals.sets(found)[-1].verdict == "not measured"
    assert [row[:2] for row in tables.sets(found, "sets").rows] == [
        ["rows to columns (wrong)", "1000"],
        ["x", "limit"],
    ]


@pytest.mark.parametrize(("killers", "word"), [(["a", "b", ""], "**no**"), (["a", "time", "b"], "not measured")])
def test_the_report_says_which_faults_outlive_the_tests(killers: list[str], word: str) -> None:
    known = {"path": "redistrib/theory/placement.py", "killed_by": "", "seconds": 1.0, "line": 7}
    known["before"] = "factor = [fine // count for fine, count in zip(self.grid, grid, strict=True)]"
    known["after"] = "factor = [fine / count for fine, count in zip(self.grid, grid, strict=True)]"
    found = [{"path": "redistrib/a.py", "line": k, "before": "1", "after": "2", "killed_by": killer, "seconds": 1.0}
             for k, killer in enumerate(killers)]  # fmt: skip
    records = [{"room": "lang", **record} for record in [*found, known]]
    killed, rate = ("2", "67%") if word == "**no**" else ("3", "100%")
    rows = tables.mutants(Results({"mutants": {"records": records}}), "mutants").rows
    assert rows == ([["lang", "2 of 3", "a.py:2"]] if word == "**no**" else [])
    (goal,) = goals.mutants(Results({"mutants": {"records": records}}))
    assert (goal.measured, goal.verdict) == (f"{killed} of 3 in 1 folders, least lang, {rate}", word)
    (goal,) = goals.mutants(Results({"mutants": {"records": records * 3}}))
    assert goal.verdict == ("yes" if word == "not measured" else word)
    assert "The coarser grid divides the finer" in survivors.listed(records)


@pytest.mark.long
def test_runs_are_stopped_by_the_processors_clock(tmp_path: Path) -> None:
    """One that sleeps longer than one that works; a test that fails says so."""
    (tmp_path / "test_sleeps.py").write_text("import time\ndef test():\n    time.sleep(3)\n")
    (tmp_path / "test_works.py").write_text("def test():\n    while True: pass\n")
    (tmp_path / "test_fails.py").write_text("def test():\n    assert False, 'as it must'\n")
    ends = {
        name: watched.run(["-q", "-p", "no:cacheprovider", f"test_{name}.py"], tmp_path, {}, 2.0, 4 << 30)
        for name in ("sleeps", "works", "fails")
    }
    assert {name: ended.code for name, ended in ends.items()} == {"sleeps": 0, "works": None, "fails": 1}
    assert ends["works"].spent >= 2 and "as it must" in ends["fails"].output


def test_another_mutant_is_tested_for_a_survivor_whose_code_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = [Mutant("module.py", 1, f"line {k}", "changed", "") for k in range(3)]
    monkeypatch.setattr(bench_mutants, "same", lambda records: [])
    monkeypatch.setattr(bench_mutants, "sample", lambda room, count, seed: drawn[:count])
    old = [
        {"path": "module.py", "before": before, "after": "changed", "killed_by": killed_by}
        for before, killed_by in (("line 0", "test"), ("no more", ""))
    ]
    assert bench_mutants.survived("lang", old, 1) == ([drawn[1]], old[:1])


def test_missing_mutants_are_tested_beside_the_saved_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = [Mutant("module.py", 1, f"line {k}", "changed", "") for k in range(6)]
    saved = [vars(drawn[1]) | {"room": "lang"}, {"room": "lang", "path": "other.py", "before": "a", "after": "b"}]
    tested: list[Mutant] = []
    kept: list[object] = []
    monkeypatch.setattr(bench_mutants, "sample", lambda room, count, seed: drawn[:count])
    monkeypatch.setattr(bench_mutants, "Copy", lambda folder: None)
    monkeypatch.setattr(bench_mutants, "run", lambda room, chosen, copies: tested.extend(chosen) or [vars(chosen[-1])])
    monkeypatch.setattr(bench_mutants, "save", lambda room, new, old, seed, count: kept.extend(old))
    monkeypatch.setattr(results, "load", lambda name: {"records": saved, "settings": {}})
    monkeypatch.setattr(survivors, "listed", str)
    parser = argparse.ArgumentParser()
    bench_mutants.add_arguments(parser)
    assert bench_mutants.main(parser.parse_args(["--room", "lang", "--count", "4", "--missing"])) == 0
    assert tested == [drawn[0], drawn[2]]
    assert kept == saved


def test_mutants_are_modules_with_one_fault_each_and_the_same_for_one_seed(tmp_path: Path) -> None:
    source = '''
def total(pairs: "list[int]") -> int:
    """The sum."""
    assert pairs
    return sum(a * b for a, b in zip(pairs, pairs, strict=True))
'''
    (tmp_path / "module.py").write_text(source)
    found = list(mutants(tmp_path, ["module.py"], 100, 1))
    assert {mutant.after for mutant in found} >= {
        "return sum(None)",
        "return sum(a / b for a, b in zip(pairs, pairs, strict=True))",
        "return sum(a * b for a, b in zip(pairs, None, strict=True))",
    }
    assert {mutant.line for mutant in found} == {5}
    assert all("strict=True" in mutant.code or "sum(None)" in mutant.code for mutant in found)
    assert found[:3] == list(mutants(tmp_path, ["module.py"], 3, 1))
    assert (tmp_path / "module.py").read_text() == source


def test_rooms_of_mutants_and_their_tests_are_there() -> None:
    for folder, tests in bench_mutants.ROOMS.values():
        assert (bench_mutants.ROOT / "redistrib" / folder).is_dir(), folder
        assert [name for name in tests if not (bench_mutants.ROOT / name.split("::")[0]).exists()] == []


def test_kept_mutants_have_the_rooms_and_paths_of_today() -> None:
    """So that another run of a room finds them, and that a reason is that of a line which is there."""
    for record in results.load("mutants")["records"]:  # type: ignore[index]
        assert record["path"] in bench_mutants.modules(record["room"]), record
    for entry in survivors.equivalent():
        lines = [line.strip() for line in (bench_mutants.ROOT / entry["path"]).read_text().splitlines()]
        assert entry["before"] in lines, entry
