"""All ranks compare what they are about to do, by one short message between each two, before anything moves."""

from __future__ import annotations

import hashlib

import torch

from redistrib.backends.torch.links import Links
from redistrib.errors import CommunicatorError, RedistribError, TilesError

_BYTES = 16  # of the digest of a call; the first is 0 where a rank has found a problem
# What is wrong on one rank is raised as an error of its class on all of them; any other problem as a `TilesError`.
_RAISED: dict[str, type[RedistribError]] = {"CommunicatorError": CommunicatorError}


class Agreement:
    """The comparison of calls on one process group.

    Every rank sends 16 bytes to every other: the digest of its call. Where all are equal the call goes on; else all
    ranks exchange texts, and raise one error.
    """

    def __init__(self, links: Links, device: torch.device) -> None:
        self._links = links
        self._own = torch.zeros(links.size, _BYTES, dtype=torch.uint8, device=device)
        self._others = torch.zeros_like(self._own)

    def require(self, what: str, digest: bytes, problem: RedistribError | None = None) -> None:
        """Go on if all ranks make the same call and none has found a problem; collective.

        Args:
            what: the call, in a few words; two ranks with different digests should have different words.
            digest: of the call, at least 15 bytes.
            problem: what this rank has found wrong with its own arguments.

        Raises:
            CommunicatorError: on every rank, if two ranks make different calls; names them.
            TilesError: on every rank, if one of them has found a problem with its tensors; names the first.
        """
        if self._links.size == 1:
            if problem is not None:
                raise problem
            return
        word = bytes([problem is None]) + digest[: _BYTES - 1]
        self._own[:] = torch.frombuffer(bytearray(word), dtype=torch.uint8)
        self._links.all_to_all(self._others, self._own)
        if problem is None and torch.equal(self._others, self._own):
            return
        problems = self._links.all_gather("" if problem is None else f"{type(problem).__name__}\n{problem}")
        calls = self._links.all_gather(what)
        rank = next((rank for rank, text in enumerate(problems) if text), None)
        if rank is not None:
            if problem is not None and len(set(problems)) == 1:  # it is one of the call, and not of one rank's tensors
                raise problem
            kind, _, text = problems[rank].partition("\n")
            raise _RAISED.get(kind, TilesError)(text if kind in _RAISED else f"rank {rank}: {text}")
        other = next((rank for rank, one in enumerate(calls) if one != calls[0]), None)
        if other is None:  # the words are the same, and what they stand for is not
            raise CommunicatorError(f"the ranks give different plans for {what}; give the same on all ranks")
        raise CommunicatorError(
            f"rank {other} makes another call than rank 0: {calls[other]}, and rank 0: {calls[0]}; make "
            "the same calls in the same order on all ranks"
        )


def digest(text: str) -> bytes:
    """A digest of a text, of 32 bytes."""
    return hashlib.sha256(text.encode()).digest()
