"""Weights loaded from files, cast and fused, on an emulated cluster of four hosts with two devices each.

A model is in a file, and the storage has a limited rate for each host. The hosts load it onto FSDP by 4 and tensor
parallel by 2, and onto replicas. The methods are `rd.load`, a read on every host of all tiles of its devices, and a
read of the whole file on one host. The least time is the larger of two: to read each byte once, and to send the bytes
that hosts have not read, both at the limits of storage and links.

In the case `fused`, float32 weights of trainers on two hosts, fully sharded, go to samplers on the other two: q, k and
v as one bfloat16 array, tensor parallel.
"""

from __future__ import annotations

import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from bench.children import progress
from bench.cluster import HOSTS, jax_job, stream
from bench.network import Network, why_not
from bench.results import Record
from bench.stats import quantile
from bench.suite import Settings, Suite, cases, once

LAYER = {"q": (1024, 1024), "k": (1024, 1024), "v": (1024, 1024), "o": (1024, 1024), "up": (1024, 4096),
         "down": (4096, 1024), "norm": (1024,)}  # fmt: skip
EACH, ONE = "each host reads its own", "one host reads all"
EARLY, LATE = "cast, reshard, fuse", "reshard, fuse, cast"
LOADS = ("cut", "replicas")
FUSED = "fused"


def model(path: Path, megabytes: float) -> int:
    """Write a model of about `megabytes` megabytes, each layer filled with its number; return its bytes."""
    layer = sum(int(np.prod(shape)) for shape in LAYER.values()) * 4
    count = max(1, round(megabytes * 1e6 / layer))
    tensors = {
        f"layers.{k}.{name}": np.full(shape, k, np.float32) for k in range(count) for name, shape in LAYER.items()
    }
    save_file(tensors, path)
    return sum(array.nbytes for array in tensors.values())


def floor(case: str, size: int, settings: Settings) -> float:
    """The least time in seconds: the larger of reading and sending at their limits.

    Args:
        case: a case of the suite.
        size: bytes of the model's tensors, or of the samplers' tensors.
        settings: settings with the bytes per second of the storage per host, and of a link.
    """
    if case == FUSED:
        return size / 2 / float(settings["stream"])  # each of two hosts receives a half
    # A host reads a quarter, in whole rows. It needs a quarter, in rows of half the width, or the whole file.
    missing = size / 8 if case == "cut" else size * (HOSTS - 1) / HOSTS
    return max(size / HOSTS / float(settings["storage"]), missing / float(settings["stream"]))


def measure(names: list[str], settings: Settings, limit: float) -> Generator[Record]:
    """One record per case."""
    with tempfile.TemporaryDirectory() as folder, Network(HOSTS, settings["rate"]) as network:
        path = Path(folder) / "model.safetensors"
        size = model(path, settings["megabytes"])
        with jax_job(network, module="bench.worker_weights") as job:
            for name in progress(names, "weights on the emulated cluster"):
                answer = job.ask({**settings, "path": str(path), "case": name}, limit)
                total = answer.get("bytes", size)
                yield {"case": name, "bytes": total, "floor": floor(name, total, settings), **answer}


def over_floor(record: Record, way: str) -> float | None:
    """The median time of a method over the least time; None where it did not run."""
    times: dict[str, Any] = record.get("times", {})
    return quantile(times[way], 0.5) / record["floor"] if way in times else None


SUITE = Suite(
    "weights",
    measure,
    once((*LOADS, FUSED)),
    options={"rounds": 5, "megabytes": 500.0, "rate": "500mbit", "storage": 100e6, "cost_model": "cluster"},
    problems=cases({name: name for name in (*LOADS, FUSED)}),
    prepared=lambda settings: {**settings, "stream": stream(settings["rate"])},
    missing=lambda _: why_not(),
    limit=900.0,
)
