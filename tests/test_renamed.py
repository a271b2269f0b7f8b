"""One word for the machine of a call, and the words of the last release with a hint."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

import redistrib as rd
from redistrib.backends import mpi
from redistrib.cli import main
from redistrib.cost.presets import PRESETS
from redistrib.programs.run.mpi.program import program_to_mpi
from redistrib.programs.stages.spreading import spread
from redistrib.programs.time.constants import MACHINES

CALLS = {name: getattr(rd, name) for name in rd.__all__ if inspect.isfunction(getattr(rd, name))} | {"spread": spread}
ENDS: tuple[Any, ...] = ("[2048{x}4096, 4096]", "[4096, 2048{x}4096]", "x=2")


def test_no_public_call_has_another_word() -> None:
    words = {name: set(inspect.signature(call).parameters) for name, call in CALLS.items()}
    assert {name for name, found in words.items() if "machine" in found} == {
        "diagnose", "distribute", "load", "load_plan", "partition", "pipeline", "reshard", "reshard_plan", "search",
        "simulate", "spread", "synthesize",
    }  # fmt: skip
    assert not {name for name, found in words.items() if found & {"profile", "cost_model"}}
    assert all("machine" in inspect.signature(call).parameters for call in (mpi.to_mpi, program_to_mpi))


@pytest.mark.parametrize("given", ["name", "machine", "cost model", "text", "path", "object"])
def test_every_call_takes_a_machine_in_every_form(given: str, tmp_path: Path) -> None:
    links = MACHINES["h100"].links
    assert isinstance(links, rd.LatencyBandwidth)
    path = tmp_path / "h100.json"
    path.write_text(links.to_json())
    form = {
        "name": "h100", "machine": MACHINES["h100"], "cost model": links, "text": str(path), "path": path,
        "object": json.loads(links.to_json()),
    }[given]  # fmt: skip
    plan = rd.synthesize(*ENDS, machine=form)
    assert (plan.cost_model, plan) == ("h100", rd.synthesize(*ENDS, machine=links))
    assert rd.simulate(plan, machine=form).seconds == plan.cost
    mesh = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Auto,), devices=jax.devices()[:2])
    x = jax.device_put(np.arange(64.0).reshape(8, 8), NamedSharding(mesh, PartitionSpec("x")))
    target = NamedSharding(mesh, PartitionSpec(None, "x"))
    np.testing.assert_array_equal(rd.reshard(x, target, machine=form), x)
    (batch,) = rd.reshard_plan(x, target, machine=form).batches
    assert {entry.plan.cost_model for entry in batch.program.entries} == {"h100"}
    step = rd.distribute(lambda a, b: a @ b, (x, x), {"d": 2}, schedule=rd.along("d", {"a": 0, "b": 0}), machine=form)
    assert {move.plan.cost_model for move in step.program.moves if move.plan is not None} == {"h100"}
    found = rd.search(lambda a, b: a @ b, (x, x), {"d": 2}, machine=form, progress=False)
    assert found[0].seconds > 0


@pytest.mark.parametrize(
    ("call", "args", "earlier"),
    [
        (rd.synthesize, ENDS, "cost_model"),
        (rd.simulate, (rd.synthesize(*ENDS),), "profile"),
    ],
)
def test_an_earlier_word_is_taken_with_a_hint(call: Callable[..., Any], args: Any, earlier: str) -> None:
    told = f"^{call.__name__}\\(\\) takes {earlier}= as machine= now; write machine=$"
    with pytest.warns(DeprecationWarning, match=told) as caught:
        found = call(*args, **{earlier: "gpu"})
    assert caught[0].filename == __file__
    assert str(found) == str(call(*args, machine="gpu"))
    with pytest.raises(TypeError, match=f"got machine= and {earlier}=, its earlier name"):
        call(*args, machine="gpu", **{earlier: "gpu"})


@pytest.mark.parametrize(
    ("command", "earlier"),
    [(["plan", *ENDS[:2], "--mesh", "x=2"], "--cost-model"), (["simulate", *ENDS[:2], "--mesh", "x=2"], "--profile")],
)
def test_an_earlier_option_is_taken_with_a_hint(
    command: list[str], earlier: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--machine", "gpu"]) == 0
    expected = capsys.readouterr().out
    assert main([*command, earlier, "gpu"]) == 0
    told = capsys.readouterr()
    assert (told.out, told.err) == (expected, f"redistrib: {earlier} is now --machine\n")


def test_an_earlier_attribute_is_read_with_a_hint() -> None:
    mesh = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Auto,), devices=jax.devices()[:2])
    plan = rd.reshard_plan({"a": np.ones((0, 2)), "b": np.ones((8, 2))}, NamedSharding(mesh, PartitionSpec()))
    for earlier, name in {"put": "by_device_put", "made": "empty"}.items():
        with pytest.warns(
            DeprecationWarning, match=f"^TreePlan.{earlier} is named {name} now; write {name}$"
        ) as caught:
            assert getattr(plan, earlier) is getattr(plan, name)
        assert caught[0].filename == __file__


def test_presets_are_machines() -> None:
    assert {name: rd.synthesize(*ENDS, machine=name).cost_model for name in PRESETS} == {name: name for name in PRESETS}
