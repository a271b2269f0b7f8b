"""Hosts on one machine: network namespaces joined by a bridge, each behind a link of limited rate.

Every namespace and link has the process number in its name. They are removed when the `Network` closes or the process
is interrupted or terminated; the next process that starts removes those of a killed one.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from types import FrameType

PREFIX = "rdb"
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
CONGESTION = "reno"  # the algorithm that every kernel lets a namespace choose
HOSTS_DIRECTORY = Path("/etc/netns")


class NetworkUnavailable(RuntimeError):
    """The emulated cluster cannot be built here; the message says what is missing."""


def why_not() -> str | None:
    """The reason why no network can be built, or None."""
    if os.geteuid() != 0:
        return "the emulated cluster makes network namespaces and so needs root; run it as root or leave it out"
    if not (shutil.which("ip") and shutil.which("tc")):
        return "the emulated cluster needs the commands ip and tc: apt-get install iproute2"
    probe = f"{PREFIX}{os.getpid()}probe"
    added = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True, check=False)
    if added.returncode:
        return f"this kernel or container refuses network namespaces: {added.stderr.strip()}"
    _quiet("ip", "netns", "del", probe)
    return None


class Network:
    """`hosts` namespaces on one bridge.

    Attributes:
        names: the namespaces, one per host.
        addresses: their IPv4 addresses.
    """

    def __init__(self, hosts: int, rate: str = "500mbit", burst: str = "256kb", latency: str = "100ms") -> None:
        """Build the network.

        Args:
            hosts: number of namespaces.
            rate: of each host's link, in each direction, as `tc` takes it.
            burst: size of the token bucket: bytes that an idle link sends immediately. At hundreds of Mbit/s it must
                exceed one segment of 64 KiB, or the link never reaches its rate.
            latency: the longest wait of a packet in the filter before it is dropped.

        Raises:
            NetworkUnavailable: if no network can be built; the message has the reason.
        """
        reason = why_not()
        if reason:
            raise NetworkUnavailable(reason)
        remove_stale()
        tag = f"{PREFIX}{os.getpid()}"
        self.names = tuple(f"{tag}n{k}" for k in range(hosts))
        self.addresses = tuple(f"10.213.0.{k + 1}" for k in range(hosts))
        self._bridge = f"{tag}b"
        self._closed = False
        self._previous = {s: signal.signal(s, _interrupt) for s in SIGNALS}
        atexit.register(self.close)
        try:
            self._build(tag, ("tbf", "rate", rate, "burst", burst, "latency", latency))
        except BaseException:
            self.close()
            raise

    def _build(self, tag: str, shape: tuple[str, ...]) -> None:
        _run("ip", "link", "add", self._bridge, "type", "bridge")
        _run("ip", "link", "set", self._bridge, "up")
        for k, (name, address) in enumerate(zip(self.names, self.addresses, strict=True)):
            outer = f"{tag}v{k}"
            _run("ip", "netns", "add", name)
            _run("ip", "link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", name)
            _run("ip", "link", "set", outer, "master", self._bridge, "up")
            _run("ip", "-n", name, "address", "add", f"{address}/24", "dev", "eth0")
            _run("ip", "-n", name, "link", "set", "eth0", "up")
            _run("ip", "-n", name, "link", "set", "lo", "up")
            # Not BBR: when a round begins, its model of the path is that of the flows of the round before.
            _quiet(*self.prefix(k), "sh", "-c", f"echo {CONGESTION} > /proc/sys/net/ipv4/tcp_congestion_control")
            _run("tc", "-n", name, "qdisc", "add", "dev", "eth0", "root", *shape)  # what the host sends
            _run("tc", "qdisc", "add", "dev", outer, "root", *shape)  # what the host receives
            # Collectives listen on the address that the host name resolves to; `ip netns exec` puts this file in place.
            folder = HOSTS_DIRECTORY / name
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "hosts").write_text(f"127.0.0.1 localhost\n{address} {socket.gethostname()}\n")

    def prefix(self, host: int) -> list[str]:
        """The words before a command that run it on `host`."""
        return ["ip", "netns", "exec", self.names[host]]

    def close(self) -> None:
        """Remove namespaces, links, bridge and hosts files; a second call does nothing."""
        if self._closed:
            return
        self._closed = True
        for number in SIGNALS:  # a second interrupt must not stop the clearing up
            signal.signal(number, signal.SIG_IGN)
        for name in self.names:
            _remove_namespace(name)
        _quiet("ip", "link", "del", self._bridge)
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        atexit.unregister(self.close)

    def __enter__(self) -> Network:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def remove_stale() -> list[str]:
    """Remove the namespaces and links of processes that have ended; return their names."""
    removed = []
    pattern = re.compile(rf"^{PREFIX}(\d+)(n\d+|probe)$")
    names = {line.split()[0] for line in _output("ip", "netns", "list").splitlines() if line.strip()}
    if HOSTS_DIRECTORY.is_dir():
        names |= {entry.name for entry in HOSTS_DIRECTORY.iterdir()}
    for name in sorted(names):
        if (match := pattern.match(name)) and not _alive(int(match[1])):
            _remove_namespace(name)
            removed.append(name)
    links = re.findall(rf"^\d+: ({PREFIX}(\d+)(?:b|v\d+))[@:]", _output("ip", "-o", "link"), re.MULTILINE)
    for link, pid in links:
        if not _alive(int(pid)):
            _quiet("ip", "link", "del", link)
            removed.append(link)
    return removed


def _remove_namespace(name: str) -> None:
    for pid in _output("ip", "netns", "pids", name).split():
        _kill(int(pid))
    _quiet("ip", "netns", "del", name)  # takes its end of the veth pair, and so the pair, along
    shutil.rmtree(HOSTS_DIRECTORY / name, ignore_errors=True)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def _interrupt(number: int, _: FrameType | None) -> None:
    raise SystemExit(128 + number)  # unwinds through `close`


def _run(*command: str) -> None:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise NetworkUnavailable(f"{' '.join(command)} failed: {result.stderr.strip()}")


def _quiet(*command: str) -> None:
    subprocess.run(command, capture_output=True, check=False)


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout
