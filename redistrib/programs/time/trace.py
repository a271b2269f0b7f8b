"""Traces in the Trace Event Format, which Perfetto and chrome://tracing open.

A process for each device, a thread for each of its streams, a complete event (`X`) for each operation with one for each
step of a move inside it, and a counter (`C`) of the bytes that the device holds. Times are in microseconds.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from redistrib.programs.time.clocks import Event, Run


def chrome(run: Run, program: str, machine: str) -> dict[str, Any]:
    """The trace of a run, with the names of the program and the machine, as an object for JSON."""
    streams = sorted({event.stream for event in run.events})
    devices: dict[int, list[int]] = defaultdict(list)
    for device, clock in run.clock_of.items():
        devices[clock].append(device)
    events: list[dict[str, Any]] = []
    for device in sorted(run.clock_of):
        events.append(_named("process_name", device, 0, f"device {device}"))
        events += [_named("thread_name", device, k, stream or "operations") for k, stream in enumerate(streams)]
    for event in run.events:
        for device in devices[event.clock]:
            events += _complete(event, device, streams.index(event.stream))
    samples = [(at, event.clock, size) for event in run.events for at, size in byte_samples(event)]
    for at, clock, size in sorted(samples, key=lambda sample: sample[0]):
        events += [
            {"name": "bytes", "ph": "C", "ts": at * 1e6, "pid": device, "tid": 0, "args": {"live": size}}
            for device in devices[clock]
        ]
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {"program": program, "machine": machine},
    }


def byte_samples(event: Event) -> tuple[tuple[float, int], ...]:
    """When an operation changes the live bytes, and to how many."""
    return (event.start, event.during), (event.end, event.after)


def _named(kind: str, device: int, thread: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": device, "tid": thread, "args": {"name": name}}


def _complete(event: Event, device: int, thread: int) -> list[dict[str, Any]]:
    common = {"ph": "X", "pid": device, "tid": thread, "cat": event.kind}
    events = [
        common
        | {
            "name": event.name,
            "ts": event.start * 1e6,
            "dur": (event.end - event.start) * 1e6,
            "args": {"bytes": event.during},
        }
    ]
    if event.kind == "move" and len(event.stages) > 1:
        at = event.start
        for stage in event.stages:
            last = stage is event.stages[-1]
            until = event.end if last else min(event.end, at + stage.seconds)
            events.append(
                common | {"name": stage.name, "ts": at * 1e6, "dur": (until - at) * 1e6, "args": {"tile": stage.tile}}
            )
            at = until
    return events
