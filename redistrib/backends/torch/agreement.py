"""A comparison of the calls of all ranks before data moves, by a short message between each pair."""

from __future__ import annotations

import torch

from redistrib.backends.torch.links import Links
from redistrib.digests import digest_of_parts
from redistrib.errors import CommunicatorError, RedistribError, TilesError

_BYTES = 16  # of the digest of a call; the first byte is 0 if the rank has a problem
# Classes in which the problem of a rank is raised on all ranks; any other problem is raised as a `TilesError`.
RAISED: dict[str, type[RedistribError]] = {"CommunicatorError": CommunicatorError}


class GroupCall:
    """The description of a call, for comparisons.

    Attributes:
        words: the call in a few words; different calls should have different words.
        table: `[ranks, 16]` its digest, once for every rank.
        digest: the digest as an even number.
    """

    def __init__(self, words: str, ranks: int, text: str = "") -> None:
        """`text` is compared; by default `words`."""
        self.words = words
        row = b"\1" + bytes.fromhex(digest_of_parts([text or words], 2 * (_BYTES - 1)))
        self.digest = int.from_bytes(row[1:7], "big") << 1
        self.table = torch.frombuffer(bytearray(row * ranks), dtype=torch.uint8).view(ranks, _BYTES)


class Agreement:
    """The comparison of calls between the devices of some links.

    Every rank sends the digest of its call, 16 bytes, to every other. If all are equal the call goes on; else all ranks
    exchange texts and raise the same error.
    """

    def __init__(self, links: Links) -> None:
        self._links = links
        self._others = torch.zeros(links.size, _BYTES, dtype=torch.uint8, device=links.device)
        self._refusal = torch.zeros_like(self._others)

    def require(self, call: GroupCall, problem: RedistribError | None = None) -> None:
        """Return if all ranks make the same call and none has a problem; collective.

        Args:
            call: the call.
            problem: the error in the arguments of this rank, or None.

        Raises:
            CommunicatorError: on every rank, if two ranks make different calls; names them.
            TilesError: on every rank, if a rank has a problem with its tensors; names the first.
        """
        if self._links.size == 1:
            if problem is not None:
                raise problem
            return
        table = self._refusal if problem is not None else call.table.to(self._others.device)
        self._links.all_to_all(self._others, table)
        if problem is None and torch.equal(self._others, table):
            return
        problems = self._links.all_gather("" if problem is None else f"{type(problem).__name__}\n{problem}")
        calls = self._links.all_gather(call.words)
        rank = next((rank for rank, text in enumerate(problems) if text), None)
        if rank is not None:
            if problem is not None and len(set(problems)) == 1:  # of the call, not of the tensors of a rank
                raise problem
            kind, _, text = problems[rank].partition("\n")
            raise RAISED.get(kind, TilesError)(text if kind in RAISED else f"rank {rank}: {text}")
        other = next((rank for rank, call_words in enumerate(calls) if call_words != calls[0]), None)
        if other is None:  # the words are equal and the digests are not
            raise CommunicatorError(f"the ranks give different plans for {calls[0]}; give the same on all ranks")
        raise CommunicatorError(
            f"rank {other} makes another call than rank 0: {calls[other]}, and rank 0: {calls[0]}; make the same calls "
            "in the same order on all ranks"
        )
