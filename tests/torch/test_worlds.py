"""Default process groups one after another in the same processes."""

from __future__ import annotations

import socket

from ranks import Ranks


def test_nothing_outlives_a_process_group() -> None:
    ports = []
    for _ in range(3):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            ports.append(free.getsockname()[1])
    with Ranks(4) as launched:
        threads = launched.run("worlds.anew", ports, [[3, 2, 1, 0], [1, 2], [2, 0, 3, 1]])
    assert threads == [0] * 4
