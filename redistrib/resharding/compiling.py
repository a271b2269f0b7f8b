"""Programs that are compiled side by side."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import jax

Key = TypeVar("Key", bound=Hashable)


def compiling(makers: Mapping[Key, Callable[[], Any]]) -> dict[Key, Callable[[], Any]]:
    """Build programs one after the other, and compile each while the next are built and the caller goes on.

    With several processes each program compiles before the next, because compilers may have to meet across processes.

    Args:
        makers: for each key a function that builds a value with a method `compile`.

    Returns:
        For each key a function that waits for its compiled program and returns it.
    """
    if jax.process_count() > 1:
        return {name: make().compile for name, make in makers.items()}
    pool = ThreadPoolExecutor(max_workers=4)
    try:
        return {name: pool.submit(_compiled, make()).result for name, make in makers.items()}
    finally:
        pool.shutdown(wait=False)


def _compiled(program: Any) -> Any:
    return program.compile()
