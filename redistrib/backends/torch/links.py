"""The processes of a plan: messages between them, and the subgroups of native collectives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from redistrib.arith import Int64
from redistrib.backends.torch.world import OfWorld
from redistrib.launches import times

# PyTorch 2.13 renamed the function.
_REDUCE_SCATTER = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor

OPERATIONS = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN}

# Subgroups by the name of their group and their ranks; PyTorch keeps them as long as the default group, too.
_SUBGROUPS: OfWorld[dict[tuple[str, tuple[int, ...]], Any]] = OfWorld(dict)


def is_gloo(group: Any = None) -> bool:
    """Whether gloo carries every message of a group: a group made without a backend has one for each kind of device."""
    accelerated = torch.cuda.is_available()
    pairs = [pair.partition(":")[::2] for pair in str(dist.get_backend_config(group)).split(",")]
    return all(backend == "gloo" for device, backend in pairs if device == "cpu" or accelerated)


class Links:
    """Processes that are the devices of plans: all ranks of a process group, or some of them.

    Attributes:
        group: the process group.
        members: the rank of each device in the group; None if device d is rank d, for all ranks.
        rank: the device number of this process.
        size: number of devices.
        batched: whether the backend takes messages in batches only, as NCCL does.
        tagged: whether messages of different calls never match; see `channels`.
        tag: of the messages that gloo carries.
    """

    tagged = False
    tag = 0

    def __init__(self, group: Any, members: Sequence[int] | None = None) -> None:
        self.group = None if group is dist.group.WORLD else group  # no reference to what ends all that is kept
        group_rank, ranks = dist.get_rank(group), dist.get_world_size(group)
        self.members = None if members is None or list(members) == list(range(ranks)) else list(members)
        self.size = ranks if self.members is None else len(self.members)
        self.rank = group_rank if self.members is None else self.members.index(group_rank)
        self.batched = not is_gloo(group)

    @property
    def device(self) -> torch.device:
        """The memory of messages without tensors of the caller."""
        return torch.device("cuda", torch.cuda.current_device()) if self.batched else torch.device("cpu")

    @property
    def whole(self) -> bool:
        """Whether all ranks of the group are devices."""
        return self.members is None

    def start(
        self, sends: Sequence[tuple[int, torch.Tensor]], receives: Sequence[tuple[int, torch.Tensor]]
    ) -> list[Any]:
        """Begin to send and receive flat tensors, to and from devices; returns the works to wait for.

        The works of the receives come first, in order.
        """
        if not sends and not receives:
            return []
        if self.members is not None:
            sends = [(self.members[device], tensor) for device, tensor in sends]
            receives = [(self.members[device], tensor) for device, tensor in receives]
        if self.batched:
            operations = [dist.P2POp(dist.irecv, t, group=self.group, group_peer=peer) for peer, t in receives]
            operations += [dist.P2POp(dist.isend, t, group=self.group, group_peer=peer) for peer, t in sends]
            return list(dist.batch_isend_irecv(operations))
        # As `dist.irecv` and `dist.isend`, without their checks.
        group = self.process_group
        works = [group.recv([tensor], peer, self.tag) for peer, tensor in receives]
        works += [group.send([tensor], peer, self.tag) for peer, tensor in sends]
        return works

    @property
    def process_group(self) -> Any:
        """The process group, also where it is the default one."""
        return dist.group.WORLD if self.group is None else self.group

    @property
    def limited(self) -> bool:
        """Whether `all_to_all` ends with an error where a device does not come within the limit of all calls."""
        return self.whole and not self.tagged and not self.batched

    def all_to_all(self, into: torch.Tensor, out: torch.Tensor, late: Callable[[], object] = lambda: None) -> None:
        """Send a row of a table to every device, and receive a row from each; if it is limited, say when it is late."""
        if self.limited:
            options = dist.AllToAllOptions()
            options.timeout = timedelta(seconds=times.WAIT_SECONDS)
            work = self.process_group.alltoall_base(into, out, [], [], options)
            with suppress(RuntimeError):  # it goes on, or has failed
                work.wait(timedelta(seconds=times.LOOK_SECONDS))
                return
            late()
            work.wait()
            return
        if self.whole and not self.tagged:
            dist.all_to_all_single(into, out, group=self.group)
            return
        others = [device for device in range(self.size) if device != self.rank]
        works = self.start([(d, out[d]) for d in others], [(d, into[d]) for d in others])
        into[self.rank] = out[self.rank]
        for work in works:
            work.wait()

    def all_gather(self, value: str) -> list[str]:
        """The texts of all devices; for messages of errors, not for speed."""
        device = self.device
        data = torch.frombuffer(bytearray(value.encode()), dtype=torch.uint8).to(device) if value else None
        counts = torch.zeros(self.size, dtype=torch.int64, device=device)
        self.all_to_all(counts, torch.full_like(counts, len(value.encode())))
        longest = max(1, int(counts.max()))
        table, texts = (torch.zeros(self.size, longest, dtype=torch.uint8, device=device) for _ in range(2))
        if data is not None:
            table[:, : len(data)] = data
        self.all_to_all(texts, table)
        rows = zip(texts.cpu(), counts.tolist(), strict=True)
        return [bytes(row[:count].tolist()).decode() for row, count in rows]

    def gate(self) -> None:
        """Return when all processes have reached this call, if messages of another call could match its messages."""

    def all_gather_into(self, into: torch.Tensor, out: torch.Tensor, group: Any) -> None:
        """The platform's all-gather, among the processes of `subgroup`."""
        dist.all_gather_into_tensor(into, out, group=group)

    def reduce_scatter(self, into: torch.Tensor, out: torch.Tensor, operation: Any, group: Any) -> None:
        """The platform's reduce-scatter, from a tensor with a part for each member."""
        _REDUCE_SCATTER(into, out, op=operation, group=group)

    def all_reduce(self, tensor: torch.Tensor, operation: Any, group: Any) -> None:
        """The platform's all-reduce, in place."""
        dist.all_reduce(tensor, operation, group=group)

    @property
    def splits(self) -> bool:
        """Whether the group can be split: the default group alone, because every process must make the call."""
        return self.whole and self.group is None

    def subgroup(self, groups: Int64) -> Any:
        """The process group, ranks ascending, of this device among `groups`, `[groups, members]`; collective."""
        rows = np.sort(groups, axis=1)
        if rows.shape[1] == self.size:
            return self.group
        subgroup, subgroups = None, _SUBGROUPS.get()
        for row in rows[np.argsort(rows[:, 0])].tolist():
            key = (self.process_group.group_name, tuple(row))
            if key not in subgroups:
                subgroups[key] = dist.new_group(row, backend="gloo" if not self.batched else None)
            if self.rank in row:
                subgroup = subgroups[key]
        return subgroup


def can_go_native(links: Links, groups: Int64) -> bool:
    """Whether a collective of the platform can carry out a step over `groups`, `[groups, members]`."""
    everyone = groups.size == links.size
    return everyone and links.whole and (groups.shape[1] == links.size or links.splits)
