"""The command: what it prints and how it ends."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from redistrib import errors, run
from redistrib.api import load_profile
from redistrib.cli import main
from redistrib.cost.latency import LatencyBandwidth
from redistrib.cost.presets import PRESETS
from redistrib.plans.plan import Plan

PROBLEM = ["[3{x}12, 2{y}12]", "[2{y}12, 3{x}12]", "--mesh", "x=4,y=6"]


def test_plan_prints_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *PROBLEM, "--machine", "exact"]) == 0
    out = capsys.readouterr().out
    assert "exchange" in out
    assert "received is 1.00 times the bound" in out


def test_plan_prints_json_that_loads(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *PROBLEM, "--json", "--algorithm", "paper", "--machine", "paper"]) == 0
    plan = Plan.from_json(capsys.readouterr().out)
    assert plan.algorithm == "paper"
    assert plan.cost == 18


def test_sums_are_planned_and_explained(capsys: pytest.CaptureFixture[str]) -> None:
    problem = ["[4{x}16, 8] sum{y}", "[16, 1{x,y}8]", "--mesh", "x=4,y=2", "--machine", "exact"]
    asked = ["--dtype", "bfloat16", "--order", "fixed", "--accumulate", "float64"]
    assert main(["plan", *problem, *asked, "--json"]) == 0
    plan = Plan.from_json(capsys.readouterr().out)
    assert (sum(plan.received), plan.order, plan.accumulate) == (224, "fixed", "float64")
    assert main(["explain", *problem]) == 0
    assert "exactly the lower bound from 2 partial sums to whole tiles" in capsys.readouterr().out
    assert main(["plan", *problem, "--dtype", "bool"]) == 2
    assert "elements of bool have no sum" in capsys.readouterr().err


def test_what_summands_are_added_in(capsys: pytest.CaptureFixture[str]) -> None:
    for given, accumulate in (([], None), (["--accumulate", "float64"], "float64")):
        assert main(["plan", "[4] sum{x}", "[4]", "--mesh", "x=2", "--json", *given]) == 0
        assert Plan.from_json(capsys.readouterr().out).accumulate == accumulate


HELP = {
    (): {
        "plan": "print the plan from one type to another",
        "explain": "say where a plan's traffic goes, and draw it",
        "run": "run a plan, check every element, and compare with XLA's own reshard",
        "demo": "reshard a real transformer's weights from training to serving",
        "simulate": "time a program, or a plan, on a machine without running it",
        "view": "write a page with tiles, tables and timelines that a browser shows",
        "diagnose": "list what XLA makes a jitted function communicate, by source line",
        "search": "find a schedule for a JAX function, and explain it",
        "load": "say what loading weights onto a mesh reads and moves",
        "calibrate": "measure a latency-bandwidth profile on the devices at hand",
        "rates": "fit the rates of a device to timed operations, by least squares",
        "completion": "print a script that completes commands and options in a shell",
    },
    ("plan",): {
        "source": "type at the start, such as '[3{x}12, 12]': axis x cuts 12 rows into tiles of 3",
        "target": "type at the end",
        "--mesh MESH": "axes and sizes, such as x=4,y=6",
        "--target-mesh TARGET_MESH": "mesh of the target type, if it is another one",
        "--dtype DTYPE": "element type (default: float32)",
        "--hosts HOSTS": "host of every device, such as a,a,b,b; default: as the machine assumes",
        "--machine MACHINE": "exact, paper, h100, tpu (default) or another, or a profile's JSON file",
        "--no-over-partition": "no slicing along replicated axes in between",
        "--memory-limit MEMORY_LIMIT": "bytes per device for source, target and scratch, such as 2GiB",
        "--accumulate ACCUMULATE": "element type to add partial sums in; default: float32 for bfloat16, float16",
        "--order {any,fixed}": "fixed: add partial sums in their order",
        "--json": "print JSON",
    },
    ("explain",): {
        "-o OUTPUT, --output OUTPUT": "also draw the plan into this PNG, PDF or SVG file",
        "--graph": "draw the weak graph with the plan's path, not the tiles",
    },
    ("run",): {
        "--no-xla": "leave XLA's own reshard out",
        "--backend {jax,mpi}": "default: mpi under mpiexec, else jax on virtual CPUs",
    },
    ("demo",): {"--json": "print the figures as JSON"},
    ("simulate",): {
        "WHAT": "module:function or file.py:function that makes a program, a program's text, a plan's JSON, or two "
        "types",
        "--mesh MESH": "axes and sizes, such as x=4,y=6; passed to a function that takes a mesh",
        "--machine MACHINE": "h100, tpu (default) or another, or a profile's JSON file",
        "--dtype DTYPE": "element type, of two types (default: float32)",
        "--streams {moves}": "give every device a second stream, for moves",
        "--overlap": "run moves beside computations, issued ahead",
        "-o FILE, --output FILE": "a trace for Perfetto (.json), or a picture of the timeline (.png, .pdf, .svg); may "
        "be given twice",
    },
    ("diagnose",): {
        "MODULE:FUNCTION": "a function without parameters that returns (jitted, arg, arg, ...)",
        "--devices DEVICES": "virtual CPU devices to compile for; default: all devices of JAX",
        "--json": "print the figures as JSON",
    },
    ("calibrate",): {
        "--devices DEVICES": "devices to measure on (virtual ones on CPU); default: all",
        "--name NAME": "name recorded in the profile and in plans",
        "-o OUTPUT, --output OUTPUT": "file to write the JSON profile to; default: print it",
    },
}


def test_run_of_what_is_cut_in_place_has_no_ratio(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "[8, 8]", "[4{x}8, 8]", "--mesh", "x=2"]) == 0
    (row,) = [line for line in capsys.readouterr().out.splitlines() if "over the lower bound" in line]
    assert row.split()[-1] == "-"


@pytest.mark.parametrize("command", HELP, ids=str)
def test_commands_say_what_they_do(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    with pytest.raises(SystemExit) as ended:
        main([*command, "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert ended.value.code == 0
    for name, text in HELP[command].items():
        spelled = name if sys.version_info < (3, 13) else re.sub(r"^(-\w) \w+, ", r"\1, ", name)
        assert f" {spelled} {text} " in f"{said} "


def test_over_partitioning_can_be_switched_off(capsys: pytest.CaptureFixture[str]) -> None:
    figure_12 = ["[1{y,x}8, 8, 8, 4]", "[8, 4{y}8, 2{x}8, 4]", "--mesh", "x=4,y=2,z=4"]
    costs = []
    for extra in ([], ["--no-over-partition"]):
        assert main(["plan", *figure_12, "--json", "--algorithm", "paper", "--machine", "paper", *extra]) == 0
        costs.append(json.loads(capsys.readouterr().out)["cost"])
    assert costs == [384, 512]


def test_hosts_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    """Where both members of each pair are on one host, a gather takes less than where none are."""
    seconds = []
    for hosts in ("a,b,a,b,c,d,c,d", "a,a,b,b,c,c,d,d"):
        asked = ["[512{y}1024, 64]", "[1024, 64]", "--mesh", "x=2,y=2,z=2", "--machine", "gpu", "--hosts", hosts]
        assert main(["plan", *asked, "--json"]) == 0
        seconds.append(json.loads(capsys.readouterr().out)["cost"])
    assert seconds[0] < seconds[1]
    assert main(["plan", *asked, "--hosts", "a,b"]) == 2
    assert "the topology says where 2 devices stand" in capsys.readouterr().err


def test_explain_draws_a_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drawing = tmp_path / "plan.png"
    assert main(["explain", *PROBLEM, "--algorithm", "paper", "-o", str(drawing)]) == 0
    out = capsys.readouterr().out
    assert "times the lower bound of 124" in out
    assert drawing.read_bytes().startswith(b"\x89PNG")


def test_bad_input_ends_with_2_and_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "[3{x}12", "[12]", "--mesh", "x=4"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("redistrib: ")
    assert "^" in captured.err


def test_a_profile_is_a_cost_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    profile = tmp_path / "mine.json"
    profile.write_text(PRESETS["gpu"].to_json())
    assert main(["plan", *PROBLEM, "--machine", str(profile), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cost_model"] == "gpu"
    assert main(["plan", *PROBLEM, "--machine", str(tmp_path / "none.json")]) == 2
    assert "cannot read the profile" in capsys.readouterr().err


def test_run_checks_every_element(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("jax")
    assert main(["run", "[4{x}8, 8]", "[8, 4{x}8]", "--mesh", "x=2", "--json", "--machine", "exact"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["compared"] == 64
    assert report["ours"] == {
        "collectives": {"all-to-all": 1},
        "received_bytes": 128,
        "scratch_bytes": report["ours"]["scratch_bytes"],
        "wrong_elements": 0,
    }
    assert report["bound_bytes"] == 128


@pytest.mark.parametrize(
    ("source", "target", "with_xla"),
    [
        ("[2{x}4, 8] sum{y}", "[4, 2{x,y}8]", True),
        ("[2{x}4, 8] max{y}", "[4, 2{x,y}8]", False),
        ("[2{x}4, 8]", "[4, 8] sum{x}", False),
    ],
)
def test_run_checks_summands(source: str, target: str, with_xla: bool, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("jax")
    assert main(["run", source, target, "--mesh", "x=2,y=2", "--json", "--machine", "exact"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["ours"]["wrong_elements"] == 0
    assert report["ours"]["received_bytes"] == report["bound_bytes"]
    assert (report["xla"] is not None) == with_xla
    assert report["compared"] == 32


# ------------------------------------------------------------------------- exit code 2 and one line, or nothing


def failure(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line of a command that fails before it prints anything."""
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("redistrib: ")
    assert captured.err.count("\n") == 1
    return captured.err[len("redistrib: ") : -1]


def test_pictures_that_cannot_be_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    directory = tmp_path / "a.png"
    directory.mkdir()
    assert failure(["explain", *PROBLEM, "-o", str(directory)], capsys) == f"{directory}: Is a directory"
    missing = tmp_path / "none" / "plan.png"
    assert failure(["explain", *PROBLEM, "-o", str(missing)], capsys) == f"{missing}: No such file or directory"
    for name in ("plan.xyz", "plan"):
        message = failure(["explain", *PROBLEM, "-o", name], capsys)
        assert message.startswith(f"cannot draw into '{name}'; end its name in one of ")
        assert "'pdf'" in message
    solid = ["[2{x}4, 4, 4]", "[4, 2{x}4, 4]", "--mesh", "x=2", "-o", str(tmp_path / "a.svg")]
    assert failure(["explain", *solid], capsys) == "a picture shows arrays of rank 1 or 2, this one has rank 3"
    empty = ["[0]", "[0]", "--mesh", "x=2", "-o", str(tmp_path / "a.svg")]
    assert failure(["explain", *empty], capsys) == "a picture shows arrays with elements, [0] has none"


def test_a_module_that_is_missing_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module, source in (
        ("matplotlib", "'redistrib[plot]'"),
        ("jax", "'redistrib[jax]'"),
        ("mpi4py", "'redistrib[mpi]'"),
        ("safetensors", "'redistrib[weights]'"),
        ("other.part", "other"),
    ):

        def missing(options: object, module: str = module) -> int:
            raise ModuleNotFoundError(f"No module named {module!r}", name=module)

        monkeypatch.setattr("redistrib.cli._plan", missing)
        assert failure(["plan", *PROBLEM], capsys) == (
            f"this command needs {module}; install it with pip install {source}"
        )


def command(shell: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A shell command in which `redistrib` is this one."""
    python = f'redistrib() {{ {sys.executable} -m redistrib "$@"; }}; P="[2{{x}}4,4] [4,2{{x}}4] --mesh x=2"\n'
    return subprocess.run(
        ["bash", "-c", python + shell],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **environment},
        check=False,
    )


def test_a_reader_that_has_seen_enough_ends_it_quietly() -> None:
    done = command("redistrib plan $P --json | true; echo ${PIPESTATUS[0]}")
    assert (done.stdout, done.stderr) == ("141\n", "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full disk to write to")
def test_a_full_disk_is_said() -> None:
    done = command("redistrib plan $P > /dev/full")
    assert (done.returncode, done.stderr) == (2, "redistrib: cannot write the output: No space left on device\n")


def test_output_in_ascii() -> None:
    done = command("redistrib explain '[2{é}4, 4]' '[4, 2{é}4]' --mesh é=2", PYTHONIOENCODING="ascii", PYTHONUTF8="1")
    assert (done.returncode, done.stderr) == (0, "")
    assert "[2{\\xe9}4, 4]" in done.stdout
    assert done.stdout.isascii()


@pytest.mark.parametrize("count", [-3, 0, 1])
def test_nothing_is_measured_on_fewer_than_two_devices(count: int, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("jax")
    assert failure(["calibrate", "--devices", str(count)], capsys) == (
        f"the number of devices must be from 2 to 256, got {count}; a link has two ends"
    )


def test_nothing_is_measured_on_more_devices_than_run(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("jax")
    assert failure(["calibrate", "--devices", "5000"], capsys) == (
        "the number of devices must be from 2 to 256, got 5,000; virtual ones are in one process"
    )


def test_an_output_that_cannot_be_written_is_found_before_measuring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measured(*arguments: object, **options: object) -> None:
        raise AssertionError("measured")

    monkeypatch.setattr("redistrib.api.calibrate", measured)
    assert failure(["calibrate", "-o", str(tmp_path)], capsys) == f"{tmp_path}: Is a directory"
    missing = tmp_path / "none" / "a.json"
    assert failure(["calibrate", "-o", str(missing)], capsys) == f"{missing}: No such file or directory"
    if Path("/dev/full").exists():
        assert failure(["calibrate", "-o", "/dev/full"], capsys) == "cannot write the output: No space left on device"


def test_a_failed_measurement_leaves_files_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: object, **options: object) -> None:
        raise errors.CommunicatorError("one rank")

    monkeypatch.setattr("redistrib.api.calibrate", fails)
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    old.write_text("kept")
    assert [main(["calibrate", "-o", str(path)]) for path in (old, new)] == [2, 2]
    assert old.read_text() == "kept"
    assert not new.exists()


def test_a_measured_profile_is_written_or_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "profile.json"

    def fit(*arguments: object, **options: object) -> SimpleNamespace:
        return SimpleNamespace(profile=PRESETS["gpu"])

    monkeypatch.setattr("redistrib.api.calibrate", fit)
    assert main(["calibrate", "-o", str(path)]) == 0
    assert capsys.readouterr().out == f"wrote {path}\n"
    assert load_profile(path) == PRESETS["gpu"]

    def fit_and_lose_the_directory(*arguments: object, **options: object) -> SimpleNamespace:
        path.unlink()
        path.mkdir()
        return fit()

    monkeypatch.setattr("redistrib.api.calibrate", fit_and_lose_the_directory)
    assert main(["calibrate", "-o", str(path)]) == 2
    captured = capsys.readouterr()
    assert LatencyBandwidth.from_json(captured.out) == PRESETS["gpu"]
    assert captured.err.endswith(f"redistrib: {path}: Is a directory\n")


def test_what_is_too_large_to_run_is_said_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("jax")
    monkeypatch.setattr("redistrib.run.memory", lambda: 1 << 40)
    large = ["[500000{x}1000000, 1000000]", "[1000000, 500000{x}1000000]", "--mesh", "x=2", "--backend", "jax"]
    assert failure(["run", *large], capsys) == (
        "the bytes of the array, its values and its tiles before and after must be from 0 to 1,099,511,627,776, got "
        "24,000,000,000,000; take a smaller one"
    )
    assert failure(["run", "[1{x}5000]", "[5000]", "--mesh", "x=5000", "--backend", "jax"], capsys) == (
        "the number of virtual devices must be from 1 to 256, got 5,000; run on a smaller mesh, or through MPI"
    )


@pytest.mark.parametrize("dtype", ["key<fry>", "float128", "float6_e2m3fn", "int4", "f4"])
def test_elements_that_jax_does_not_hold_are_not_run(dtype: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("jax")
    if dtype == "float128" and not hasattr(np, dtype):
        pytest.skip("this platform has no such type")
    small = ["[2{x}4, 4]", "[4, 2{x}4]", "--mesh", "x=2", "--backend", "jax"]
    assert failure(["run", *small, "--dtype", dtype], capsys) == (
        f"{dtype!r} names no element type that JAX and NumPy can hold; give a NumPy or ml_dtypes name such as "
        "'float32' or 'bfloat16'"
    )


@pytest.mark.parametrize("dtype", ["float64", "int64", "uint64", "complex128"])
def test_all_bits_of_wide_elements_run(
    dtype: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under names of axes that XLA does not take, too."""
    jax = pytest.importorskip("jax")
    from redistrib.explain.profiling import compare

    half = {"float64": "float32", "int64": "int32", "uint64": "uint32", "complex128": "complex64"}[dtype]
    values = compare.counting_array((4, 4), dtype)
    assert np.count_nonzero(values.astype(half).astype(dtype) != values) >= 14  # half as many bits would be noticed
    small = ["[2{é}4, 4]", "[4, 2{é}4]", "--mesh", "é=2", "--backend", "jax", "--json"]
    assert main(["run", *small, "--dtype", dtype]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["compared"], report["ours"]["wrong_elements"], report["xla"]["wrong_elements"]) == (16, 0, 0)
    assert report["ours"]["received_bytes"] == 8 * np.dtype(dtype).itemsize
    assert jax.numpy.zeros(1).dtype == "float32"


def test_under_mpi_the_exit_code_is_that_of_the_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    mpi = pytest.importorskip("redistrib.backends.mpi")
    asked: list[tuple[str, bool]] = []
    monkeypatch.setattr(mpi, "run_command", lambda plan, as_json: asked.append((plan, as_json)) or 3)
    assert run.on_mpi("a plan", as_json=True) == 3
    assert asked == [("a plan", True)]
