"""A comparison of the calls of all ranks before data moves, by a short message between each pair."""

from __future__ import annotations

import time
from collections import Counter

import torch

from redistrib.backends.torch.links import Links
from redistrib.backends.torch.store import GroupStore
from redistrib.backends.torch.world import OfWorld
from redistrib.digests import digest_of_parts
from redistrib.errors import CommunicatorError, RedistribError
from redistrib.launches import times
from redistrib.launches.agreement import agree
from redistrib.launches.call_errors import not_made

_TURNS: OfWorld[Counter[str]] = OfWorld(Counter)  # comparisons on each process group, of the same number on its ranks
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


def wrong_call(problem: RedistribError, ranks: int) -> GroupCall:
    """The call of a rank with a problem in its arguments."""
    return GroupCall(f"a call that is wrong ({problem})", ranks)


def require_equal(links: Links, call: GroupCall, problem: RedistribError | None = None) -> None:
    """Return if all ranks make the same call and none has a problem; collective.

    Every rank sends the digest of its call, 16 bytes, to every other. If all are equal the call goes on; else all ranks
    exchange texts and raise the same error.

    Args:
        links: the ranks.
        call: the call.
        problem: the error in the arguments of this rank, or None.

    Raises:
        CommunicatorError: on every rank, if two ranks make different calls, or one does not come; names them.
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
    came = f"came/{links.process_group.group_name}/{_turn(links)}" if links.limited else ""
    try:
        links.all_to_all(others, table, lambda: GroupStore().put(f"{came}/{links.rank}", "here", replace=True))
    except RuntimeError as error:
        if not came:
            raise
        raise _not_come(links, call, came, error) from error
    if problem is None and torch.equal(others, table):
        return
    agree(links.all_gather, links.rank, problem, {"plan": bytes(call.table[0].tolist()).hex()}, words=call.words)


def _turn(links: Links) -> int:
    turns, name = _TURNS.get(), links.process_group.group_name
    turns[name] += 1
    return turns[name]


def _not_come(links: Links, call: GroupCall, came: str, error: RuntimeError) -> CommunicatorError:
    """The error of a comparison that has failed: the ranks that wait have told the store that they have come."""
    time.sleep(2 * times.LOOK_SECONDS)
    store = GroupStore()
    absent = [rank for rank in range(links.size) if store.get(f"{came}/{rank}", 0.0) is None]
    if not absent:
        return CommunicatorError(f"on rank {links.rank} {call.words} has failed: {type(error).__name__} {error}")
    why = f"not called {call.words} within {times.WAIT_SECONDS:g} s, or has ended"
    return not_made(absent, why, range(links.size), "rank")
