"""All ranks compare what they are about to do, by one short message between each two, before anything moves."""

from __future__ import annotations

import hashlib

import torch

from redistrib.backends.torch.links import Links
from redistrib.errors import CommunicatorError, RedistribError, TilesError

_BYTES = 16  # of the digest of a call; the first is 0 where a rank has found a problem
# What is wrong on one rank is raised as an error of its class on all of them; any other problem as a `TilesError`.
RAISED: dict[str, type[RedistribError]] = {"CommunicatorError": CommunicatorError}


class GroupCall:
    """What a rank is about to do, to be compared.

    Attributes:
        words: the call in a few words; two different calls should have different words.
        table: `[ranks, 16]` its digest, a row for every rank.
        digest: the same as an even number.
    """

    def __init__(self, words: str, ranks: int, text: str = "") -> None:
        """`text` is what is compared; by default the words."""
        self.words = words
        row = b"\1" + hashlib.sha256((text or words).encode()).digest()[: _BYTES - 1]
        self.digest = int.from_bytes(row[1:7], "big") << 1
        self.table = torch.frombuffer(bytearray(row * ranks), dtype=torch.uint8).view(ranks, _BYTES)


class Agreement:
    """The comparison of calls between the devices of some links.

    Every rank sends 16 bytes to every other: the digest of its call. Where all are equal the call goes on; else all
    ranks exchange texts, and raise one error.
    """

    def __init__(self, links: Links) -> None:
        self._links = links
        device = torch.device("cuda", torch.cuda.current_device()) if links.batched else torch.device("cpu")
        self._others = torch.zeros(links.size, _BYTES, dtype=torch.uint8, device=device)
        self._refusal = torch.zeros_like(self._others)

    def require(self, call: GroupCall, problem: RedistribError | None = None) -> None:
        """Go on if all ranks make the same call and none has found a problem; collective.

        Args:
            call: the call.
            problem: what this rank has found wrong with its own arguments.

        Raises:
            CommunicatorError: on every rank, if two ranks make different calls; names them.
            TilesError: on every rank, if one of them has found a problem with its tensors; names the first.
        """
        if self._links.size == 1:
            if problem is not None:
                raise problem
            return
        own = self._refusal if problem is not None else call.table.to(self._others.device)
        self._links.all_to_all(self._others, own)
        if problem is None and torch.equal(self._others, own):
            return
        problems = self._links.all_gather("" if problem is None else f"{type(problem).__name__}\n{problem}")
        calls = self._links.all_gather(call.words)
        rank = next((rank for rank, text in enumerate(problems) if text), None)
        if rank is not None:
            if problem is not None and len(set(problems)) == 1:  # it is one of the call, and not of one rank's tensors
                raise problem
            kind, _, text = problems[rank].partition("\n")
            raise RAISED.get(kind, TilesError)(text if kind in RAISED else f"rank {rank}: {text}")
        other = next((rank for rank, one in enumerate(calls) if one != calls[0]), None)
        if other is None:  # the words are the same, and what they stand for is not
            raise CommunicatorError(f"the ranks give different plans for {calls[0]}; give the same on all ranks")
        raise CommunicatorError(
            f"rank {other} makes another call than rank 0: {calls[other]}, and rank 0: {calls[0]}; make the same calls "
            "in the same order on all ranks"
        )
