"""An exchange as one ragged all-to-all: all shares in one collective, of any sizes.

A device packs its shares into a buffer, ordered by receiver. `lax.ragged_all_to_all` sends them into the buffers of the
receivers, ordered by sender. XLA has it for TPUs and GPUs, not for CPUs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from redistrib.backends.jax.context import LoweringContext
from redistrib.plans.writes import Write
from redistrib.theory.placement import Int64


@dataclass(frozen=True, eq=False)
class Tables:
    """The places of the shares of an exchange in the buffers, by device number, in units of `unit` elements.

    Attributes:
        unit: elements of a unit, which divide every share.
        length: units of each buffer.
        pack, unpack: `[devices, rounds]` offset of the share that a device sends, or receives, in a round.
        input_offsets, send_sizes, output_offsets, recv_sizes: `[devices, devices]` arguments of
            `lax.ragged_all_to_all`; device d passes row d.
    """

    unit: int
    length: int
    pack: Int64
    unpack: Int64
    input_offsets: Int64
    send_sizes: Int64
    output_offsets: Int64
    recv_sizes: Int64


def tables(volumes: Sequence[int], pairs: Sequence[Int64], devices: int) -> Tables:
    """The tables of rounds of shares.

    Args:
        volumes: elements of a share, by round.
        pairs: `[pairs, 2]` (sender, receiver) device numbers, by round; a device sends and receives at most once.
        devices: number of devices.
    """
    unit = math.gcd(*volumes)
    sizes = np.array(volumes, dtype=np.int64) // unit
    turn = np.repeat(np.arange(len(pairs)), [len(rows) for rows in pairs])
    src, dst = np.concatenate(list(pairs)).T
    pack, sent = _offsets(src, dst, turn, sizes, devices)
    unpack, received = _offsets(dst, src, turn, sizes, devices)
    first = np.cumsum(sent, axis=1) - sent
    landing = np.cumsum(received, axis=1) - received
    return Tables(unit, int(sizes.sum()), pack, unpack, first, sent, landing.T, received)


def _offsets(device: Int64, other: Int64, turn: Int64, sizes: Int64, devices: int) -> tuple[Int64, Int64]:
    """`[devices, rounds]` offsets in buffers ordered by partner, then round, and `[devices, partners]` units.

    The offset of a round in which a device has no share is behind its other shares.
    """
    rounds = len(sizes)
    volume = np.zeros((devices, devices), dtype=np.int64)
    np.add.at(volume, (device, other), sizes[turn])
    partner = np.full((devices, rounds), devices, dtype=np.int64)
    partner[device, turn] = other
    order = np.argsort(partner * rounds + np.arange(rounds), axis=1)
    in_order = sizes[order]
    offsets = np.empty_like(partner)
    np.put_along_axis(offsets, order, np.cumsum(in_order, axis=1) - in_order, axis=1)
    return offsets, volume


def fits_in_buffer(writes: Sequence[Write], context: LoweringContext) -> bool:
    """Whether the units of the buffers of such writes can be counted by an index."""
    volumes = [write.volume for write in writes]
    return sum(volumes) <= math.gcd(*volumes) * context.largest_index


def carry(writes: Sequence[Write], sends: Sequence[jax.Array], context: LoweringContext) -> list[jax.Array]:
    """Send the running device's box of every write to its receiver, and return the boxes received.

    Args:
        writes: those with messages.
        sends: the box that the running device sends, by write; any box where it sends none.
        context: the devices.

    Returns:
        The box received, by write; any box where the device receives none.
    """
    rounds = [(write.volume, write.pairs) for write in writes if write.pairs is not None]
    at = tables([volume for volume, _ in rounds], [pairs for _, pairs in rounds], len(context.order))
    extra = sends[0].shape[len(writes[0].size) :]
    buffer = jnp.zeros((at.length, at.unit, *extra), sends[0].dtype)

    def starts(offset: jax.Array) -> list[jax.Array]:
        return [offset, *[jnp.int32(0)] * (buffer.ndim - 1)]

    pack, unpack = context.lookup(at.pack.astype(np.int32)), context.lookup(at.unpack.astype(np.int32))
    for k, share in enumerate(sends):
        buffer = lax.dynamic_update_slice(buffer, share.reshape(-1, *buffer.shape[1:]), starts(pack[k]))
    order = list(context.order)  # partners are counted along the mesh
    rows = [at.input_offsets, at.send_sizes, at.output_offsets, at.recv_sizes]
    received = lax.ragged_all_to_all(
        buffer,
        jnp.zeros_like(buffer),
        *(context.lookup(row[:, order].astype(np.int32)) for row in rows),
        axis_name=context.names,
    )
    return [
        lax.dynamic_slice(
            received, starts(unpack[k]), (share.size // (at.unit * math.prod(extra)), *buffer.shape[1:])
        ).reshape(share.shape)
        for k, share in enumerate(sends)
    ]
