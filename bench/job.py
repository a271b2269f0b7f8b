"""A distributed job on an emulated network: all its processes get the same tasks in the same order."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from bench.children import Child
from bench.network import Network

PORTS = itertools.count(20000)  # a new one for every start: an old one may stay in use for a while


class Job:
    """The processes of a job; all start again after a problem has killed one of them.

    The environment of each process has `BENCH_CLUSTER_ADDRESS` (host:port of the first process),
    `BENCH_CLUSTER_PROCESSES` (their number) and `BENCH_CLUSTER_NUMBER` (the number of this one).
    """

    def __init__(
        self,
        network: Network,
        module: str,
        environment: Mapping[str, str],
        per_host: int = 1,
        interpreter: str = sys.executable,
    ) -> None:
        self._network = network
        self._module = module
        self._environment = environment
        self._per_host = per_host
        self._interpreter = interpreter
        self._children: list[Child] = []

    def __enter__(self) -> Job:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.stop()

    def ask(self, task: dict[str, Any], limit: float) -> dict[str, Any]:
        """Run a task on all processes; return the first one's answer, with the slowest process's time per round."""
        if not self._children:
            self._start()
        for child in self._children:
            child.send(task)
        answers: list[dict[str, Any]] = []
        bad: list[dict[str, Any]] = []
        for child in self._children:
            answers.append(child.answer(10 if bad else limit))
            bad += [a for a in answers[-1:] if a["status"] in ("crash", "limit")]
        answer = {**answers[0], "status": bad[0]["status"] if bad else answers[0]["status"]}
        if bad:
            answer.pop("times", None)
            answer["log"] = bad[0].get("log", "")
            self.stop()
        elif all("times" in a for a in answers):
            names = answer["times"]
            answer["times"] = {n: [max(t) for t in zip(*(a["times"][n] for a in answers), strict=True)] for n in names}
            for other in answers[1:]:
                if "wrong" in other:
                    answer["wrong"] = other["wrong"]
        return answer

    def stop(self) -> None:
        """End all processes of the job."""
        for child in self._children:
            child.stop()
        self._children = []

    def _start(self) -> None:
        addresses = self._network.addresses
        meeting = f"{addresses[0]}:{next(PORTS)}"
        for number in range(len(addresses) * self._per_host):
            environment = {
                **self._environment,
                "BENCH_CLUSTER_ADDRESS": meeting,
                "BENCH_CLUSTER_PROCESSES": str(len(addresses) * self._per_host),
                "BENCH_CLUSTER_NUMBER": str(number),
            }
            prefix = self._network.prefix(number // self._per_host)
            self._children.append(Child(self._module, environment, self._interpreter, prefix))
        for child in self._children:
            child.start()
