"""The store of the coordinator of `jax.distributed`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import jax

from redistrib.launches.store import ROOT, unreachable

_COORDINATOR = "the coordinator of jax.distributed"


class CoordinatorStore:
    """A `launches.store.JobStore` over the client of `jax.distributed`."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def put(self, key: str, value: str, replace: bool = False) -> bool:
        try:
            self.client.key_value_set(f"{ROOT}/{key}", value, replace)
        except jax.errors.JaxRuntimeError as error:
            if "ALREADY_EXISTS" not in str(error):
                raise unreachable(_COORDINATOR, error) from None
            return False
        return True

    def get(self, key: str, seconds: float) -> str | None:
        try:
            value: str = self.client.blocking_key_value_get(f"{ROOT}/{key}", max(1, round(1000 * seconds)))
        except jax.errors.JaxRuntimeError as error:
            if "DEADLINE" not in str(error) and "NOT_FOUND" not in str(error):
                raise unreachable(_COORDINATOR, error) from None
            return None
        return value

    def under(self, prefix: str) -> list[tuple[str, str]]:
        try:
            pairs: list[tuple[str, str]] = self.client.key_value_dir_get(f"{ROOT}/{prefix}")
        except jax.errors.JaxRuntimeError as error:
            raise unreachable(_COORDINATOR, error) from None
        return pairs

    def delete(self, key: str) -> None:
        with suppress(jax.errors.JaxRuntimeError):  # the next call finds out that the coordinator is gone
            self.client.key_value_delete(f"{ROOT}/{key}")

    def meet(self, name: str, processes: Sequence[int], seconds: float) -> bool:
        try:
            self.client.wait_at_barrier(f"{ROOT}/{name}", round(1000 * seconds), process_ids=list(processes))
        except jax.errors.JaxRuntimeError:
            return False
        return True
