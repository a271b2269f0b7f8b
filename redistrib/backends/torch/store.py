"""The store of the default process group of `torch.distributed`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist

from redistrib.backends.torch.private import default_store
from redistrib.launches.store import ROOT, unreachable
from redistrib.launches.times import pauses


class GroupStore:
    """A `launches.store.Store` over the store of the default process group.

    Older versions of PyTorch list no keys, and a thread that waits in theirs holds up the others.
    """

    def __init__(self) -> None:
        self._store = default_store()

    def put(self, key: str, value: str, replace: bool = False) -> bool:
        with _answering():
            if replace:
                self._store.set(f"{ROOT}/{key}", value)
                return True
            return bool(self._store.compare_set(f"{ROOT}/{key}", "", value).decode() == value)

    def get(self, key: str, seconds: float) -> str | None:
        waits = pauses(seconds, 0.001, 0.02)
        with _answering():
            while not self._store.check([f"{ROOT}/{key}"]):
                pause = next(waits, None)
                if pause is None:
                    return None
                time.sleep(pause)
            return str(self._store.get(f"{ROOT}/{key}").decode())

    def of_group(self, name: str) -> Any:
        """A store for a process group, of PyTorch, by which its ranks find one another."""
        return dist.PrefixStore(f"{ROOT}/{name}", self._store)


@contextmanager
def _answering() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise unreachable("the store of the default process group", error) from None
