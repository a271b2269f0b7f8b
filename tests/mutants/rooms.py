"""The rooms of the package, and the tests that are to kill their mutants."""

from __future__ import annotations

from bench.children import ROOT


def files(folder: str, *last: str) -> tuple[str, ...]:
    """The test files of a folder in name order, with the slow ones `last`."""
    names = {path.name for path in (ROOT / folder).glob("test_*.py")} - set(last)
    return tuple(f"{folder}/{name}" for name in (*sorted(names), *last))


PLANS, PROGRAMS = "tests/synthesis/test_kept_plans.py", "tests/programs/run/test_kept_programs.py"
OUTPUTS, CIRCLES = "tests/test_kept_outputs.py", "tests/test_circles.py"
DISAGREEING = (
    "tests/reshard/test_reshard_processes.py::test_processes_that_disagree_raise_the_same_error_and_go_on"  # loads too
)
TRACED = tuple(name for room in ("rules", "schedule", "lower", "run") for name in files(f"tests/programs/{room}"))
SLOW_RESHARDING = ("test_reshard_properties.py", "test_reshard_processes.py")

# The folder of every room below redistrib/, and its tests; those that are quick or kill most mutants come first.
# redistrib/errors has messages alone and is left out.
ROOMS: dict[str, tuple[str, tuple[str, ...]]] = {
    "lang": (
        "lang",
        ("redistrib/lang", "tests/lang", PLANS, "tests/theory", "tests/paper", "tests/plans/test_serial.py"),
    ),
    "theory": ("theory", ("redistrib/theory", "tests/theory", PLANS, "tests/paper", "tests/laws")),
    "plans": ("plans", ("redistrib/plans", "tests/paper", PLANS, *files("tests/plans", "test_soundness.py"))),
    "ir": (
        "programs/ir",
        ("redistrib/programs/ir", *files("tests/programs/ir"), PROGRAMS, OUTPUTS, "tests/docs/test_pages.py"),
    ),
    "cost": ("cost", ("redistrib/cost", PLANS, *files("tests/synthesis", "test_best.py", "test_exhaustive.py"))),
    "synthesis": (
        "synthesis",
        (
            "redistrib/synthesis",
            PLANS,
            "tests/paper",
            "tests/laws",
            *files("tests/sets"),
            *files("tests/synthesis", "test_exhaustive.py"),
        ),
    ),
    "schedule": (
        "programs/schedule",
        ("redistrib/programs/schedule", *files("tests/programs/ir"), PROGRAMS, *TRACED),
    ),
    "lower": (
        "programs/lower",
        ("redistrib/programs/lower", *files("tests/programs/ir"), PROGRAMS, *TRACED),
    ),
    "rules": ("programs/rules", ("redistrib/programs/rules", PROGRAMS, *TRACED)),
    "run": (
        "programs/run",
        (
            "redistrib/programs/run",
            PROGRAMS,
            *TRACED,
            *files("tests/jax", "test_jax_sample.py"),
            "tests/mpi/test_mpi_program.py",
            "tests/mpi/test_mpi_programs.py",
        ),
    ),
    "launches": (
        "launches",
        ("redistrib/launches", "tests/jax/test_calls.py", *files("tests/reshard", *SLOW_RESHARDING)),
    ),
    "resharding": ("resharding", ("redistrib/resharding", *files("tests/reshard", *SLOW_RESHARDING))),
    "jax": (
        "backends/jax",
        (
            "redistrib/backends/jax",
            "tests/programs/rules/test_rules.py",
            "tests/programs/rules/test_traced.py",
            PROGRAMS,
            *files("tests/jax", "test_jax_execute.py", "test_jax_sample.py"),
            "tests/reshard/test_reshard_jit.py",
            "tests/reshard/test_device_sets.py",
            "tests/reshard/test_memory_kinds.py",
            "tests/reshard/test_copies.py",
            "tests/sets/test_users.py",
            "tests/test_backends.py",
        ),
    ),
    "ranks": ("backends/ranks", ("redistrib/backends/ranks", *files("tests/ranks"))),
    "mpi": ("backends/mpi", ("redistrib/backends/mpi", *files("tests/mpi", "test_mpi_portable.py"))),
    "stages": (
        "programs/stages",
        ("redistrib/programs/stages", *files("tests/programs/stages"), *files("tests/programs/time", "test_mlp.py")),
    ),
    "search": (
        "programs/search",
        ("redistrib/programs/search", "tests/programs/search/test_kept_searches.py", *files("tests/programs/search")),
    ),
    "time": (
        "programs/time",
        ("redistrib/programs/time", OUTPUTS, CIRCLES, *files("tests/programs/time", "test_mlp.py"), PROGRAMS),
    ),
    "testing": (
        "testing",
        (
            "redistrib/testing",
            "tests/test_testing.py",
            "tests/theory/test_rules_soundness.py",
            "tests/uneven/test_types.py",
        ),
    ),
    "show": (
        "programs/show",
        (
            "redistrib/programs/show",
            *files("tests/programs/show", "test_browser.py"),
            OUTPUTS,
            "tests/programs/search/test_use.py",
            "tests/test_cli.py",
        ),
    ),
    "weights": ("weights", ("redistrib/weights", *files("tests/weights", "test_processes.py"), DISAGREEING)),
    "explain": (
        "explain",
        (
            "redistrib/explain",
            OUTPUTS,
            CIRCLES,
            "tests/jax/test_jax_inspect.py",
            "tests/jax/test_half_duplex.py",
            "tests/jax/test_compare.py",
            "tests/test_explain.py",
            "tests/test_weak_graph.py",
            "tests/test_partial_refusals.py",
        ),
    ),
    "top": (
        ".",
        (
            *(f"redistrib/{name}.py" for name in ("api", "arith", "report", "sizes")),  # their doctests
            OUTPUTS,
            *(
                f"tests/test_{name}.py"
                for name in ("arith", "api", "partial_refusals", "package", "explain", "cli", "demo", "strict")
            ),
            "tests/theory/test_rules_soundness.py",
            "tests/uneven/test_types.py",
            "tests/test_testing.py",
            "tests/programs/time/test_command.py",
            "tests/programs/time/test_rates.py",
            "tests/programs/search/test_use.py::test_the_command",
            "tests/mpi/test_mpi_programs.py",
        ),
    ),
}
