"""Tasks in child processes: XLA's partitioner kills its process on some types, and some compilations never end.

A child reads one task per line from standard input and answers on the file descriptor named by `REPLY_VARIABLE`:
first `{"ready": true}`, then for each task any number of `{"part": {...}}` and one `{"done": true}`. The parent keeps
the parts that arrived before a crash.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

REPLY_VARIABLE = "BENCH_REPLY_FD"
PR_SET_PDEATHSIG = 1
START_LIMIT = 180.0  # seconds in which a child imports its modules and joins its job
ROOT = Path(__file__).resolve().parent.parent


class Child:
    """A restartable child that runs `python -m MODULE`.

    Attributes:
        restarts: number of starts after the first one, each after a crash or a time limit.
    """

    def __init__(
        self, module: str, environment: Mapping[str, str], interpreter: str = sys.executable, prefix: Sequence[str] = ()
    ) -> None:
        self._command = [*prefix, interpreter, "-m", module]
        self._environment = {**os.environ, **environment}
        self._process: subprocess.Popen[bytes] | None = None
        self._reply = -1
        self._ready = False
        handle, log = tempfile.mkstemp(prefix=f"{module}-", suffix=".log")
        os.close(handle)
        self._log = Path(log)
        self.restarts = -1

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._log.unlink(missing_ok=True)

    def ask(self, task: Mapping[str, Any], limit: float) -> dict[str, Any]:
        """Run one task; return the merged parts of its answer, with `status` "ok", "crash", "limit" or "error".

        Args:
            task: a JSON object.
            limit: seconds after which the parent kills the child.
        """
        self.send(task)
        return self.answer(limit)

    def send(self, task: Mapping[str, Any]) -> None:
        """Send one task without waiting for its answer; start the child where it does not run."""
        process = self._running()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(task).encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            pass  # the child has died; `answer` reports the crash

    def answer(self, limit: float) -> dict[str, Any]:
        """The answer to the task that was sent; the limit excludes the start of the child."""
        process = self._running()
        answer: dict[str, Any] = {"status": "ok"}
        deadline = time.monotonic() + (limit if self._ready else START_LIMIT)
        pending = b""
        while True:
            ready, _, _ = select.select([self._reply], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                self.stop()
                return {**answer, "status": "limit"}
            chunk = os.read(self._reply, 1 << 20)
            if not chunk:
                code = process.wait()
                self.stop()
                return {**answer, "status": "crash", "signal": _signal_name(code), "log": self._last_log_line()}
            pending += chunk
            *lines, pending = pending.split(b"\n")
            for line in lines:
                message = json.loads(line)
                if message.get("ready"):
                    self._ready = True
                    deadline = time.monotonic() + limit
                elif message.get("done"):
                    return answer
                else:
                    answer.update(message["part"])

    def start(self) -> None:
        """Start the child before its first task."""
        self._running()

    def stop(self) -> None:
        """Kill the child and its process group."""
        if self._process is not None:
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None
        if self._reply >= 0:
            os.close(self._reply)
            self._reply = -1

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._ready = False
            self._reply, write_end = os.pipe()
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(
                    self._command,
                    cwd=ROOT,
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    pass_fds=[write_end],
                    preexec_fn=_end_with_parent,
                    env={**self._environment, REPLY_VARIABLE: str(write_end)},
                )
            os.close(write_end)
            self.restarts += 1
        return self._process

    def _last_log_line(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines() if self._log.exists() else []
        fatal = [line for line in lines if re.match(r"F\d{4} ", line) or "Check failed" in line or "Fatal" in line]
        return (fatal or lines or [""])[-1][:300]


def _end_with_parent() -> None:
    """End a child with its parent, so that no long compilation outlives a killed bench. Linux only."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _signal_name(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit {code}"


def serve(handle: Callable[[dict[str, Any], Callable[[dict[str, Any]], None]], None]) -> None:
    """Call `handle(task, part)` in a child for each task; `part` sends a part of the answer immediately.

    An exception becomes the part `{"status": "error", "error": text}`, and the child goes on with the next task.
    """
    reply = os.fdopen(int(os.environ[REPLY_VARIABLE]), "w")

    def send(message: dict[str, Any]) -> None:
        reply.write(json.dumps(message) + "\n")
        reply.flush()

    send({"ready": True})
    for line in _lines():
        try:
            handle(json.loads(line), lambda part: send({"part": part}))
        except Exception as error:  # the child answers every task, and compilers raise any exception
            text = f"{type(error).__name__}: {error}"
            send({"part": {"status": "error", "error": text[:600]}})
        send({"done": True})


def _lines() -> Iterator[str]:
    yield from iter(sys.stdin.readline, "")


def progress(items: Iterable[Any], label: str) -> Iterator[Any]:
    """Yield the items, and print the number done on standard error, at most once in ten seconds."""
    sequence = list(items)
    printed = time.monotonic()
    for done, item in enumerate(sequence):
        if time.monotonic() - printed > 10:
            print(f"{label}: {done} of {len(sequence)}", file=sys.stderr, flush=True)
            printed = time.monotonic()
        yield item
