"""Child of `bench.sets`: one process of the job, on a host of trainers or of samplers."""

from __future__ import annotations

import itertools
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import redistrib as rd
from bench.children import serve
from bench.elements import numbered
from bench.library import model_of
from bench.pairing import DTYPE, Part, run_paired
from bench.sets import CASES, DIRECT, HOST, SOCKETS, Side
from bench.worker_cluster import ADDRESS, barrier, start
from redistrib.backends.jax.private import notes_of_processes
from redistrib.cost.model import CostModel, Prices
from redistrib.plans.steps import Exchange, Step
from redistrib.theory.topology import Topology
from redistrib.theory.weak import WeakEdge, WeakSpace

PORT = 19100  # port of the first process, for values sent through the host
TRANSFERS = 19200  # port of every process, for JAX's transfers
STREAMS = 4  # streams of each pair of processes, JAX's default
LONGEST = 120  # limit of one move, in seconds

_TURNS = itertools.count()


@dataclass(frozen=True)
class OneExchange(CostModel):
    """A price that admits exchanges alone: every device pulls its missing elements."""

    name = "one exchange"
    unit = "seconds"
    normal_forms_suffice = False

    def prices(self, itemsize: int, topology: Topology) -> Prices:
        return _OneExchangePrices(self, itemsize, topology)


class _OneExchangePrices(Prices):
    def edge(self, edge: WeakEdge, space: WeakSpace) -> float:
        return 0.0

    def step(self, step: Step) -> float:
        return 1.0 if isinstance(step, Exchange) else 1e6


class Case:
    """An array on some devices, and its target sharding."""

    def __init__(self, source: Side, target: Side, side: int) -> None:
        self.shape = (side, side)
        self.source, self.target = _sharding(source), _sharding(target)

    def array(self) -> jax.Array:
        """The input: each element is its row-major number."""
        return jax.make_array_from_callback(self.shape, self.source, partial(numbered, self.shape), dtype=DTYPE)

    def check(self, result: jax.Array) -> str | None:
        """The first error of a result, or None. Every element on every device of this process is compared."""
        if result.sharding != self.target:
            return f"sharding {result.sharding}, expected {self.target}"
        for shard in result.addressable_shards:
            if not np.array_equal(np.asarray(shard.data), numbered(self.shape, shard.index)):
                return f"wrong elements on device {shard.device.id}"
        return None


def _sharding(side: Side) -> NamedSharding:
    numbers, shape, entries = side
    devices = np.array(jax.devices())[numbers].reshape(shape)
    return NamedSharding(Mesh(devices, ("x", "y")[: len(shape)]), PartitionSpec(*entries))


class ThroughTheHost:
    """A gather on the source's devices, a send by the first process to the processes of the target without source
    tiles, and a put there."""

    def __init__(self, case: Case) -> None:
        self._case, self._links = case, _links()
        self._gather = jax.jit(lambda x: x, out_shardings=NamedSharding(case.source.mesh, PartitionSpec()))
        sources, targets = ({device.process_index for device in side.device_set} for side in (case.source, case.target))
        self._receivers, self._has_source = sorted(targets - sources), jax.process_index() in sources
        self._received = np.empty(case.shape, DTYPE)

    def __call__(self, x: jax.Array) -> jax.Array:
        values = self._received
        if self._has_source:
            values = np.asarray(self._gather(x).addressable_shards[0].data)
        if jax.process_index() == 0:
            for process in self._receivers:
                self._links[process].sendall(memoryview(values).cast("B"))
        if jax.process_index() in self._receivers:
            rest = memoryview(values).cast("B")
            while rest:
                rest = rest[self._links[0].recv_into(rest) :]
        return jax.make_array_from_callback(x.shape, self._case.target, lambda index: values[index], dtype=DTYPE)


@cache
def _links() -> dict[int, socket.socket]:
    """Connections of the first process to every other process, by number."""
    host = os.environ[ADDRESS].split(":")[0]
    if jax.process_index() != 0:
        multihost_utils.sync_global_devices("listening")
        link = socket.create_connection((host, PORT))
        link.sendall(bytes([jax.process_index()]))
        return {0: link}
    with socket.create_server((host, PORT)) as server:
        multihost_utils.sync_global_devices("listening")
        links = [server.accept()[0] for _ in range(jax.process_count() - 1)]
    return {link.recv(1)[0]: link for link in links}


def way(name: str, case: Case, model: str) -> Callable[[jax.Array], jax.Array]:
    """The method `name` as a function of the array."""
    if name == HOST:
        return ThroughTheHost(case)
    if name == SOCKETS:
        return lambda x: jax.device_put(x, case.target)
    chosen = OneExchange() if name == DIRECT else model_of(model)
    return lambda x: rd.reshard(x, case.target, machine=chosen)


def all_arrived() -> None:
    """Return when every process has called this function. The collective begins only after all have arrived, since a
    process that waits in a collective has no thread left for its pending sends."""
    notes = notes_of_processes()
    if notes is not None:
        notes.wait_at_barrier(f"bench/sets/{next(_TURNS)}", 1000 * LONGEST)
    barrier()


def handle(task: dict[str, Any], part: Part) -> None:
    case = Case(*CASES[task["case"]], task["side"])
    x = case.array()
    for name, model in (("plan", model_of(task["cost_model"])), ("direct plan", OneExchange())):
        batches = rd.reshard_plan(x, case.target, machine=model).batches
        if not batches:  # neither side has a device of this process
            continue
        plan = batches[0].program.entries[0].plan
        part(
            {
                name: {
                    "steps": [step.kind for step in plan.steps],
                    "received": sum(plan.received) * plan.itemsize,
                    "bound": sum(plan.lower_bound) * plan.itemsize,
                    "crossing": plan.crossing * plan.itemsize,
                    "crossing_bound": plan.crossing_bound * plan.itemsize,
                }
            }
        )
    run_paired(case, {name: way(name, case, task["cost_model"]) for name in task["ways"]}, task, part, all_arrived)


if __name__ == "__main__":
    address = socket.gethostbyname(socket.gethostname())
    jax.config.update("jax_cross_host_transfer_socket_address", f"{address}:{TRANSFERS}")
    # With the default, 0.0.0.0, a peer on another host connects to itself and dies.
    jax.config.update("jax_cross_host_transport_addresses", ",".join([f"{address}:0"] * STREAMS))
    start()
    serve(handle)
