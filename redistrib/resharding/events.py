"""Events of `jax.monitoring`: counts of a running job's calls of `reshard`.

`/redistrib/launch` is recorded for each launch, with the scalar `/redistrib/received_bytes` beside it: bytes that all
devices receive in it. `/redistrib/copies` is recorded once for all leaves of a call that copies move in the memory of
the process, with the same scalar beside it. `/redistrib/cache_miss` is recorded with `cache=` for each tree, route,
plan or program that is not in its cache. Register listeners with `jax.monitoring.register_event_listener` and
`register_scalar_listener`.
"""

from __future__ import annotations

import jax

from redistrib.launches.order import LeafBatch

LAUNCH = "/redistrib/launch"
COPIES = "/redistrib/copies"
RECEIVED_BYTES = "/redistrib/received_bytes"
CACHE_MISS = "/redistrib/cache_miss"
_NAMED = 3  # paths of leaves in the name of a launch


def launched(batch: LeafBatch) -> None:
    """Record a launch and the bytes that devices receive in it."""
    received = sum(
        len(group) * entry.times * sum(step.received_total() for step in entry.plan.steps) * entry.plan.itemsize
        for group, entry in batch.parts
    )
    jax.monitoring.record_event(LAUNCH)
    jax.monitoring.record_scalar(RECEIVED_BYTES, received)


def copied(received: int) -> None:
    """Record the copies of a call, and the bytes of targets that their devices did not hold before."""
    jax.monitoring.record_event(COPIES)
    jax.monitoring.record_scalar(RECEIVED_BYTES, received)


def cache_missed(cache: str) -> None:
    """Record that a tree, route, plan or program was not in its cache."""
    jax.monitoring.record_event(CACHE_MISS, cache=cache)


def named_launch(batch: LeafBatch) -> jax.profiler.TraceAnnotation:
    """A context in which a profiler names the host's work after the leaves of a launch."""
    paths = [item.path or "the array" for item in batch.items]
    more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
    return jax.profiler.TraceAnnotation(f"redistrib {', '.join(paths[:_NAMED])}{more}")
