"""A tactic of a user: a class with `axis`, `begin` and `uneven`, wherever tactics are taken."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import redistrib as rd
from redistrib import ir
from redistrib.errors import CutError, ProgramError
from tests.messages import exactly


class Longest:
    """The longest dimension of every argument is cut, evenly or not."""

    def __init__(self, axis: str) -> None:
        self.axis = axis

    def begin(self, propagation: Any) -> None:
        for array, dim in self.uneven(propagation.graph):
            propagation.cut_array(array, self.axis, dim)

    def uneven(self, graph: Any) -> Iterator[ir.ArrayDim]:
        for array in graph.inputs:
            yield ir.ArrayDim(array.name, max(range(len(array.shape)), key=array.shape.__getitem__))


class Products(NamedTuple):
    """The rows of every product are cut. It is a tuple as well, and no group of tactics."""

    axis: str

    def begin(self, propagation: Any) -> None:
        for cut in self.uneven(propagation.graph):
            propagation.cut_operation(cut.operation, self.axis, cut.dim)

    def uneven(self, graph: Any) -> list[ir.WorkDim]:
        return [ir.WorkDim(k, "m0") for k, one in enumerate(graph.operations) if one.name.startswith("dot_general")]


def product(x: Any, w: Any) -> Any:
    return jnp.tanh(x @ w)


def best(x: Any, w: Any) -> Any:
    return jnp.argmax(x @ w, axis=0)


def arrays(rows: int) -> tuple[Any, Any]:
    return jnp.arange(rows * 4.0).reshape(rows, 4) / 64, jnp.arange(8.0).reshape(4, 2)


@pytest.mark.parametrize("function", [product, best])
@pytest.mark.parametrize("rows", [16, 18])
@pytest.mark.parametrize(
    ("own", "ours"),
    [
        (lambda: [Longest("d")], rd.along("d", {"x": 0, "w": 0})),
        (lambda: Longest("d"), rd.along("d", {"x": 0, "w": 0})),
        (lambda: Products("d"), rd.work("d", {"dot_general": "m0"})),
        (lambda: [[Products("d")]], rd.work("d", {"dot_general": "m0"})),
    ],
)
def test_it_cuts_as_the_tactic_of_the_library(
    function: Callable[..., Any], rows: int, own: Callable[[], Any], ours: Any
) -> None:
    args = arrays(rows)
    f, same = (rd.distribute(function, args, {"d": 4}, schedule=schedule) for schedule in (own(), ours))
    assert ir.to_text(f.program) == ir.to_text(same.program) and ("uneven_tiles" in str(f)) == (rows == 18)
    np.testing.assert_allclose(f(*args), function(*args), rtol=1e-6)


def test_a_search_holds_it() -> None:
    args = arrays(16)
    own, ours = (
        rd.search(product, args, {"d": 4}, pins=pins) for pins in (Longest("d"), rd.along("d", {"x": 0, "w": 0}))
    )
    assert own.schedule == ours.schedule and str(own.distributed) == str(ours.distributed)
    assert str(rd.search(product, args, {"d": 4}).distributed) != str(own.distributed)


def test_a_pipeline_cuts_its_tensor_parts_by_it() -> None:
    def layers(x: Any, w: Any) -> Any:
        return jnp.tanh(x @ w["up"]) @ w["down"]

    class Weights(Longest):
        def uneven(self, graph: Any) -> Iterator[ir.ArrayDim]:
            return (cut for cut in super().uneven(graph) if cut.array.startswith("w/"))

    args = jnp.ones((8, 16)), {"up": jnp.ones((16, 4)), "down": jnp.ones((4, 16))}
    own, ours, derived = (
        rd.pipeline(layers, args, {"x": 0}, rd.Layout(tensor=2, microbatches=2, tensor_dims=given))
        for given in (Weights("t"), {"up": 0, "down": 1}, {})
    )
    assert ir.to_text(own.program) == ir.to_text(ours.program) != ir.to_text(derived.program)
    np.testing.assert_allclose(own(*args), layers(*args), rtol=1e-6)
    refused = (
        (Weights("d"), r"axis 'd'; tensor parts are along 't'"),
        (rd.work("t", {"tanh": "d0"}), "cuts operations"),
    )
    for tactic, says in refused:
        with pytest.raises(CutError, match=says):
            rd.pipeline(layers, args, {"x": 0}, rd.Layout(tensor=2, tensor_dims=tactic))
    with pytest.raises(ProgramError, match="tactics are for functions"):
        ir.spread(rd.distribute(product, arrays(8), {}).program, {"x": 0}, rd.Layout(tensor_dims=Weights("t")))


class Half:
    axis = "d"

    def begin(self, propagation: Any) -> None:
        propagation.cut_array("x", "d", 0)

    def __repr__(self) -> str:
        return "Half()"


class Plain(Half):
    def uneven(self, graph: Any) -> Any:
        return [("x", 0)]


class Nothing(Half):
    def uneven(self, graph: Any) -> Any:
        return None


WRITE = "write rd.along(axis, {argument: dimension})"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (Half(), f"Half() is no tactic: it lacks uneven, see ir.Tactic; {WRITE}"),
        ([rd.along("d", {"x": 0}), [Half()]], f"Half() is no tactic: it lacks uneven, see ir.Tactic; {WRITE}"),
        (Plain, f"{Plain!r} is no tactic: it is a class; {WRITE}"),
        (3, f"3 is no tactic; {WRITE}"),
        (None, f"None is no tactic; {WRITE}"),
    ],
)
def test_what_is_no_tactic_is_told_what_it_lacks(given: Any, says: str) -> None:
    with pytest.raises(CutError, match=exactly(says)):
        rd.distribute(product, arrays(8), {"d": 2}, schedule=given)
    with pytest.raises(CutError, match=exactly(says)):
        rd.search(product, arrays(8), {"d": 2}, pins=given)
    with pytest.raises(CutError, match=exactly(says)):
        rd.pipeline(product, arrays(8), {"x": 0}, rd.Layout(tensor=2, tensor_dims=given))


@pytest.mark.parametrize(("given", "cut"), [(Plain(), "('x', 0)"), (Nothing(), "None")])
def test_uneven_cuts_that_are_none_are_named(given: Any, cut: str) -> None:
    says = f"Half() asks for {cut} as an uneven cut; give ir.ArrayDim or ir.WorkDim"
    with pytest.raises(CutError, match=exactly(says)):
        rd.distribute(product, arrays(8), {"d": 2}, schedule=given)


def test_a_function_of_shapes_needs_no_devices() -> None:
    args = jax.ShapeDtypeStruct((50257, 64), "float32"), jax.ShapeDtypeStruct((64, 64), "float32")
    f = rd.distribute(product, args, {"d": 8}, schedule=Longest("d"))
    assert "6283{d}50264" in ir.to_text(f.program)
