"""Processes with one process group, that run functions of the modules in `programs`, all of them together."""

from __future__ import annotations

import faulthandler
import importlib
import multiprocessing
import os
import socket
import sys
import time
import traceback
from datetime import timedelta
from multiprocessing import connection
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
LONGEST = 120.0  # seconds that one function may take


class Ranks:
    """A launch of processes; one that fails to answer in time is ended, and the next call launches anew."""

    def __init__(self, count: int, timeout: float = 1800.0) -> None:
        """`timeout` is that of the process group, in seconds."""
        self.count, self._timeout = count, timeout
        # One process imports PyTorch, and the ranks are copies of it.
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["torch.distributed.tensor.parallel", "redistrib.api"])
        self._processes: list[Any] = []
        self._pipes: list[Any] = []

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _start(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            store = free.getsockname()[1]
        for rank in range(self.count):
            here, there = self._context.Pipe()
            process = self._context.Process(
                target=_serve, args=(there, rank, self.count, store, self._timeout), daemon=True
            )
            process.start()
            self._processes.append(process)
            self._pipes.append(here)

    def _end(self) -> None:
        for process in self._processes:
            process.kill()
            process.join()
        self._processes, self._pipes = [], []

    def answers(
        self, function: str, *args: Any, longest: float = LONGEST, patience: float = 5.0
    ) -> dict[int, tuple[Any, str]]:
        """Call `module.function(*args)` on every rank; what each returns, and its traceback or "".

        Where one raises, the others get `patience` seconds.
        """
        if not self._processes:
            self._start()
        for pipe in self._pipes:
            pipe.send((function, args))
        answers: dict[int, Any] = {}
        end = time.monotonic() + longest
        while len(answers) < self.count and time.monotonic() < end:
            missing = {self._pipes[rank]: rank for rank in range(self.count) if rank not in answers}
            for pipe in connection.wait(list(missing), timeout=max(0.0, end - time.monotonic())):
                try:
                    answers[missing[pipe]] = pipe.recv()
                except EOFError:
                    process = self._processes[missing[pipe]]
                    process.join(5)
                    answers[missing[pipe]] = None, f"the process ended with exit code {process.exitcode}"
            if any(text for _, text in answers.values()):  # the others may wait for it in vain
                end = min(end, time.monotonic() + patience)
        return answers

    def run(self, function: str, *args: Any, longest: float = LONGEST) -> list[Any]:
        """Call `module.function(*args)` on every rank; what each returns.

        Raises:
            AssertionError: if one raises, with the traceback of the first that does; or does not return in time.
        """
        answers = self.answers(function, *args, longest=longest)
        problems = [(rank, text) for rank, (_, text) in sorted(answers.items()) if text]
        if not problems and len(answers) < self.count:
            self._end()
            raise AssertionError(
                f"ranks {sorted({*range(self.count)} - {*answers})} do not return from {function}{args}"
            )
        if problems:
            self._end()
            raise AssertionError(f"{function}{args} failed on ranks {[r for r, _ in problems]}:\n{problems[0][1]}")
        return [answers[rank][0] for rank in range(self.count)]


def _serve(pipe: Any, rank: int, count: int, store: int, timeout: float) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    sys.path[:0] = [str(HERE.parent.parent), str(HERE)]
    import torch
    import torch.distributed as dist

    faulthandler.enable()
    torch.set_num_threads(1)
    found = dist.TCPStore("127.0.0.1", store, count, is_master=rank == 0)
    dist.init_process_group("gloo", store=found, rank=rank, world_size=count, timeout=timedelta(seconds=timeout))
    while True:
        try:
            function, args = pipe.recv()
        except EOFError:
            return
        faulthandler.dump_traceback_later(LONGEST - 10)  # where a rank waits for another, before it is ended
        try:
            module, _, name = function.rpartition(".")
            value, problem = getattr(importlib.import_module(f"programs.{module}"), name)(*args), ""
        except BaseException:
            value, problem = None, traceback.format_exc()
        faulthandler.cancel_dump_traceback_later()
        pipe.send((value, problem))
