"""Products that a grid cuts along what they reduce: in blocks, right under every grid, even or not, of any program."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

import redistrib as rd
from redistrib.errors import CutError
from redistrib.programs.ir.reference import run_by_rank, run_whole


@pytest.mark.parametrize("root", [False, True])
@pytest.mark.parametrize("shape", [(4, 12, 3), (1, 7, 2), (3, 1, 5), (2, 0, 3)])
def test_products_under_all_grids(shape: tuple[int, int, int], root: bool) -> None:
    a = np.random.default_rng(sum(shape)).integers(-2, 3, shape)
    product = rd.nest("ijk->ki", shape, combine="prod", name="product")
    for grid in itertools.product((1, 2), (1, 2, 3, 5), (1, 3)):
        program = rd.partition(product, {"product": grid}, root=root, dtype="int64")
        for run in (run_whole, run_by_rank):
            np.testing.assert_array_equal(run(program, [a])[0], a.prod(1).T)


def test_a_device_multiplies_its_block_and_sends_one_result() -> None:
    program = rd.partition(rd.nest("ij->i", (6, 800), combine="prod", name="product"), {"product": {"j": 8}})
    assert [value.form for value in program.inputs] == ["[6, 100{r0}800]"]
    (move,) = program.moves
    assert program.received_bytes == 8 * (6 * 7) * 4 and "allgather" in str(move.plan)
    rd.verify(program)


def test_several_dimensions_factors_and_functions_among_other_operations() -> None:
    """Over j and k, j the minor factor of a dimension; what reads the result, and what made the operand, are sums."""
    a, b = np.random.default_rng(3).integers(-3, 4, (2, 6, 4)), np.arange(24).reshape(4, 6) % 5
    nests = [
        rd.nest("ik->k", (12, 4), name="first", reads=["a"], writes="s"),
        rd.nest("(hj)k,kj->h", {"h": 2, "j": 6, "k": 4}, name="product", reads=["a", "b"], writes="p",
                fn=lambda a, b: (a + b) % 3 - 1, combine="prod"),
        rd.nest("h,k->hk", (2, 4), name="last", reads=["p", "s"], writes="out"),
    ]  # fmt: skip
    of_product = ((a + b.T) % 3 - 1).prod((1, 2))
    expected = np.multiply.outer(of_product, a.sum((0, 1)))
    for h, j, k in itertools.product((2,), (1, 3), (1, 2, 4)):
        grids = {"first": (2, 1), "product": (h, j, k), "last": (2, 2)}
        program = rd.partition(nests, grids, dtype="int64")
        for run in (run_whole, run_by_rank):
            np.testing.assert_array_equal(run(program, [a.reshape(12, 4), b])[0], expected)


def test_a_product_inside_a_group_is_refused() -> None:
    nests = [
        rd.nest("ij->ij", (4, 8), name="copy", reads=["a"], writes="b"),
        rd.nest("ij->i", (4, 8), name="product", reads=["b"], writes="c", combine="prod"),
    ]
    grids = {"copy": (1, 4), "product": (1, 4)}
    why = "a product cut along j is two operations and a move between them; leave it out of group 'both'"
    with pytest.raises(CutError, match=re.escape(why)):
        rd.partition(nests, grids, groups={"both": ["copy", "product"]})
    whole = rd.partition(nests, {"copy": (4, 1), "product": (4, 1)}, groups={"both": ["copy", "product"]})
    assert not whole.moves


def test_a_body_of_ones_own_says_what_it_combines() -> None:
    """What a body multiplies cannot be taken apart: such a dimension stays whole, as the error says."""
    own = rd.nest("ij->i", (4, 8), name="own", combine="prod", body=lambda at, a: a.prod(1))
    with pytest.raises(rd.RedistribError, match="leave it whole"):
        rd.partition(own, {"own": (1, 2)})
