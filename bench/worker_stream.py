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
    server = socket.create_server((ADDRESSES[NUMBER], PORT))
    address = ADDRESSES[(NUMBER + 1) % len(ADDRESSES)]
    while True:
        try:
            following = socket.create_connection((address, PORT), timeout=60)
            break
        except ConnectionRefusedError:  # the next host does not listen yet
            time.sleep(0.05)
    following.settimeout(None)
    previous, _ = server.accept()
    server.close()
    return following, previous


def receive(connection: socket.socket, size: int) -> None:
    buffer = memoryview(bytearray(min(size, 1 << 20)))
    while size:
        count = connection.recv_into(buffer[: min(size, len(buffer))])
        if not count:
            raise ConnectionError("the previous host closed its connection")
        size -= count


def handle(task: dict[str, Any], part: Part) -> None:
    following, previous = neighbours()
    data = memoryview(bytes(task["bytes"]))
    times = []
    for _ in range(task["rounds"]):
        for _ in range(len(ADDRESSES)):  # a barrier: a byte passes around the ring
            following.sendall(b".")
            receive(previous, 1)
        start = time.perf_counter()
        sender = threading.Thread(target=following.sendall, args=(data,))
        sender.start()
        receive(previous, len(data))
        sender.join()
        times.append(time.perf_counter() - start)
    part({"times": {"stream": times}})


if __name__ == "__main__":
    serve(handle)
