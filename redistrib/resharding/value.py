"""The prepared moves of a tree as a value, to be read and printed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from redistrib.launches.moves import LeafMove
from redistrib.launches.order import LeafBatch
from redistrib.plans.plan import Plan
from redistrib.renamed import renamed_attribute
from redistrib.report import ShownInNotebooks, counted, rendered
from redistrib.resharding.memory import MemoryCopies, said_of_copies
from redistrib.theory.topology import Topology


@dataclass(frozen=True, repr=False)
class TreePlan(ShownInNotebooks):
    """The launches that move a tree of arrays, in order, and their bytes.

    Attributes:
        batches: leaves that travel together, in the order of launches. What is in another kind of memory than the
            devices' default comes for its launch alone.
        kept: paths of leaves that every device holds already; source and result share buffers.
        empty: paths of leaves without elements.
        by_device_put: paths of leaves that `jax.device_put` moves: host values, to other devices, or between kinds of
            memory of the same devices under one sharding.
        before_bytes: bytes in the default memory of the fullest device before the launches, with the results of
            `jax.device_put` and of copies.
        memory_limit: the limit in bytes per device, or None.
        donate: whether sources are deleted as they travel.
        links: the topology of the plans, for each set of devices and cost model.
        copied: paths of leaves that copies move, within the memory of this process, before the launches.
        copied_bytes: bytes of their targets that the devices do not hold before, summed over the devices.
        memory_copies: copies between kinds of memory: of leaves from or to another kind than the devices' default.

    >>> import jax
    >>> import redistrib as rd
    >>> from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec as P
    >>> mesh = AbstractMesh((4,), ("x",))
    >>> tree = {"w": jax.ShapeDtypeStruct((8, 8), "float32", sharding=NamedSharding(mesh, P("x")))}
    >>> plan = rd.reshard_plan(tree, P(None, "x"), mesh=mesh)
    >>> plan.received_bytes, len(plan.batches)
    (192, 1)
    """

    batches: tuple[LeafBatch, ...]
    kept: tuple[str, ...]
    empty: tuple[str, ...]
    by_device_put: tuple[str, ...]
    before_bytes: int
    memory_limit: int | None
    donate: bool
    links: tuple[Topology, ...] = ()
    copied: tuple[str, ...] = ()
    copied_bytes: int = 0
    memory_copies: tuple[MemoryCopies, ...] = ()

    made = renamed_attribute("made", "empty")
    put = renamed_attribute("put", "by_device_put")

    @property
    def order(self) -> tuple[str, ...]:
        """Paths of the leaves that move, in the order in which they do."""
        return tuple(item.path for batch in self.batches for item in batch.items)

    @property
    def peak_bytes(self) -> int:
        """Bytes alive on the fullest device at the worst moment: leaves before and after, and scratch.

        Outputs and scratch are those that the compiler reports for the programs that will run. Launches still in flight
        when the next one starts are not counted; with a memory limit, or a progress bar, there are none.
        """
        return max(self.before_bytes, *[batch.peak_bytes for batch in self.batches], 0)

    @property
    def received_bytes(self) -> int:
        """Bytes that devices receive from others, summed over the devices."""
        return self._sum(lambda plan: plan.received) + self.copied_bytes

    @property
    def lower_bound_bytes(self) -> int:
        """Bytes that devices cannot do without receiving, summed over the devices."""
        return self._sum(lambda plan: [plan.least_received]) + self.copied_bytes

    def _sum(self, elements: Callable[[Plan], Sequence[int]]) -> int:
        """Bytes over all leaves and devices, from elements on every device."""
        return sum(
            len(group) * entry.times * sum(elements(entry.plan)) * entry.plan.itemsize
            for batch in self.batches
            for group, entry in batch.parts
        )

    def __repr__(self) -> str:
        return f"<TreePlan: {self._leaves()} in {self._launches()}, peak {self.peak_bytes:,} bytes>"

    def _leaves(self) -> str:
        return counted(len(self.order), "leaf", "leaves")

    def _launches(self) -> str:
        return counted(len(self.batches), "launch", "launches")

    def _text(self) -> str:
        rows = []
        for number, batch in enumerate(self.batches, start=1):
            for k, (group, entry) in enumerate(batch.parts):
                plan = entry.plan
                first, count = group[0].path or "the array", len(group)
                rows.append(
                    [
                        "" if k else str(number),
                        first if count == 1 else f"{first} and {count - 1} more",
                        ("" if entry.times == 1 else f"{entry.times} parts, ") + f"{plan.dtype}{list(plan.shape)}",
                        f"{plan.source} -> {plan.target}",
                        " + ".join(_steps(group[0], plan)) + (", stacked" if entry.stacked else ""),
                        f"{count * entry.times * max(plan.received) * plan.itemsize:,}",
                        "" if k else f"{batch.peak_bytes:,}",
                    ]
                )
        columns = ("launch", "leaves", "array", "plan", "steps", "received", "peak")
        lines = [rendered("", columns, rows)] if rows else []
        limit = "" if self.memory_limit is None else f" of {self.memory_limit:,} allowed"
        lines.append(
            f"{self._leaves()} in {self._launches()}; in place already: {len(self.kept)}, "
            f"empty: {len(self.empty)}, by jax.device_put: {len(self.by_device_put)}"
            + (f", by copies: {len(self.copied)}" if self.copied else "")
        )
        lines.append(f"bytes per device: {self.before_bytes:,} before, {self.peak_bytes:,}{limit} at the peak")
        lines += said_of_copies(self.memory_copies)
        lines += [f"links between hosts taken to be slower: {links}" for links in self.links if links.host]
        return "\n".join(lines)


def _steps(item: LeafMove, plan: Plan) -> list[str]:
    """The steps of a leaf's plan, with its copies from and to other memory."""
    steps = [step.kind for step in plan.steps]
    return ["load"] * item.loads + steps + ["store"] * item.stores
