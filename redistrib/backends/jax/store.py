"""The store of the coordinator of `jax.distributed`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NoReturn

import jax

from redistrib.errors import CommunicatorError

_ROOT = "redistrib"


class CoordinatorStore:
    """A `launches.store.Store` over the client of `jax.distributed`."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def put(self, key: str, value: str) -> bool:
        try:
            self.client.key_value_set(f"{_ROOT}/{key}", value)
        except jax.errors.JaxRuntimeError as error:
            if "ALREADY_EXISTS" not in str(error):
                _raise_unreachable(error)
            return False
        return True

    def get(self, key: str, seconds: float) -> str | None:
        try:
            value: str = self.client.blocking_key_value_get(f"{_ROOT}/{key}", max(1, round(1000 * seconds)))
        except jax.errors.JaxRuntimeError as error:
            if "DEADLINE" not in str(error) and "NOT_FOUND" not in str(error):
                _raise_unreachable(error)
            return None
        return value

    def under(self, prefix: str) -> list[tuple[str, str]]:
        try:
            pairs: list[tuple[str, str]] = self.client.key_value_dir_get(f"{_ROOT}/{prefix}")
        except jax.errors.JaxRuntimeError as error:
            _raise_unreachable(error)
        return pairs

    def delete(self, key: str) -> None:
        with suppress(jax.errors.JaxRuntimeError):  # the next call finds out that the coordinator is gone
            self.client.key_value_delete(f"{_ROOT}/{key}")

    def meet(self, name: str, processes: Sequence[int], seconds: float) -> bool:
        try:
            self.client.wait_at_barrier(f"{_ROOT}/{name}", round(1000 * seconds), process_ids=list(processes))
        except jax.errors.JaxRuntimeError:
            return False
        return True


def _raise_unreachable(error: Exception) -> NoReturn:
    raise CommunicatorError(
        f"the coordinator of jax.distributed does not answer: {str(error).partition(chr(10))[0]}; the job has ended, "
        "or its first process"
    ) from None
