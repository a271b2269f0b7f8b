"""The tables of a ragged all-to-all, carried out in NumPy as its definition says."""

from __future__ import annotations

import numpy as np
import pytest

import redistrib as rd
from redistrib.backends.jax.ragged import tables
from redistrib.plans.reference import scatter
from redistrib.plans.steps import Exchange
from redistrib.synthesis.exchange import in_rounds
from redistrib.theory.semantics import placement_of

PROBLEMS = [
    ("[3{x}12, 2{y}12]", "[2{y}12, 3{x}12]", {"x": 4, "y": 6}),
    ("[1{b,a}4, 2{c}4]", "[2{c}4, 2{a}4]", {"a": 2, "b": 2, "c": 2}),
    ("[6{x}24, 4{y}24]", "[4{y}24, 24]", {"x": 4, "y": 6}),
]


def ragged_all_to_all(buffers: list[np.ndarray], step: Exchange) -> list[np.ndarray]:
    """What the collective is defined to do: slice by input offset and size, write at the receiver's output offset."""
    plan = tables(step)
    results = [np.zeros_like(buffer) for buffer in buffers]
    for sender, buffer in enumerate(buffers):
        for receiver, result in enumerate(results):
            size = plan.send_sizes[sender, receiver]
            assert size == plan.recv_sizes[receiver, sender]
            low, out = plan.input_offsets[sender, receiver], plan.output_offsets[sender, receiver]
            assert out + size <= plan.length
            result[out : out + size] = buffer[low : low + size]
    return results


@pytest.mark.parametrize("problem", PROBLEMS)
def test_every_share_arrives_where_it_is_looked_for(problem: tuple[str, str, dict[str, int]]) -> None:
    source, target, axes = problem
    mesh = rd.Mesh.of(axes)
    before, after = (placement_of(rd.DistType.parse(text), mesh) for text in (source, target))
    steps = in_rounds(before, after)
    assert steps is not None
    (step,) = steps
    assert isinstance(step, Exchange)
    values = np.arange(np.prod(before.shape), dtype=np.int64).reshape(before.shape) + 1
    tiles = scatter(values, before)
    where = tables(step)
    buffers = [np.zeros(where.length, dtype=np.int64) for _ in range(mesh.size)]
    shares = step.shares
    for k in range(len(shares)):
        low = shares.start[k] - step.before.start[shares.src[k]]
        box = tuple(slice(a, a + n) for a, n in zip(low, shares.size[k], strict=True))
        share = tiles[shares.src[k]][box].reshape(-1)
        at = where.pack[shares.src[k], shares.round[k]]
        assert not buffers[shares.src[k]][at : at + share.size].any(), "shares overlap in the send buffer"
        buffers[shares.src[k]][at : at + share.size] = share
    received = ragged_all_to_all(buffers, step)
    for k in range(len(shares)):
        at = where.unpack[shares.dst[k], shares.round[k]]
        got = received[shares.dst[k]][at : at + int(np.prod(shares.size[k]))]
        box = tuple(slice(a, a + n) for a, n in zip(shares.start[k], shares.size[k], strict=True))
        assert (got == values[box].reshape(-1)).all()
