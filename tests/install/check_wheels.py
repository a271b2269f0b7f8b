"""What the wheels of a release do in an environment without a checkout: `python check_wheels.py arrays|both`.

With the first wheel alone arrays move, and what needs the second says how to install it. With both, functions are
distributed, searched and simulated, and the README's blocks run.
"""

import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

os.environ |= {"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import redistrib as rd

ADVICE = "needs the programs part, which is not installed; install it with pip install 'redistrib[programs]'"
ARGUMENTS = jnp.ones((8, 4)), jnp.ones((4, 8))
PLAN = rd.synthesize("[2{x}4, 4]", "[4, 2{x}4]", "x=2")
# Each takes no argument, and needs the second wheel.
CALLS = {
    "rd.distribute": lambda: rd.distribute(_product, ARGUMENTS, "x=2,y=2", schedule=[rd.along("x", {"x": 0})])(
        *ARGUMENTS
    ),
    "rd.search": lambda: str(rd.search(_product, ARGUMENTS, "x=2,y=2")),
    "rd.simulate": lambda: rd.simulate(PLAN),
    "rd.pipeline": lambda: rd.pipeline(_product, ARGUMENTS, {"x": 0}, rd.Layout(microbatches=2))(*ARGUMENTS),
    "rd.diagnose": lambda: rd.diagnose(jax.jit(_product), *ARGUMENTS),
    "rd.view": lambda: rd.view(PLAN).html,
    "rd.ir": lambda: rd.ir.Builder,
}
COMMANDS = ("simulate", "view")


def _product(x: jax.Array, w: jax.Array) -> jax.Array:
    return jnp.tanh(x @ w)


def arrays_move() -> None:
    """One array and a tree, by every way; a plan is made, checked, printed and run."""
    line = jax.make_mesh((8,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    values = np.arange(64.0, dtype=np.float32).reshape(8, 8)
    tree = {
        "a": jax.device_put(values, NamedSharding(line, P("x"))),
        "b": jax.device_put(values, NamedSharding(line, P())),
    }
    for via in ("auto", "collectives"):
        moved = rd.reshard(tree, NamedSharding(line, P(None, "x")), via=via, check=True)
        assert all(np.array_equal(leaf, values) for leaf in moved.values())
    transposed = rd.reshard(moved["a"], NamedSharding(line, P("x")), through=lambda a: a.T)
    assert np.array_equal(transposed, values.T)
    assert rd.verify(PLAN) is PLAN and "alltoall" in str(PLAN)
    function = rd.to_jax(rd.synthesize("[1{x}8, 8]", "[8, 1{x}8]", line), line)
    assert np.array_equal(function(jax.device_put(values, function.source_sharding)), values)
    done = command("run", "[2{x}4, 4]", "[4, 2{x}4]", "--mesh", "x=2")
    assert done.returncode == 0 and "every element is right" in done.stdout, done.stdout + done.stderr


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """What the command `redistrib` does."""
    script = Path(sys.executable).with_name("redistrib")
    return subprocess.run([script, *arguments], capture_output=True, text=True, timeout=300)


def readme_runs() -> int:
    """Each Python block of the README, pasted alone into a file of an empty folder; return how many."""
    sys.path.append(str(Path(__file__).parents[2]))  # after the wheels
    from tests.docs.alone import SNIPPETS, readers_environment, run_alone

    snippets = [snippet for snippet in SNIPPETS if snippet.page.name == "README.md"]
    for snippet in snippets:
        with tempfile.TemporaryDirectory() as folder:
            done = run_alone(snippet, Path(folder), readers_environment(snippet.page))
        assert done.returncode == 0, f"README.md:{snippet.line}\n{done.stdout}{done.stderr}"
    return len(snippets)


def main(installed: str) -> None:
    """Move arrays, then call what needs the second wheel."""
    assert (find_spec("redistrib.programs") is not None) == (installed == "both"), "another set of wheels"
    assert Path(sys.prefix) in Path(rd.__file__).parents, "the package is not that of this environment"
    arrays_move()
    for name, call in CALLS.items():
        try:
            call()
        except rd.RedistribError as error:
            assert installed == "arrays" and (f"{name} {ADVICE}" in str(error) or f"rd.along {ADVICE}" in str(error)), (
                error
            )
        else:
            assert installed == "both", f"{name} needs nothing of the second wheel"
    assert (PLAN._repr_html_() is None) == (installed == "arrays")  # a notebook then shows the text
    for name in COMMANDS:
        done = command(name, "[2{x}4, 4]", "[4, 2{x}4]", "--mesh", "x=2")
        if installed == "both":
            assert done.returncode == 0, done.stderr
        else:
            assert (done.returncode, done.stderr) == (2, f"redistrib: this command {ADVICE}\n"), done.stderr
    print(f"{installed}: arrays move, {len(CALLS)} calls and {len(COMMANDS)} commands that need the programs part")
    if installed == "both":
        blocks = readme_runs()
        assert blocks, "the README has no block to run"
        print(f"README.md: {blocks} blocks run alone")


if __name__ == "__main__":
    main(sys.argv[1])
