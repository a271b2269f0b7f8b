"""What is found for a transformer block with its gradient and SGD, and for parameters that have to be shared out."""

from __future__ import annotations

from typing import Any

import pytest
from jax.sharding import PartitionSpec as P

import redistrib as rd
from redistrib.errors import MemoryLimitError
from redistrib.programs.ir.program import Compute
from redistrib.report import seconds_text
from tests.messages import exactly
from tests.programs.search import models


def cuts(program: Any) -> dict[str, dict[str, str]]:
    return {
        op.name: {
            n: str(dim) for n, dim in zip(op.parts[0].nest.position, op.parts[0].cut.dims, strict=True) if dim.axes
        }
        for op in program.ops
        if isinstance(op, Compute)
    }


def test_megatron_with_sequences_at_one_example() -> None:
    """B=1, S=512, E=1024, H=16 on 4 devices of the preset "tpu"."""
    found = rd.search(models.block_step, models.block_args(1, 1), {"t": 4}, state={"params": 0}, machine="tpu")[0]
    forms = {value.name.removeprefix("params/0/"): str(value.type) for value in found.program.inputs}
    assert {name: forms[name] for name in ("wq", "wk", "wv", "wo", "up", "down")} == {
        **dict.fromkeys(("wq", "wk", "wv"), "[1024, 4{t}16, 64]"),
        "wo": "[4{t}16, 64, 1024]", "up": "[1024, 1024{t}4096]", "down": "[1024{t}4096, 1024]",
    }  # fmt: skip
    moves = [
        (str(move.out.type), *(step.kind for step in move.plan.steps))
        for move in found.program.moves
        if move.out.type.global_shape == (1, 512, 1024) and any(move.plan.received)
    ]
    pair = [("[1, 128{t}512, 1024]", "reduce_scatter"), ("[1, 512, 1024]", "allgather")]
    # after attention, after the layer, and going back after the products of its middle; the gradient before the first
    # norm is added where it is, because its products with activations, which may be infinite, need it whole
    assert moves == [*pair * 3, ("[1, 512, 256{t}1024]", "reduce_scatter")]
    products = {name: cut for name, cut in cuts(found.program).items() if name.startswith("dot_general")}
    assert all(products.values())


def test_batch_first_at_the_sizes_of_the_thesis() -> None:
    """B=8, S=512, E=1024, H=16 on 4 devices of the preset "gpu": the forward pass by the batch moves nothing."""

    def forward(params: Any, x: Any) -> Any:
        return models.layer(params[0], x)

    found = rd.search(forward, models.block_args(1, 8)[:2], {"d": 4}, machine="gpu")[0]
    assert found.received_bytes == 0
    assert {str(value.type) for value in found.program.inputs if value.name == "x"} == {"[2{d}8, 512, 1024]"}


def sharded(found: Any) -> int:
    return sum(value.name.startswith("params") and bool(value.type.axes) for value in found.program.inputs)


def test_parameters_are_shared_out_as_memory_gets_short() -> None:
    """Twelve layers by the batch: parameters are whole while they fit, then more and more are gathered when used."""
    args = ([models.form(512, 512)] * 12, models.form(1024, 512))

    def under(limit: int | None) -> Any:
        batch = rd.along("d", {"x": 0})
        return rd.search(
            models.chain, args, {"d": 4}, machine="gpu", memory_limit=limit, pins=batch, out_shardings=P("d")
        )[0]

    free = under(None)
    assert (sharded(free), free.received_bytes) == (0, 0)
    counts, seconds = [], free.seconds
    for share in (0.8, 0.6, 0.5):
        tight = under(int(free.memory * share))
        assert tight.memory <= free.memory * share
        assert tight.seconds > seconds
        assert free.bound == tight.bound < tight.seconds
        assert f"no schedule takes less than {seconds_text(free.bound)}: at most " in str(tight)
        seconds = tight.seconds
        counts.append(sharded(tight))
        gathers = [step.kind for move in tight.program.moves for step in move.plan.steps]
        assert set(gathers) == {"allgather"}
    assert 0 < counts[0] < counts[1] < counts[2]
    with pytest.raises(
        MemoryLimitError,
        match=exactly(
            "no schedule of chain fits in 1,000,000 bytes on a device: 4,718,592 bytes are held at tanh by every one; "
            "the smallest of those found takes 5,767,168 bytes"
        ),
    ) as caught:
        under(1_000_000)
    assert caught.value.proved
    assert under(caught.value.least).memory <= caught.value.least
    with pytest.raises(MemoryLimitError) as caught:
        under(5_000_000)
    assert not caught.value.proved


@pytest.mark.long
@pytest.mark.parametrize(("profile", "most"), [("tpu", 0.02770), ("gpu", 0.01871)])
def test_twelve_layers_on_two_axes(profile: str, most: float) -> None:
    """1,700 operations; `most` is found where layers nearly alike are decided as one at first; else 5% more."""
    args = models.block_args(12, 8)
    found = rd.search(models.block_step, args, {"d": 2, "t": 4}, state={"params": 0}, machine=profile)[0]
    assert found.bound <= found.result.price * (1 + 1e-6)
    assert found.result.price <= most
