"""Child of `bench.cluster`: one host of a ring in which each sends a TCP stream to the next."""

from __future__ import annotations

import os
import socket
import threading
import time
from typing import Any

from bench.children import serve
from bench.pairing import Part

PORT = 19000
ADDRESSES = os.environ.get("BENCH_STREAM_ADDRESSES", "").split(",")
NUMBER = int(os.environ.get("BENCH_CLUSTER_NUMBER", "0"))


def neighbours() -> tuple[socket.socket, socket.socket]:
    """Connections to the next host and from the one before."""
    door = socket.create_server((ADDRESSES[NUMBER], PORT))
    following = ADDRESSES[(NUMBER + 1) % len(ADDRESSES)]
    while True:
        try:
            there = socket.create_connection((following, PORT), timeout=60)
            break
        except ConnectionRefusedError:  # it has not opened its door yet
            time.sleep(0.05)
    there.settimeout(None)
    here, _ = door.accept()
    door.close()
    return there, here


def receive(connection: socket.socket, size: int) -> None:
    buffer = memoryview(bytearray(min(size, 1 << 20)))
    while size:
        got = connection.recv_into(buffer[: min(size, len(buffer))])
        if not got:
            raise ConnectionError("the host before this one hung up")
        size -= got


def handle(task: dict[str, Any], part: Part) -> None:
    there, here = neighbours()
    data = memoryview(bytes(task["bytes"]))
    times = []
    for _ in range(task["rounds"]):
        for _ in range(len(ADDRESSES)):  # all have begun once a word has gone around
            there.sendall(b".")
            receive(here, 1)
        start = time.perf_counter()
        sender = threading.Thread(target=there.sendall, args=(data,))
        sender.start()
        receive(here, len(data))
        sender.join()
        times.append(time.perf_counter() - start)
    part({"times": {"stream": times}})


if __name__ == "__main__":
    serve(handle)
