"""The links of a channel: its messages carry the tag of their call."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from redistrib.arith import Int64
from redistrib.backends.torch.links import Links
from redistrib.backends.torch.store import GroupStore

COMPARING, _GATE = 1 << 29, 1 << 30  # bits in the tags of messages without data
_NOBODY = (1 << 31) - 1  # the tag of a message that nobody sends


@contextmanager
def yielding_readers() -> Iterator[None]:
    """Give the threads that read sockets for new process groups a policy by which they interrupt no other thread.

    A reader of gloo spins while another thread writes to the same socket. If it takes the core of that thread, it spins
    for a whole time slice of the system, milliseconds, where ranks have no core for each of their threads.
    """
    tasks = Path("/proc/self/task")
    before = set(tasks.iterdir()) if tasks.exists() else None
    yield
    for task in set(tasks.iterdir()) - before if before is not None else ():
        with suppress(OSError):  # an ended thread, or a system that forbids it
            if (task / "comm").read_text().strip() == "gloo_tcp_loop":
                os.sched_setscheduler(int(task.name), os.SCHED_BATCH, os.sched_param(0))


class TaggedLinks(Links):
    """Processes with a gloo group of their own, whose messages carry the tag of their call.

    `dist.new_group` needs all processes, or that the processes of the group have created equally many groups before.
    Neither holds here, so the constructor of the class creates the group.
    """

    tagged = True

    def __init__(self, store: GroupStore, name: str, ranks: Sequence[int], rank: int, timeout: float) -> None:
        """The processes `ranks` of the default group, `rank` among them; collective over these processes."""
        self._store, self._name, self._timeout = store, name, timedelta(seconds=timeout)
        self.members = None
        self.size, self.rank, self.batched = len(ranks), list(ranks).index(rank), False
        self.group = self._process_group_of("all", range(self.size))
        self._subgroups: dict[tuple[int, ...], Any] = {}
        self._devices: dict[Any, Sequence[int]] = {}
        self._gated: set[Sequence[int]] = set()

    def _process_group_of(self, name: str, devices: Sequence[int]) -> Any:
        with yielding_readers():
            store = self._store.of_group(f"{self._name}/{name}")
            return dist.ProcessGroupGloo(store, list(devices).index(self.rank), len(devices), self._timeout)

    @property
    def process_group(self) -> Any:
        return self.group

    def begin(self, tag: int) -> None:
        """Set the tag of the next messages."""
        self.tag = tag
        self._gated.clear()

    def gate(self, group: Any = None) -> None:
        """Return when all ranks of a group, or of all, have reached this call: log2 rounds of messages, once a call."""
        devices = self._devices.get(group, range(self.size))
        if devices in self._gated or range(self.size) in self._gated:
            return
        self._gated.add(devices)
        tag, self.tag = self.tag, self.tag | _GATE
        token, other = torch.zeros(2, 1, dtype=torch.uint8)
        count, place = len(devices), devices.index(self.rank)
        step = 1
        while step < count:
            before, after = devices[(place - step) % count], devices[(place + step) % count]
            for work in self.start([(before, token)], [(after, other)]):
                work.wait()
            step *= 2
        self.tag = tag

    def subgroup(self, groups: Int64) -> Any:
        """The process group, devices ascending, of this device among `groups`; its devices alone create it."""
        row = tuple(next(sorted(row) for row in groups.tolist() if self.rank in row))
        if len(row) == self.size:
            return self.group
        if row not in self._subgroups:
            self._subgroups[row] = self._process_group_of("-".join(map(str, row)), row)
            self._devices[self._subgroups[row]] = row
        return self._subgroups[row]

    @property
    def splits(self) -> bool:
        return True

    def all_gather_into(self, into: torch.Tensor, out: torch.Tensor, group: Any) -> None:
        self.gate(group)
        group._allgather_base(into, out).wait()

    def reduce_scatter(self, into: torch.Tensor, out: torch.Tensor, operation: Any, group: Any) -> None:
        self.gate(group)
        options = dist.ReduceScatterOptions()
        options.reduceOp = operation
        group._reduce_scatter_base(into, out, options).wait()

    def all_reduce(self, tensor: torch.Tensor, operation: Any, group: Any) -> None:
        self.gate(group)
        group.allreduce([tensor], operation).wait()

    def end(self) -> None:
        """Wake all ranks that wait in these groups: a time-out of a message that nobody sends ends them in gloo."""
        for group in (self.group, *self._subgroups.values()):
            for device in range(group.size()):
                if device != group.rank():  # a rank that has ended wakes nobody
                    with suppress(RuntimeError):
                        group.recv([torch.zeros(1)], device, _NOBODY).wait(timedelta(milliseconds=1))
