"""A comparison of the calls of all ranks before data moves, by a short message between each pair."""

from __future__ import annotations

import torch

from redistrib.backends.torch.links import Links
from redistrib.digests import digest_of_parts
from redistrib.errors import RedistribError
from redistrib.launches.agreement import agree

_BYTES = 16  # of the digest of a call; the first byte is 0 if the rank has a problem


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


def require_equal(links: Links, call: GroupCall, problem: RedistribError | None = None) -> None:
    """Return if all ranks make the same call and none has a problem; collective.

    Every rank sends the digest of its call, 16 bytes, to every other. If all are equal the call goes on; else all ranks
    exchange texts and raise the same error.

    Args:
        links: the ranks.
        call: the call.
        problem: the error in the arguments of this rank, or None.

    Raises:
        CommunicatorError: on every rank, if two ranks make different calls; names them.
        RedistribError: on every rank, if a rank has a problem; names the first.
    """
    if links.size == 1:
        if problem is not None:
            raise problem
        return
    table = call.table.to(links.device)
    if problem is not None:
        table = torch.zeros_like(table)
    others = torch.empty_like(table)
    links.all_to_all(others, table)
    if problem is None and torch.equal(others, table):
        return
    agree(links.all_gather, links.rank, problem, {"plan": bytes(call.table[0].tolist()).hex()}, words=call.words)
