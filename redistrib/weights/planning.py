"""`load_plan`: the bytes that each host reads and that devices receive in a load, with bounds and predicted seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding

from redistrib.cost.latency import LatencyBandwidth
from redistrib.cost.presets import MachineLike, cost_model, preset_of
from redistrib.errors import ChoiceError
from redistrib.plans.dtypes import itemsize_of
from redistrib.renamed import renamed
from redistrib.report import Printed, counted, rendered, seconds_text
from redistrib.resharding.padding import padding_of
from redistrib.resharding.planning import Planner, route_of
from redistrib.theory.boxes import boxes_of
from redistrib.theory.topology import Topology
from redistrib.weights.batches import CutArray, in_batches, line_of_landing
from redistrib.weights.folders import path_of
from redistrib.weights.headers import StoredTensor
from redistrib.weights.landing import landing
from redistrib.weights.layout import line_by_process
from redistrib.weights.names import Rename
from redistrib.weights.opening import read_headers
from redistrib.weights.targets import TargetTensor, asked_for, target_tree


@dataclass(frozen=True)
class LoadPlan(Printed):
    """The plan of `load` with the same arguments. Print it for a table.

    Attributes:
        tensors: number of tensors that are loaded.
        read_bytes: bytes that each host reads.
        moved_bytes: bytes that all devices receive from other devices.
        bound_bytes: a lower bound on them, from the layout of reading.
        reading_seconds: seconds of the host that reads most; None if the profile has no speed of the storage.
        moving_seconds: seconds of all plans, one after the other; None for cost models without seconds.

    >>> import tempfile
    >>> import jax.numpy as jnp
    >>> import redistrib as rd
    >>> from jax.sharding import PartitionSpec as P
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rd.save({"w": jnp.ones((512, 512))}, f"{folder}/w.safetensors")
    ...     plan = rd.load_plan(f"{folder}/w.safetensors", P("x"), mesh={"x": 4}, hosts=2)
    >>> plan.tensors, plan.read_bytes
    (1, (524288, 524288))
    """

    tensors: int
    read_bytes: tuple[int, ...]
    moved_bytes: int
    bound_bytes: int
    reading_seconds: float | None
    moving_seconds: float | None

    @property
    def seconds(self) -> float | None:
        """The longer of reading and moving, which overlap; None if either is unknown."""
        if self.reading_seconds is None or self.moving_seconds is None:
            return None
        return max(self.reading_seconds, self.moving_seconds)

    @property
    def total_bytes(self) -> int:
        """Bytes that all hosts read: those of the tensors, each once."""
        return sum(self.read_bytes)

    def _text(self) -> str:
        share = self.total_bytes / max(1, len(self.read_bytes))
        shares = [f"{size / share:.2f}x" if share else "-" for size in self.read_bytes]
        rows = [[str(k), f"{size:,}", shares[k]] for k, size in enumerate(self.read_bytes)]
        over = f", {self.moved_bytes / self.bound_bytes:.2f}x the bound" if self.bound_bytes else ""
        seconds = " and ".join(
            f"{phase} {'unknown' if value is None else seconds_text(value)}"
            for phase, value in (("reading", self.reading_seconds), ("moving", self.moving_seconds))
        )
        return (
            f"{rendered('', ('host', 'bytes read', 'over an even share'), rows)}\n"
            f"{counted(self.tensors, 'tensor', 'tensors')}, {self.total_bytes:,} bytes, each read once; "
            f"moved {self.moved_bytes:,} bytes over all devices{over}\n"
            f"predicted: {seconds}, which overlap"
        )


@renamed("cost_model", "machine")
def load_plan(
    path: str | Path,
    shardings: Any,
    *,
    mesh: Any = None,
    dtype: Any = None,
    rename: Rename = None,
    hosts: int | None = None,
    machine: MachineLike | None = None,
) -> LoadPlan:
    """The plan of `load` with the same arguments on several processes; only headers are read.

    Args:
        path, shardings, mesh, dtype, rename: as for `load`.
        hosts: the number of hosts that the devices belong to, in order; by default each process is a host.
        machine: see `synthesize`; seconds of reading need a profile with `storage_bandwidth`.

    Raises:
        WeightsFileError, LeafError: as `load` does.
        ChoiceError: if the devices are no multiple of the hosts.

    >>> import tempfile
    >>> import jax.numpy as jnp
    >>> from jax.sharding import PartitionSpec as P
    >>> from redistrib import save
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save({"w": jnp.ones((8, 8))}, f"{folder}/w.safetensors")
    ...     print(load_plan(f"{folder}/w.safetensors", P("x"), mesh={"x": 4}).total_bytes)
    256
    """
    files = read_headers(path_of(path), rename)
    tree = target_tree(files, asked_for(lambda: files, shardings, mesh), dtype)
    ordered = list(line_by_process(set[Any]().union(*(each.sharding.device_set for each in tree.tensors))).devices.flat)
    host = _hosts(ordered, hosts)
    platform = ordered[0].platform if ordered else jax.default_backend()
    model = cost_model(preset_of(platform) if machine is None else machine)
    planner = Planner(model)
    read = dict.fromkeys(sorted(set(host.values())), 0)
    moved = bound = 0
    seconds = 0.0
    targets: dict[StoredTensor, list[TargetTensor]] = {}
    for tensor in tree.tensors:
        targets.setdefault(tensor.stored, []).append(tensor)
    line = line_of_landing(tree.tensors)
    for cut in chain.from_iterable(in_batches(tree.tensors, line, host)):
        for device, piece in cut.pieces_of_devices().items():
            read[host[device]] += piece.read_bytes
        ends: list[tuple[str, Sharding]] = [("uint8", NamedSharding(line, PartitionSpec()))]
        if cut.dtype is not None:
            ends = [
                (min((cut.dtype, each.dtype), key=itemsize_of), landing(each.sharding))
                for each in targets[cut.stored[0]]
            ]
        for dtype, target in ends:
            received, least, time = _moving(cut, dtype, target, planner, None if hosts is None else host)
            moved, bound, seconds = moved + received, bound + least, seconds + time
    speed = model.storage_bandwidth if isinstance(model, LatencyBandwidth) else None
    return LoadPlan(
        len(targets),
        tuple(read.values()),
        moved,
        bound,
        None if speed is None else max(read.values(), default=0) / speed,
        seconds if model.unit == "seconds" else None,
    )


def _hosts(devices: Sequence[Any], hosts: int | None) -> dict[Any, int]:
    if hosts is None:
        return {device: device.process_index for device in devices}
    if hosts < 1 or len(devices) % hosts:
        raise ChoiceError("hosts", devices=len(devices), hosts=hosts)
    return {device: k * hosts // len(devices) for k, device in enumerate(devices)}


def _moving(
    cut: CutArray, dtype: str, target: Sharding, planner: Planner, hosts: dict[Any, int] | None
) -> tuple[int, int, float]:
    """Bytes that devices receive, the lower bound, and seconds."""
    layout, logical = cut.layout, cut.logical
    shape = jax.ShapeDtypeStruct(layout.shape, dtype, sharding=layout.sharding)
    padding = padding_of(cut.stored[0].name, shape, logical, target)
    route = route_of(layout.shape, layout.sharding, target, padding)
    if route.ends is None:  # tiles stay, or are put on other devices one by one
        tiles, needed = boxes_of(layout.sharding, layout.shape), boxes_of(target, logical or layout.shape)
        lacked = sum(box.volume - box.meet(tiles[device]).volume for device, box in needed.items()) * itemsize_of(dtype)
        return lacked, lacked, 0.0
    ends = route.ends
    if hosts is not None:
        ends = replace(ends, topology=Topology.of(hosts[device] for device in route.devices))
    plan = planner.plan(ends, dtype, str(route.devices[0].platform))
    received = sum(plan.received) * plan.itemsize
    if cut.dtype is None:  # the zeros behind small tensors move, and need not
        return received, cut.nbytes * (len(target.device_set) - 1), float(plan.cost)
    return received, sum(plan.lower_bound) * plan.itemsize, float(plan.cost)


def cut_by_axes(shape: Sequence[int], mesh: Mesh) -> NamedSharding:
    """The sharding in which each axis of a mesh cuts the first dimension that it divides and no earlier axis cuts."""
    spec: list[str | None] = [None] * len(shape)
    for name, count in mesh.shape.items():
        dim = next((k for k, n in enumerate(shape) if spec[k] is None and n and n % count == 0), None)
        if dim is not None:
            spec[dim] = name
    return NamedSharding(mesh, PartitionSpec(*spec))


def command(path: Path, axes: str, hosts: int | None, dtype: str | None, machine: str) -> LoadPlan:
    """The plan of the command `redistrib load --plan`: every tensor cut by all axes of a mesh of virtual devices."""
    from redistrib.explain.profiling.compare import virtual_cpu_devices
    from redistrib.lang.mesh import Mesh as Axes

    sizes = Axes.of(axes)
    devices = virtual_cpu_devices(sizes.size)
    shape = tuple(axis.size for axis in sizes.axes)
    mesh = jax.make_mesh(shape, tuple(axis.name for axis in sizes.axes), devices=devices)
    files = read_headers(path)
    names = [name for name in files.names if files[name].dtype not in ("int64", "uint64", "float64")]
    shardings = {name: cut_by_axes(files[name].shape, mesh) for name in names}
    return load_plan(path, shardings, dtype=dtype, hosts=hosts, machine=machine)
