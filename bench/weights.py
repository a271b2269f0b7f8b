"""Loading onto an emulated cluster whose storage gives each host a limited rate: `python -m bench.weights`.

A model of `--megabytes` lies in a file. Four hosts of two devices each load it onto FSDP by 4 and tensor parallel by 2,
and onto replicas: by `rd.load`, by reading on every host what its devices need, and by reading everything on one host.
The time is held against the larger of reading each byte once and sending what hosts lack, both at their limits.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from bench.cluster import HOSTS, jax_job, stream
from bench.network import Network

LAYER = {"q": (1024, 1024), "k": (1024, 1024), "v": (1024, 1024), "o": (1024, 1024), "up": (1024, 4096),
         "down": (4096, 1024), "norm": (1024,)}  # fmt: skip


def model(path: Path, megabytes: float) -> int:
    """Write a model of about so many megabytes; its bytes."""
    layer = sum(int(np.prod(shape)) for shape in LAYER.values()) * 4
    count = max(1, round(megabytes * 1e6 / layer))
    tensors = {
        f"layers.{k}.{name}": np.full(shape, k, np.float32) for k in range(count) for name, shape in LAYER.items()
    }
    save_file(tensors, path)
    return sum(array.nbytes for array in tensors.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=float, default=500)
    parser.add_argument("--storage", type=float, default=100e6, help="bytes per second of a host")
    parser.add_argument("--rate", default="500mbit", help="of a host's link")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    link = stream(options.rate)
    results = []
    with tempfile.TemporaryDirectory() as folder, Network(HOSTS, options.rate) as network:
        path = Path(folder) / "model.safetensors"
        size = model(path, options.megabytes)
        with jax_job(network, module="bench.worker_weights") as job:
            for layout in ("cut", "replicas"):
                task = {"path": str(path), "layout": layout, "rate": options.storage, "rounds": options.rounds}
                answer = job.ask(task, 900)
                # A host reads a quarter of the rows. It needs half of the rows and of the columns, or everything.
                lacking = size / 8 if layout == "cut" else size * (HOSTS - 1) / HOSTS
                floor = max(size / HOSTS / options.storage, lacking / link)
                results.append({"layout": layout, "bytes": size, "floor": floor, "stream": link, **answer})
                print(f"{layout}: {size:,} bytes; the larger of reading and sending at their limits {floor:.2f} s")
                for way, times in answer.get("times", {}).items():
                    took = statistics.median(times)
                    print(f"  {way}: {took:.2f} s, {took / floor:.2f}x; the first host reads {answer['read'][way]:,}")
                if answer["status"] != "ok":
                    print(answer)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
