"""What a jitted function communicates, by line, and what plans would receive."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType

import redistrib as rd
from redistrib.cli import main
from redistrib.errors import ProgramError
from redistrib.explain.profiling.inspect import inspect
from redistrib.programs.run.annotations import annotated
from redistrib.programs.run.source_names import assigned
from redistrib.programs.show.diagnose_command import returned
from redistrib.programs.show.diagnosis import Diagnosis, Finding
from redistrib.programs.show.diagnosis import _reshards as reshards
from tests.messages import exactly
from tests.programs.show import diagnosed

ROOT = Path(__file__).parents[3]
PAGE = Path(diagnosed.__file__).read_text().splitlines()


def line(text: str) -> str:
    return f"diagnosed.py:{next(k for k, each in enumerate(PAGE, 1) if text in each)}"


def test_an_involuntary_gather_comes_first_with_the_plan_for_it() -> None:
    function, *args = diagnosed.hard()
    found = rd.diagnose(function, *args, machine="exact")
    first, second = found.findings
    # Since JAX 0.12 the compiler names the line that makes the array, before that the one that reads it.
    assert first.source.endswith((line('P("y", "x")'), line('P("x", "y")')))
    assert first.involuntary
    assert set(first.collectives) == {"all-gather"}
    (plan,) = first.reshards
    assert plan.shape == (12, 12)
    assert first.planned == sum(plan.received) * 4 == 416 < first.received
    assert first.largest >= 12 * 12 * 4 // 2
    assert second.source.endswith(line("a @ b"))
    assert not second.involuntary
    assert second.reshards == ()
    assert set(second.collectives) == {"all-reduce"}
    assert found.received == inspect(function.lower(*args).compile()).received_bytes
    assert found.scratch is not None


def test_a_gather_to_the_whole_array_that_is_asked_for_is_not_involuntary() -> None:
    mesh = jax.make_mesh((8,), ("d",))
    cut, whole = (jax.sharding.NamedSharding(mesh, jax.P(*axes)) for axes in (("d",), ()))
    x = jax.ShapeDtypeStruct((64, 4), jnp.float32, sharding=cut)
    (found,) = rd.diagnose(jax.jit(lambda x: x, out_shardings=whole), x).findings
    assert found.collectives == {"all-gather": 1}
    assert found.largest == 64 * 4 * 4 and not found.involuntary


def test_the_table_and_the_json_say_the_same() -> None:
    function, *args = diagnosed.hard()
    found = rd.diagnose(function, *args)
    text, figures = str(found), json.loads(json.dumps(found.as_dict()))
    assert "INVOLUNTARY" in text
    assert f"{found.received:,} bytes received in all" in text
    assert figures["received_bytes"] == found.received
    assert [entry["involuntary"] for entry in figures["findings"]] == [True, False]
    assert figures["findings"][0]["reshards"][0]["dtype"] == "float32"


@pytest.mark.parametrize(
    ("reshards", "says"),
    [(0, "0 reshards of one array: 0 bytes by XLA, 0"), (1, "1 reshard of one array: 9 bytes by XLA, 96"),
     (2, "2 reshards of one array: 9 bytes by XLA, 192")],
)  # fmt: skip
def test_the_last_line_adds_up_what_is_known(reshards: int, says: str) -> None:
    plan = rd.synthesize("[2{x}8]", "[8]", "x=4", machine="exact")
    known = Finding("a.py:3", "f", {"all-gather": 2}, 9, 32, (plan,) * reshards, True)
    unknown = Finding("b.py:4", "g", {"all-reduce": 1}, 1000, 16, (), False)
    told = str(Diagnosis("step", 4, (known, unknown), 5000, True)).splitlines()
    assert told[-2:] == ["1,009 bytes received in all; 5,000 bytes of temporaries on a device", f"{says} by our plans"]


def test_the_command_reads_a_module_in_the_folder_it_is_run_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "only_here.py").write_text("def made():\n    return (lambda x: x), 5\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    function, argument = returned("only_here:made", None)
    assert function(argument) == argument == 5


def test_a_compiled_function_is_diagnosed_without_reshards() -> None:
    function, *args = diagnosed.hard()
    found = rd.diagnose(function.lower(*args).compile())
    assert not found.annotated
    assert "does not tell how arrays are sharded" in str(found)
    assert found.received == rd.diagnose(function.lower(*args)).received


def test_a_function_that_communicates_nothing() -> None:
    found = rd.diagnose(lambda x: x + 1, jnp.ones(4))
    assert found.findings == ()
    assert "0 bytes received in all" in str(found)


@pytest.mark.parametrize(
    ("attributes", "says"),
    [
        ("sharding={replicated}", "[8, 6] {a0:2, a1:2, a2:2}"),
        ("sharding={devices=[2,1,4]<=[8] last_tile_dim_replicate}", "[4{a0}8, 6] {a0:2, a1:2, a2:2}"),
        ("sharding={devices=[4,2]<=[2,4]T(1,0)}", "[2{a2,a1}8, 3{a0}6] {a0:2, a1:2, a2:2}"),
        ("sharding={devices=[2,1,4]<=[8] last_tile_dims={manual}}", None),
        ("sharding={devices=[1,8]<=[8]}", None),  # 8 does not divide 6
        ("sharding={mesh['x'=2,'y'=4], [{'y', 'x'}, {}]}", "[1{x,y}8, 6] {x:2, y:4}"),
        ("sharding={mesh['x'=2,'y'=4], [{'y'}, {'x'}]}", "[2{y}8, 3{x}6] {x:2, y:4}"),
        ("sharding={mesh['x'=2,'y'=4], [{}, {'y'}]}", None),  # 4 does not divide 6
        ("sharding={mesh['x'=2,'y'=4], [{'y':(1)2}, {}]}", None),  # a part of an axis
        ("sharding={mesh['x'=8], [{'x'}, {}], unreduced={'x'}}", None),
        ("metadata={}", None),
    ],
)
def test_shardings_of_hlo_are_types_over_prime_axes(attributes: str, says: str | None) -> None:
    found = annotated(attributes, (8, 6), 8)
    assert (found and f"{found[0]} {found[1]}") == says


def test_the_command_reads_a_function_of_a_module(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", "tests.programs.show.diagnosed:hard", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["findings"][0]["involuntary"]


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("tests.programs.show.diagnosed:gone", "'tests.programs.show.diagnosed' has no 'gone'"),
        ("no_such_module:f", "'no_such_module:f' failed: ModuleNotFoundError"),
        ("tests.programs.show.diagnosed", "it names no function; give module:function"),
        (
            "tests.programs.show.diagnosed:hard:twice",
            "hard:twice' failed: ModuleNotFoundError",
        ),
        ("tests.programs.show.diagnosed:nothing", "it must return a jitted function and its arguments"),
    ],
)
def test_the_command_without_a_function(target: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", target]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.long
def test_the_command_makes_virtual_devices() -> None:
    code = [sys.executable, "-m", "redistrib", "diagnose", "tests.programs.show.diagnosed:hard", "--devices", "6"]
    done = subprocess.run(code, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "INVOLUNTARY" in done.stdout
    assert done.stderr == ""  # XLA would warn of the same


def test_what_cannot_be_diagnosed() -> None:
    target: Any = 3
    with pytest.raises(ProgramError, match=exactly("a jitted function is diagnosed, not a int")):
        rd.diagnose(target)
    assert jax.device_count() >= 8


def test_advice_has_the_names_and_axes_of_the_source() -> None:
    """Also where no argument lies on a mesh."""
    before, after = (jax.sharding.NamedSharding(diagnosed.mesh(2, 3), jax.P(*axes)) for axes in ("xy", "yx"))

    def step(array: jax.Array) -> jax.Array:
        hidden = jnp.sort(array, axis=0) @ array
        hidden = jax.lax.with_sharding_constraint(hidden, before)
        return jnp.cos(jax.lax.with_sharding_constraint(hidden, after))

    found = rd.diagnose(jax.jit(step, in_shardings=before, out_shardings=after), jnp.ones((12, 12)))
    (advice,) = found.advice
    assert re.fullmatch(
        r"test_diagnose.py line \d+: cut `hidden` by P\('y', 'x'\) before it with rd.reshard: [\d.]+ (Ki)?B less",
        advice,
    )


def test_the_mesh_is_that_of_the_arguments_though_it_is_small_and_another_is_named_inside() -> None:
    devices = np.array(jax.devices()[:2])
    mesh, inside = (jax.sharding.Mesh(devices, (name,), axis_types=(AxisType.Auto,)) for name in ("x", "other"))

    def step(array: jax.Array) -> jax.Array:
        array = jax.lax.with_sharding_constraint(jnp.sin(array), jax.sharding.NamedSharding(inside, jax.P("other")))
        return jax.lax.with_sharding_constraint(array * 2, jax.sharding.NamedSharding(mesh, jax.P(None, "x"))) * 3

    found = rd.diagnose(jax.jit(step), diagnosed.array(mesh, (8, 8), "x", None))
    ((plan,),) = (finding.reshards for finding in found.findings)
    assert repr(plan).startswith("<Plan [4{x}8, 8] on {x:2} -> [8, 4{x}8] on {x:2}: ")


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("h = f(x)", "h"),
        ("    h = [x,", ""),
        ("h = g = x", ""),
        ("a, b = x", ""),
        ("return x", ""),
        ("h.y = x", ""),
        ("", ""),
    ],
)  # fmt: skip
def test_a_variable_is_known_where_a_line_assigns_to_it_alone(line: str, name: str, tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(f"# first\n{line}\n")
    assert assigned(f"{tmp_path / 'model.py'}:2") == name


def test_the_advice_for_an_array_that_becomes_whole() -> None:
    plan = rd.synthesize("[2{x}8]", "[8]", "x=4", machine="exact")
    assert Finding("a.py:3", "f", {"all-gather": 2}, 200, 32, (plan,), True, ("w",)).advice == (
        "a.py line 3: gather `w` before it with rd.reshard: 104 B less"
    )


UNPARTITIONED = """HloModule m, entry_computation_layout={(f32[8,8]{1,0})->f32[8,8]{1,0}}, num_partitions=4

ENTRY %main (p: f32[8,8]) -> f32[8,8] {
  %p = f32[8,8]{1,0} parameter(0), sharding={devices=[4,1]<=[4]}
  ROOT %r = f32[8,8]{1,0} OPCODE(%p), sharding={devices=[1,4]<=[4]}, metadata={op_name="f" source_file="a.py"}
}
"""
ALIKE = [
    "abs",
    "add",
    "and",
    "ceil",
    "clamp",
    "compare",
    "convert",
    "copy",
    "cosine",
    "custom-call",
    "divide",
    "erf",
    "exponential",
    "floor",
    "log",
    "logistic",
    "maximum",
    "minimum",
    "multiply",
    "negate",
    "not",
    "optimization-barrier",
    "or",
    "power",
    "rsqrt",
    "select",
    "sign",
    "sine",
    "sqrt",
    "subtract",
    "tanh",
    "xor",
]


@pytest.mark.parametrize("opcode", ALIKE)
def test_an_array_keeps_its_place_through_what_is_done_element_by_element(opcode: str) -> None:
    (((plan, name),),) = reshards(UNPARTITIONED.replace("OPCODE", opcode), "exact").values()
    assert [step.kind for step in plan.steps] == ["alltoall"]
    assert name == ""


@pytest.mark.parametrize("opcode", ["sort", "reverse", "dot", "all-to-all"])
def test_what_mixes_elements_is_no_reshard(opcode: str) -> None:
    assert not reshards(UNPARTITIONED.replace("OPCODE", opcode), "exact")


def test_plans_are_for_the_platform_unless_a_model_is_given() -> None:
    function, *args = diagnosed.hard()
    assert rd.diagnose(function, *args).findings[0].reshards[0].cost_model == "cpu"
    assert rd.diagnose(function, *args, machine="tpu").findings[0].reshards[0].cost_model == "tpu"
