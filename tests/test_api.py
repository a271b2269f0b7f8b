"""The functions users call: what they take, and what they say when it makes no sense."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import redistrib as rd
from redistrib import errors
from redistrib.api import calibrate
from redistrib.arguments import dtype_name
from redistrib.cost.latency import KINDS
from redistrib.cost.presets import PRESETS
from redistrib.errors import ChoiceError, DtypeError, GlobalShapeError, MeshDevicesError, PlanFormError
from redistrib.plans.samples import Sample
from redistrib.plans.steps import Exchange
from redistrib.sizes import parse_size

SOURCE, TARGET, MESH = "[3{x}12, 2{y}12]", "[2{y}12, 3{x}12]", {"x": 4, "y": 6}


def test_types_meshes_and_their_notation_mean_the_same() -> None:
    plans = {
        rd.synthesize(SOURCE, TARGET, MESH),
        rd.synthesize(rd.DistType.parse(SOURCE), rd.DistType.parse(TARGET), rd.Mesh.of("x=4,y=6")),
        rd.synthesize(SOURCE, TARGET, "x=4,y=6", target_mesh={"x": 4, "y": 6}),
    }
    assert len(plans) == 1


def test_the_default_cost_model_is_the_tpu_preset() -> None:
    assert rd.synthesize(SOURCE, TARGET, MESH).cost_model == "tpu"
    assert rd.synthesize(SOURCE, TARGET, MESH) == rd.synthesize(SOURCE, TARGET, MESH, machine=PRESETS["tpu"])


def test_another_mesh_over_the_same_devices() -> None:
    plan = rd.synthesize("[2{a}16, 8]", "[8{p}16, 2{q}8]", {"a": 8}, target_mesh={"p": 2, "q": 4}, machine="exact")
    assert plan.target_mesh == rd.Mesh.of({"p": 2, "q": 4})
    assert sum(plan.received) == sum(plan.lower_bound)


def test_another_device_order_is_part_of_the_plan() -> None:
    turned = rd.Mesh(rd.Mesh.of({"a": 4}).axes, (3, 2, 1, 0))
    plan = rd.synthesize("[2{a}8]", "[2{a}8]", {"a": 4}, target_mesh=turned, machine="exact")
    assert [step.kind for step in plan.steps] == ["allpermute"]
    assert sorted(map(tuple, plan.steps[0].pairs.tolist())) == [(0, 3), (1, 2), (2, 1), (3, 0)]  # type: ignore[union-attr]
    # a replicated source needs no permute for it: every device holds its tile already
    plan = rd.synthesize("[8]", "[2{a}8]", {"a": 4}, target_mesh=turned, machine="exact")
    assert [step.kind for step in plan.steps] == ["dynslice"]


def test_a_mesh_of_jax_says_which_devices_share_a_host() -> None:
    """As `topology` would; a mesh given by its axes says nothing, and the model assumes its own hosts."""
    jax = pytest.importorskip("jax")

    @dataclass(frozen=True)
    class Device:
        id: int
        process_index: int
        platform: str = "gpu"
        device_kind: str = ""

    def asked(mesh: Any, **keywords: Any) -> rd.Plan:
        return rd.synthesize("[512{y}1024, 64]", "[1024, 64]", mesh, machine="gpu", **keywords)

    devices = np.array([Device(k, k // 2) for k in range(8)]).reshape(2, 2, 2)
    found = asked(jax.sharding.Mesh(devices, ("x", "y", "z")))
    assert found == asked("x=2,y=2,z=2", topology="aabbccdd")
    assert found.cost > asked("x=2,y=2,z=2").cost


def test_dtypes_by_name_or_by_type() -> None:
    import numpy as np

    assert rd.synthesize(SOURCE, TARGET, MESH, dtype=np.float16).itemsize == 2
    assert rd.synthesize(SOURCE, TARGET, MESH, dtype="bfloat16").itemsize == 2
    assert dtype_name(np.dtype("int8")) == "int8"


def _kind(value: object) -> str:
    """An id for a value that may be too long for one."""
    return type(value).__name__


@pytest.mark.parametrize(
    ("value", "size"),
    [
        (7, 7),
        ("7", 7),
        ("2GiB", 2**31),
        ("1.5kB", 1500),
        (" 3 MiB ", 3 << 20),
        ("4 gb", 4 * 10**9),
        (np.int64(5), 5),
        (np.uint8(5), 5),
        ("9007199254740993", 9007199254740993),
        ("8388607.999GiB", 9007199253667250),
        ("9223372036854775807", 2**63 - 1),
        ("0" * 100_000 + "7", 7),
        ("1" + " " * 100_000 + "GiB", 2**30),
        ("1." + "0" * 100_000 + "kB", 1000),
    ],
    ids=_kind,
)
def test_memory_sizes(value: int | str, size: int) -> None:
    assert parse_size(value) == size


@pytest.mark.parametrize(
    "value", ["9" * 400, "9" * 100_000, 2**63, 10**5000, "9223372036854775808", "8589934592GiB"], ids=_kind
)
def test_memory_sizes_have_a_limit(value: int | str) -> None:
    with pytest.raises(errors.ChoiceError) as caught:
        parse_size(value)
    assert caught.value.most == 2**63 - 1
    assert str(caught.value).endswith(
        " is more than the 9223372036854775807 bytes that a memory limit can be; give bytes as an integer, or a text "
        "such as '512MiB' or '2GiB'"
    )


@pytest.mark.parametrize(
    "value", ["1" + " " * 100_000 + "!", "9" * 100_000 + "!", " " * 100_000, "1" * 50_000 + "." * 50_000], ids=_kind
)
def test_long_texts_that_are_no_memory_size_are_refused_soon(value: str) -> None:
    start = time.perf_counter()
    with pytest.raises(errors.ChoiceError) as caught:
        parse_size(value)
    assert time.perf_counter() - start < 5
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    "value", [0, -1, True, "", "2 XB", "GiB", "1e9", 1.5, np.float64(3), np.bool_(True), b"7", None]
)
def test_what_is_no_memory_size(value: Any) -> None:
    with pytest.raises(errors.ChoiceError) as caught:
        parse_size(value)
    assert str(caught.value) == (
        f"{value!r} is no memory size; give bytes as an integer, or a text such as '512MiB' or '2GiB'"
    )


REFUSED: list[tuple[tuple[Any, ...], dict[str, Any], type[Exception], str]] = [
    (
        ("[2{x}8]", "[4{x}8, 1]", {"x": 4}),
        {},
        errors.TypeFormError,
        "dimension 0 of [4{x}8, 1]: 4 tiles of 4 make 16 elements, not 8; write 2{x}8",
    ),
    (
        ("[2{x}8]", "[2{x}8, 1]", {"x": 4}),
        {},
        errors.GlobalShapeError,
        "source and target have different ranks: [8] and [8, 1]; a redistribution moves an array and never changes it, "
        "so reshape before or after",
    ),
    (
        ("[2{x}8]", "[4{x}16]", {"x": 4}),
        {},
        errors.GlobalShapeError,
        "source and target have different global shapes: [8] and [16]; a redistribution moves an array and never "
        "changes it, so reshape before or after",
    ),
    (
        ("[2{x}8]", "[8]", {"x": 4}),
        {"machine": "fast"},
        errors.ChoiceError,
        "no machine 'fast'; give a CostModel, the path of a profile, or one of the names 'paper', 'exact', 'tpu', "
        "'gpu', 'cpu', 'gloo', 'v100', 'a100', 'h100', 'h200', 'b200', 'gb200', 'mi300x', 'v4', 'v5e', 'v5p' and 2 "
        "more",
    ),
    (
        ("[2{x}8]", "[8]", {"x": 4}),
        {"algorithm": "greedy"},
        errors.ChoiceError,
        "no algorithm 'greedy'; give one of 'best', 'paper'",
    ),
    (
        ("[2{x}8]", "[4{x}8]", {"x": 4}),
        {"target_mesh": {"x": 2}, "algorithm": "paper"},
        errors.MeshDevicesError,
        "the paper's algorithm needs the same devices on both sides, but the source mesh {x:4} has the devices "
        "0, 1, 2, 3 and the target mesh {x:2} the devices 0, 1",
    ),
    (
        ("[2{x}8]", "[8]", {"x": 4}),
        {"dtype": "float33"},
        errors.DtypeError,
        "'float33' names no element type; give a NumPy or ml_dtypes name such as 'float32' or 'bfloat16'",
    ),
    (
        ("[64{x}256, 256]", "[256, 64{x}256]", {"x": 4}),
        {"memory_limit": 1000},
        errors.MemoryLimitError,
        "no plan fits in 1,000 bytes per device; the least memory_limit that one fits is 162,532 bytes",
    ),
]


@pytest.mark.parametrize(("arguments", "keywords", "kind", "message"), REFUSED)
def test_what_makes_no_sense_is_refused(
    arguments: tuple[Any, ...], keywords: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind) as caught:
        rd.synthesize(*arguments, **keywords)
    assert isinstance(caught.value, rd.RedistribError)
    assert str(caught.value) == message


def test_a_memory_limit_is_kept_and_the_least_one_is_true() -> None:
    arguments = ("[64{x}256, 256]", "[256, 64{x}256]", {"x": 4})
    with pytest.raises(errors.MemoryLimitError) as caught:
        rd.synthesize(*arguments, memory_limit=1)
    least = caught.value.least
    assert rd.synthesize(*arguments, memory_limit=least).peak_bytes <= least
    with pytest.raises(errors.MemoryLimitError):
        rd.synthesize(*arguments, memory_limit=least - 1)


def test_a_memory_limit_of_a_tree_is_kept() -> None:
    """The least that a move fits in is told, and one with a limit below it is refused, which one without is not."""
    jax = pytest.importorskip("jax")
    mesh = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    rows, columns = (jax.NamedSharding(mesh, jax.P(*spec)) for spec in (("x",), (None, "x")))
    tree = {"a": jax.ShapeDtypeStruct((64, 64), np.float32, sharding=rows)}
    assert "alltoall" in str(rd.reshard_plan(tree, {"a": columns}))
    with pytest.raises(errors.MemoryLimitError) as caught:
        rd.reshard_plan(tree, {"a": columns}, memory_limit="1kB")
    assert rd.reshard_plan(tree, {"a": columns}, memory_limit=caught.value.least)


def test_what_fits_no_memory_limit_is_not_told_to_take_one() -> None:
    """Of an array beyond all memory the least is told, and that it is no limit to give."""
    n, most = 2**62, 2**63 - 1
    arguments = (f"[{n // 4}{{x}}{n}, 8]", f"[{n}, 2{{x}}8]", {"x": 4})
    with pytest.raises(errors.MemoryLimitError) as caught:
        rd.synthesize(*arguments, memory_limit=most)
    least = caught.value.least
    assert least > most == caught.value.limit
    assert str(caught.value) == (
        f"no plan fits in {most:,} bytes per device; every plan needs {least:,} bytes or more, "
        f"and a memory_limit is at most {most:,}; give none"
    )
    with pytest.raises(errors.ChoiceError):
        rd.synthesize(*arguments, memory_limit=least)
    assert rd.synthesize(*arguments).memory_limit is None


def test_a_plan_never_gets_worse_when_the_memory_limit_grows() -> None:
    for source, target, mesh in (
        ("[64{x}256, 256]", "[256, 64{x}256]", {"x": 4}),
        ("[64{x}256, 128{y}256]", "[128{y}256, 64{x}256]", {"x": 4, "y": 2}),
        (SOURCE, TARGET, MESH),
        ("[16{y,x}128, 128]", "[128, 64{y}128]", {"x": 4, "y": 2}),
    ):
        unlimited = rd.synthesize(source, target, mesh)
        costs = []
        for limit in sorted({1000 * 2**k for k in range(12)} | {unlimited.peak_bytes}):
            try:
                costs.append(rd.synthesize(source, target, mesh, memory_limit=limit).cost)
            except errors.MemoryLimitError:
                assert not costs, "a larger limit must not lose what a smaller one had"
        assert costs == sorted(costs, reverse=True)
        assert costs[-1] <= unlimited.cost


def test_no_plan_for_arrays_larger_than_64_bits_can_count() -> None:
    plan = rd.synthesize(
        "[" + ", ".join(["4096"] * 5) + ", 512{x}4096]", "[512{x}4096, " + ", ".join(["4096"] * 5) + "]", {"x": 8},
        machine="exact",
    )  # fmt: skip
    assert sum(plan.received) == sum(plan.lower_bound) == 7 * 2**72 // 8


@pytest.mark.parametrize("model", ["exact", "paper", "tpu"])
@pytest.mark.parametrize("algorithm", ["best", "paper"])
def test_arrays_without_elements_have_plans(model: str, algorithm: str) -> None:
    plan = rd.synthesize("[0{x}0, 4]", "[0, 2{x}4]", "x=2,y=2", machine=model, algorithm=algorithm)
    assert sum(plan.received) == 0
    assert rd.Plan.from_json(plan.to_json()) == plan


def test_an_exchange_in_one_call_costs_one_latency() -> None:
    import dataclasses

    one_call = dataclasses.replace(PRESETS["tpu"], name="mpi", fused_exchange=True)
    plan = rd.synthesize(SOURCE, TARGET, MESH, machine=one_call)
    (step,) = plan.steps
    assert isinstance(step, Exchange)
    assert step.implementation == "ragged"
    assert plan.cost < rd.synthesize(SOURCE, TARGET, MESH, machine="tpu").cost
    assert type(one_call).from_json(one_call.to_json()) == one_call


def test_a_schedule_that_is_searched_is_that_of_these_arguments() -> None:
    jnp = pytest.importorskip("jax.numpy")
    distributed = rd.distribute(lambda x: x + 1, (jnp.zeros(8),), {"d": 1}, schedule="auto")
    assert distributed(jnp.arange(8.0)).tolist() == list(range(1, 9))


def test_a_search_is_told_what_distribute_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jax")
    told: dict[str, Any] = {}

    def search(fn: Any, args: Any, mesh: Any, **options: Any) -> Any:
        told.update(options)
        raise KeyboardInterrupt

    monkeypatch.setattr("redistrib.programs.search.entry.search", search)
    given: dict[str, Any] = {
        "memory_limit": "1MiB",
        "donate": ("x",),
        "exact": True,
        "trip_count": 3,
        "machine": "cpu",
        "rules": {},
    }
    given |= {"in_shardings": "in", "out_shardings": "out"}
    with pytest.raises(KeyboardInterrupt):
        rd.distribute(len, (), {"d": 1}, schedule="auto", **given)
    assert told == given


def test_a_plan_runs_on_a_mesh_of_jax() -> None:
    jax = pytest.importorskip("jax")
    plan = rd.synthesize("[4]", "[4{x}4]", {"x": 1})
    moved = rd.to_jax(plan, jax.make_mesh((1,), ("x",)))(jax.numpy.arange(4.0))
    assert moved.tolist() == [0, 1, 2, 3]


def test_reshard_is_told_the_limit_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jax")
    told: dict[str, Any] = {}
    monkeypatch.setattr(
        "redistrib.resharding.entry._TreeCall.prepared", lambda *_, **options: told.update(options) or bool
    )
    rd.reshard({}, {}, memory_limit="3KiB", donate=True)
    assert (told["memory_limit"], told["donate"]) == (3072, True)
    rd.reshard({}, {})
    assert told["memory_limit"] is None


def test_what_is_measured_with_mpi_becomes_a_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    """There one call may move shares of any size, and those who are not the first rank get nothing."""
    pytest.importorskip("mpi4py")
    samples = [Sample(kind, 2, size, 0, 1e-5, 0.0) for kind in KINDS for size in (1000, 2000)]
    monkeypatch.setattr("redistrib.backends.mpi.calibrate.measure", lambda comm: samples)
    fit = calibrate("mpi", name="mine")
    assert fit is not None
    assert (fit.profile.name, fit.profile.fused_exchange) == ("mine", True)
    monkeypatch.setattr("redistrib.backends.mpi.calibrate.measure", lambda comm: None)
    assert calibrate("mpi") is None


@pytest.mark.parametrize(
    ("there", "devices", "numbers"),
    [((3, 2, 1, 0), 4, (3, 2, 1, 0)), ((2, 3, 4, 5), 6, (2, 3, 4, 5)), ((9, 8, 7, 6), 8, (7, 6, 5, 4))],
)
def test_shardings_over_other_devices_are_numbered(
    there: tuple[int, ...], devices: int, numbers: tuple[int, ...]
) -> None:
    """By their place in the source, or, where the target has others, in the order of their ids."""
    jax = pytest.importorskip("jax")
    every = np.array(jax.devices())
    square = jax.sharding.Mesh(every[[1, 0, 2, 3]].reshape(2, 2), ("x", "y"))
    line = jax.sharding.Mesh(every[list(there)], ("z",))
    ends = [jax.NamedSharding(mesh, jax.P(*spec)) for mesh, spec in ((square, ("x", "y")), (line, ("z",)))]
    plan = rd.synthesize(*ends, shape=(8, 8), machine="exact")
    alike = set(there) == {0, 1, 2, 3}
    turned = tuple({0: 1, 1: 0}.get(number, number) for number in numbers) if alike else numbers
    assert plan.source_mesh.devices == ((0, 1, 2, 3) if alike else (1, 0, 2, 3))
    assert (plan.devices, plan.target_mesh.devices) == (devices, turned)
    values = np.arange(64).reshape(8, 8)
    array = jax.device_put(values, ends[0])
    np.testing.assert_array_equal(np.asarray(rd.reshard(array, ends[1])), values)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"shape": (9,)}, GlobalShapeError, "[2{x}8] is another shape than shape=(9,); leave shape= out"),
        ({"order": "fixd"}, PlanFormError, "the order of partial sums is 'fixd'"),
        ({"accumulate": "float99"}, DtypeError, "float99"),
    ],
)
def test_arguments_of_synthesize_that_would_have_no_effect_are_looked_at(options: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=re.escape(text)):
        rd.synthesize("[2{x}8]", "[8]", "x=4", **options)


def test_a_mesh_beside_shardings_over_another_is_refused() -> None:
    cut, whole = (NamedSharding(jax.make_mesh((4,), ("x",), devices=jax.devices()[:4]), spec) for spec in (P("x"), P()))
    for name in ("mesh", "target_mesh"):
        with pytest.raises(MeshDevicesError, match=f"{name}={{x:2}} is another mesh than {{x:4}}"):
            rd.synthesize(cut, whole, shape=(8,), **{name: "x=2"})  # type: ignore[arg-type]
        assert rd.synthesize(cut, whole, shape=(8,), **{name: "x=4"}).steps  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"order": "fixd"}, PlanFormError),
        ({"accumulate": "float99"}, DtypeError),
        ({"machine": "warp"}, ChoiceError),
    ],
)
def test_arguments_of_reshard_are_looked_at_where_nothing_moves_too(options: Any, error: Any) -> None:
    cut = NamedSharding(jax.make_mesh((4,), ("x",), devices=jax.devices()[:4]), P("x"))
    array = jax.device_put(np.ones(8, np.float32), cut)
    with pytest.raises(error):
        rd.reshard(array, cut, **options)
    with pytest.raises(error):
        rd.reshard_plan(array, cut, **options)
    with pytest.raises(error):
        jax.jit(lambda x: rd.reshard(x, cut, source=cut, **options))(array)
