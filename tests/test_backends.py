"""Every backend has the same doors, those of the README, and says beforehand what it cannot carry out."""

from __future__ import annotations

import inspect
import re
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import jax
import pytest
from mpi4py import MPI

import redistrib as rd
from redistrib.backends import jax as on_jax
from redistrib.backends import mpi as on_mpi
from redistrib.errors import RedistribError
from redistrib.explain.profiling.compare import mesh_for
from redistrib.plans.samples import Sample
from redistrib.programs.ir.parse import parse
from redistrib.programs.ir.text import to_text
from redistrib.programs.run.jax import placed_function as programs_on_jax
from redistrib.programs.run.mpi import doors as programs_on_mpi

PACKAGE = Path(rd.__file__).parent
README = (PACKAGE / "backends" / "README.md").read_text()
BACKENDS = sorted(path.parent.name for path in (PACKAGE / "backends").glob("*/doors.py"))


def test_the_doors_are_those_of_the_readme() -> None:
    listed = dict(re.findall(r"^\| `(\w+)\(([^)]*)\)` \|", README, re.MULTILINE))
    assert list(listed) == ["run", "can", "measure"]
    assert BACKENDS == ["jax", "mpi", "torch"]
    for name in ("jax", "mpi"):  # tests/torch looks at PyTorch's, in an environment of its own
        package = import_module(f"redistrib.backends.{name}")
        doors = import_module(f"redistrib.backends.{name}.doors")
        for door, parameters in listed.items():
            assert door in package.__all__
            assert getattr(package, door) is getattr(doors, door)
            taken = inspect.signature(getattr(package, door)).parameters.values()
            bare = [str(each.replace(annotation=each.empty, default=each.empty)) for each in taken]
            assert ", ".join(bare) == parameters
        functions = {key: value for key, value in vars(doors).items() if inspect.isfunction(value)}
        own = {key for key, value in functions.items() if value.__module__ == doors.__name__ and key[0] != "_"}
        assert own == set(listed)


def test_modules_of_the_readme_exist() -> None:
    for module in re.findall(r"`((?:backends|plans)\.\w+)`", README):
        import_module(f"redistrib.{module}")
    for backend, column in (("jax", 3), ("mpi", 4), ("torch", 5)):
        for line in README.splitlines():
            cells = line.split("|")
            if len(cells) == 7:
                for file in re.findall(r"`([\w/]+\.py)`", cells[column]):
                    assert (PACKAGE / "backends" / backend / file).is_file(), file


def refused(call: Any) -> str | None:
    try:
        call()
    except RedistribError as error:
        return " ".join(str(error).split())
    return None


PLAN = rd.synthesize("[4{x}8, 8]", "[8, 4{x}8]", "x=2")
LINE, SQUARE = "x=4", "x=2,y=2"
PLANS = {
    "plain": PLAN,
    "two meshes": rd.synthesize("[2{x}8]", "[4{y}8]", LINE, target_mesh=SQUARE),
    "uneven": rd.synthesize("[4~{x}7]", "[7]", "x=2"),
    "sums of 64 bits": rd.synthesize("[8] sum{x}", "[8]", "x=2", dtype="float64"),
    "random keys": replace(PLAN, dtype="key<fry>"),
}
REFUSED = {"jax": {"two meshes", "uneven", "sums of 64 bits"}, "mpi": {"random keys"}}


@pytest.mark.parametrize("kind", PLANS)
def test_what_can_be_carried_out(kind: str) -> None:
    plan = PLANS[kind]
    for name, door in (("jax", on_jax.can), ("mpi", on_mpi.can)):
        reason = door(plan)
        assert (reason is not None) == (kind in REFUSED[name]), (name, reason)
        assert reason is None or (reason and "\n" not in reason)


@pytest.mark.parametrize("kind", PLANS)
def test_run_refuses_with_the_same_words(kind: str) -> None:
    plan = PLANS[kind]
    mesh = mesh_for(plan, jax.devices()[: plan.source_mesh.size])

    def carried_out() -> None:
        move = on_jax.run(plan, mesh, stacked=bool(plan.source.partial))
        if plan.source.partial:  # in which type sums are made is asked when the function is traced
            jax.eval_shape(move._move.run, jax.ShapeDtypeStruct(move._ends[0].global_shape, plan.dtype))

    if kind != "random keys":
        assert refused(carried_out) == on_jax.can(plan)


def test_programs() -> None:
    program = rd.partition(rd.nest("ab->ab", {"a": 4, "b": 4}, name="copy"), {"copy": {"a": 1}})
    bare = parse(to_text(program))
    assert programs_on_jax.can(program) is programs_on_mpi.can(program) is None
    mesh = jax.make_mesh((1,), ("x",))
    reason = "operation 'copy': nest 'copy' has no body; give one to run it"
    assert programs_on_jax.can(bare) == refused(lambda: rd.to_jax(bare, mesh)) == reason
    assert programs_on_mpi.can(bare) == refused(lambda: rd.to_mpi(bare, MPI.COMM_SELF)) == reason


def test_measured_by_jax() -> None:
    samples = on_jax.measure(jax.devices()[:2], tiles=(4096,), progress=False)
    assert {sample.kind for sample in samples} == {"allgather", "alltoall", "allpermute"}
    assert {sample.members for sample in samples} == {2}  # of those given, and not of all
    assert all(isinstance(sample, Sample) for sample in samples)
