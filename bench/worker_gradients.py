"""Child of `bench.gradients`: one process of the job that `examples/gradients.py` is here."""

from __future__ import annotations

import sys
from typing import Any

from bench.children import ROOT, serve
from bench.pairing import Part
from bench.worker_cluster import start

sys.path.insert(0, str(ROOT / "examples"))

import gradients


def handle(task: dict[str, Any], part: Part) -> None:
    part(gradients.measure(task["layers"], gradients.WORDS, task["time"], task["rounds"]))


if __name__ == "__main__":
    start()
    serve(handle)
