"""An exchange as one ragged all-to-all: every share in one collective, whatever its size.

A device packs its shares into one buffer, those for one receiver side by side; `lax.ragged_all_to_all` carries them;
the receiver cuts them out of its own buffer. The tables that say where each share lies are made here, in NumPy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from redistrib.plans.steps import Exchange
from redistrib.theory.semantics import Int64


@dataclass(frozen=True)
class RaggedTables:
    """Where the shares of an exchange lie in the buffers, by device number.

    Attributes:
        shapes: `[rounds]` shape of the share of each round.
        length: elements of each buffer.
        pack, unpack: `[devices, rounds]` offset of the share that a device sends, or receives, in a round.
        input_offsets, send_sizes, output_offsets, recv_sizes: `[devices, devices]`, as `lax.ragged_all_to_all` takes
            them: row d is what device d passes.
    """

    shapes: tuple[tuple[int, ...], ...]
    length: int
    pack: Int64
    unpack: Int64
    input_offsets: Int64
    send_sizes: Int64
    output_offsets: Int64
    recv_sizes: Int64


def tables(step: Exchange) -> RaggedTables:
    """The tables of one exchange."""
    shares, devices, rounds = step.shares, step.devices, step.shares.rounds
    first = [int(np.flatnonzero(shares.round == r)[0]) for r in range(rounds)]
    shapes = tuple(tuple(int(e) for e in shares.size[k]) for k in first)
    volumes = np.array([math.prod(shape) for shape in shapes], dtype=np.int64)
    pack, sent = _offsets(shares.src, shares.dst, shares.round, volumes, devices)
    unpack, _ = _offsets(shares.dst, shares.src, shares.round, volumes, devices)
    recv_sizes = sent.T.copy()
    starts = np.cumsum(sent, axis=1) - sent
    landing = np.cumsum(recv_sizes, axis=1) - recv_sizes
    return RaggedTables(
        shapes, int(volumes.sum()), pack, unpack, starts, sent, np.ascontiguousarray(landing.T), recv_sizes
    )


def _offsets(mine: Int64, other: Int64, turn: Int64, volumes: Int64, devices: int) -> tuple[Int64, Int64]:
    """`[devices, rounds]` offsets in buffers ordered by partner, then round, and `[devices, partners]` elements.

    A round in which a device has no share gets what room is left behind the others.
    """
    rounds = len(volumes)
    sizes = np.zeros((devices, devices), dtype=np.int64)
    np.add.at(sizes, (mine, other), volumes[turn])
    partner = np.full((devices, rounds), devices, dtype=np.int64)
    partner[mine, turn] = other
    order = np.argsort(partner * rounds + np.arange(rounds), axis=1)
    in_order = volumes[order]
    offsets = np.empty_like(partner)
    np.put_along_axis(offsets, order, np.cumsum(in_order, axis=1) - in_order, axis=1)
    return offsets, sizes


@dataclass(frozen=True)
class Carrier:
    """What `carry` needs to know of the devices it runs on.

    Attributes:
        axes: names of the manual mesh axes.
        order: device numbers by mesh position.
    """

    axes: tuple[str, ...]
    order: tuple[int, ...]

    def row(self, table: Int64) -> jax.Array:
        """The running device's row of a table over device numbers, partners in mesh order where there are any."""
        placed = table[list(self.order)]
        position = lax.axis_index(self.axes)
        row: jax.Array = lax.dynamic_index_in_dim(jnp.asarray(placed.astype(np.int32)), position, keepdims=False)
        return row


def carry(step: Exchange, sends: list[jax.Array], carrier: Carrier) -> list[jax.Array]:
    """Send one share per round and return the share received in each round.

    Args:
        step: the exchange.
        sends: the running device's share of every round, of the round's shape; anything where it sends none.
        carrier: the devices.
    """
    plan = tables(step)
    order = list(carrier.order)
    offsets = carrier.row(plan.pack)
    buffer = jnp.zeros((plan.length,), sends[0].dtype)
    for turn, share in enumerate(sends):
        buffer = lax.dynamic_update_slice(buffer, share.reshape(-1), (offsets[turn],))
    received = lax.ragged_all_to_all(
        buffer,
        jnp.zeros_like(buffer),
        carrier.row(plan.input_offsets[:, order]),
        carrier.row(plan.send_sizes[:, order]),
        carrier.row(plan.output_offsets[:, order]),
        carrier.row(plan.recv_sizes[:, order]),
        axis_name=carrier.axes if len(carrier.axes) > 1 else carrier.axes[0],
    )
    offsets = carrier.row(plan.unpack)
    return [
        lax.dynamic_slice(received, (offsets[turn],), (math.prod(shape),)).reshape(shape)
        for turn, shape in enumerate(plan.shapes)
    ]
