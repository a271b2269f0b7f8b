"""Our factors of every primitive beside those of Shardy's own registry; where they differ, why."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from jax import lax

from redistrib.programs.ir.graph import Graph
from redistrib.programs.rules.equation import RULES
from redistrib.programs.rules.inline import trace
from redistrib.programs.run.arguments import leaf_names
from tests.programs.rules.primitives import CASES, MORE, A, Case
from tests.programs.schedule.shardy import ours, theirs

# Kinds without a case here: others of the same rule, kinds that nothing is lowered to, and effects.
UNMET = {
    "geqp3", "ormqr", "reduce_and", "reduce_or", "select_and_scatter",
    "add_any", "copy_p", "debug_callback", "debug_print", "eq_to", "expand_dims", "geqrf",
    "householder_product", "io_callback", "le_to", "lt_to",
    "reduce_precision", "regularized_incomplete_beta", "scatter_add", "scatter_mul", "select_and_gather_add",
    "threefry2x32",
}  # fmt: skip
KINDS = {"and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "not": "bitwise_not"}

ALONE = "Shardy gives a dimension that must be whole a factor that no other array has: to cut it says nothing of others"
NO_SUCH = "there are summands of sums, of the largest and of the least, and none of these"
PAIRS = "what is combined is a number and where it stands: no summand that we have"
SPACE = "a dimension along which windows slide is cut by us alone: a part reads a halo beside its tile"
KEYS = "Shardy sees what threefry is made of, and nothing of keys side by side"
UPDATES = "updates that are not added are not combined by a sum"
PICTURES = ("convolution", "grouped convolution", "convolution, backward")
PLANES = ("convolution of taps far apart", "convolution of groups of rows", "convolution in space, backward")
DIFFER: dict[tuple[str, str], tuple[str, list[str]]] = {
    ("reshape without common factors", "reshape"): (
        "6 x 12 becomes 9 x 8: a cut by 3 of what 6 and 9 have in common is possible, and we take only whole factors; "
        "what remains of each is a factor of that array alone, and the 4 in common stands below cuts by 3 and by 2",
        [
            "Shardy: pass of 2 in in0.1", "Shardy: pass of 2 in out0.2/4", "Shardy: pass of 3 in in0.1/2 out0.1/3",
            "Shardy: pass of 3 in in0.2/4", "Shardy: pass of 3 in out0.1", "Shardy: pass of 4 in in0.2 out0.2",
        ],
    ),
    ("dynamic_update_slice", "dynamic_update_slice"): (
        "the update is whole, and each part would have to take what of it is its own",
        ["Shardy: pass of 24 in in0.1 out0.1"],
    ),
    ("reduce_prod", "reduce_prod"): (NO_SUCH, ["Shardy: sum of 12 in in0.0"]),
    ("reduce_xor", "reduce_xor"): (NO_SUCH, ["Shardy: sum of 12 in in0.0"]),
    ("argmax", "argmax"): (PAIRS, ["Shardy: sum of 24 in in0.1"]),
    ("argmin", "argmin"): (PAIRS, ["Shardy: sum of 24 in in0.1"]),
    ("scatter-mul", "scatter-mul"): (UPDATES, ["Shardy: sum of 6 in in1.0 in2.0"]),
    ("scatter-min", "scatter-min"): (UPDATES, ["Shardy: sum of 6 in in1.0 in2.0"]),
    ("scatter-max", "scatter-max"): (UPDATES, ["Shardy: sum of 6 in in1.0 in2.0"]),
    **{
        (name, kind): (SPACE, [f"ours: pass of {n} in {ins.format(d)} out0.{d}" for n, d in sizes])
        for name, kind, ins, *sizes in (
            *((name, "conv_general_dilated", "in0.{0}", (5, 2), (5, 3)) for name in PICTURES),
            *((name, "conv_general_dilated", "in0.{0}", (24, 1), (24, 2)) for name in PLANES),
            ("transposed convolution", "conv_general_dilated", "in0.{0}", (24, 2), (48, 1)),
            ("pooling", "reduce_window_max", "in0.{0}", (4, 2), (4, 3)),
            ("pooling in space", "reduce_window_max", "in0.{0}", (12, 2), (24, 1)),
            ("reduce_window_sum", "reduce_window_sum", "in0.{0}", (4, 2), (4, 3)),
            ("sums of windows", "reduce_window_sum", "in0.{0}", (12, 1), (24, 2)),
            ("reduce_window_min", "reduce_window_min", "in0.{0}", (4, 2), (4, 3)),
            ("windows of any function", "reduce_window", "in0.{0}", (4, 2), (4, 3)),
            ("max pooling, backward", "select_and_scatter_add", "in0.{0} in1.{0}", (5, 2), (5, 3)),
            ("max pooling in space, backward", "reduce_window_max", "in0.{0}", (12, 1), (24, 2)),
            ("max pooling in space, backward", "select_and_scatter_add", "in0.{0} in1.{0}", (24, 1), (24, 2)),
        )
    },
    ("convolution in space", "conv_general_dilated"): (
        f"{SPACE}; and in strides of 2 Shardy finds a factor of 2 that rows and taps have in common",
        ["Shardy: sum of 2 in in0.2 in1.1", "ours: pass of 12 in in0.2 out0.2", "ours: pass of 24 in in0.1 out0.1"],
    ),
    **{
        (name, "ragged_dot_general"): ("Shardy keeps the groups whole", ["ours: sum of 6 in in1.0"])
        for name in ("product in groups", "product in groups, some rows in none", "product in groups, backward")
    },
    ("reduce by any function", "reduce"): (NO_SUCH, ["Shardy: sum of 24 in in0.1"]),
    ("scatter-sub", "scatter-sub"): (
        "Shardy knows no scatter that subtracts, which is a sum of negative terms",
        ["ours: sum of 6 in in1.0 in2.0"],
    ),
    ("random bits of many keys", "random_bits"): (
        KEYS, ["Shardy: pass of 12 in in0.0", "Shardy: pass of 12 in out0.0", "ours: pass of 12 in in0.0 out0.0"]
    ),
    ("keys of keys", "random_split"): (
        KEYS, ["Shardy: pass of 12 in in0.0", "Shardy: pass of 12 in out0.0", "ours: pass of 12 in in0.0 out0.0"]
    ),
    ("keys of keys", "random_fold_in"): (
        KEYS, ["Shardy: pass of 12 in in0.0", "Shardy: pass of 12 in out0.0", "ours: pass of 12 in in0.0 out0.0"]
    ),
    ("keys of keys", "slice"): ("the integers of one key stay together", ["Shardy: pass of 2 in in0.2 out0.2"]),
    ("symmetric_product", "symmetric_product"): (
        "a library's function, which takes whole matrices",
        ["Shardy: pass of 3 in in0.1 in1.1 in1.2 out0.1 out0.2", "Shardy: sum of 2 in in0.2"],
    ),
    ("approx_top_k", "approx_top_k"): (ALONE, ["Shardy: pass of 24 in in0.1"]),
    ("triangular solve", "triangular_solve"): (
        ALONE,
        [
            "Shardy: pass of 2 in in1.2", "Shardy: pass of 2 in out0.2",
            *(f"Shardy: pass of 3 in {place}" for place in ("in0.1", "in0.2", "in1.1", "out0.1")),
        ],
    ),
    ("tridiagonal_solve", "tridiagonal_solve"): (
        ALONE,
        [
            "Shardy: pass of 2 in in3.2", "Shardy: pass of 2 in out0.2",
            *(f"Shardy: pass of 3 in {place}" for place in ("in0.1", "in1.1", "in2.1", "in3.1", "out0.1")),
        ],
    ),
    ("lu", "lu"): (
        f"{ALONE}; and it knows nothing of the loop that makes the permutation",
        [
            "Shardy: pass of 12 in in0.0 out0.0 out1.0",
            *(f"Shardy: pass of 3 in {place}" for place in ("in0.1", "in0.2", "out0.1", "out0.2", "out1.1")),
            "ours: pass of 12 in in0.0 out0.0 out1.0 out2.0",
        ],
    ),
    **{
        (kind, kind): (ALONE, [f"Shardy: pass of 3 in {place}" for place in ("in0.1", "in0.2", *outs.split())])
        for kind, outs in {
            "cholesky": "out0.1 out0.2",
            "qr": "out0.1 out0.2 out1.1 out1.2",
            "eigh": "out0.1 out0.2 out1.1",
            "eig": "out0.1 out1.1 out1.2",
            "svd": "out0.1 out1.1 out1.2 out2.1 out2.2",
            "schur": "out0.1 out0.2 out1.1 out1.2",
        }.items()
    },
    **{
        (kind, kind): (
            ALONE,
            [
                *(f"Shardy: pass of 2 in {place}" for place in shorter.split()),
                *(f"Shardy: pass of 3 in {place}" for place in ("in0.1", "in0.2", *outs.split())),
            ],
        )
        for kind, shorter, outs in (
            ("tridiagonal", "out2.1 out3.1", "out0.1 out0.2 out1.1"), ("hessenberg", "out1.1", "out0.1 out0.2"),
        )
    },
}  # fmt: skip


def graph_of(case: Case) -> Graph:
    return trace(case.function, case.args, leaf_names(case.function, case.args)).graph


def pointwise() -> Iterator[tuple[str, Case]]:
    """Element by element, each kind that `lax` has a function for, on the first arguments that it takes."""
    filled = [A * 0 + A.dtype.type(0.5), A.astype(np.int32), A > 0, A.astype(np.complex64)]
    for kind in sorted(kind for kind, rule in RULES.items() if rule.__name__ == "_pointwise"):
        function: Callable[..., Any] | None = getattr(lax, KINDS.get(kind, kind), None)
        for count, value in product((1, 2, 3), filled) if function else ():
            case = Case(function, (value,) * count)  # type: ignore[arg-type]
            try:
                graph = graph_of(case)
            except (TypeError, ValueError, NotImplementedError):
                continue
            if any(operation.kind == kind for operation in graph.operations):
                yield kind, case
                break


ALL = {**CASES, **MORE, **dict(pointwise())}


@cache
def compared(name: str) -> tuple[dict[str, list[str]], set[str]]:
    """For each kind of operation of a case what only one of us says; and the kinds of which both say something."""
    found: dict[str, list[str]] = {}
    both: set[str] = set()
    graph = graph_of(ALL[name])
    arrays = graph.arrays
    for operation in graph.operations:
        other = None if operation.opaque else theirs(operation, arrays)
        if other is None:
            continue
        both.add(operation.kind)
        mine = ours(operation)
        if mine != other:
            found[operation.kind] = [f"Shardy: {factor}" for factor in sorted(map(str, other - mine))]
            found[operation.kind] += [f"ours: {factor}" for factor in sorted(map(str, mine - other))]
    return found, both


def test_every_rule_is_met() -> None:
    met = {op.kind for case in ALL.values() for op in graph_of(case).operations if not op.opaque}
    assert set(RULES) - met == UNMET


@pytest.mark.parametrize("name", ALL)
def test_factors_agree_with_shardys(name: str) -> None:
    found, _ = compared(name)
    assert found == {kind: said for (case, kind), (_, said) in DIFFER.items() if case == name}


def test_how_many_differ() -> None:
    """Primitives of which both say something, and those of them that differ in some case."""
    assert {case for case, _ in DIFFER} <= set(ALL)
    both = set().union(*(compared(name)[1] for name in ALL))
    differ = {kind for _, kind in DIFFER}
    assert differ <= both
    assert (len(both), len(differ)) == (119, 35)
