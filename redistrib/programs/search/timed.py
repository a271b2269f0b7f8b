"""Ways to run a function on several devices, each with its predicted time."""

from __future__ import annotations

import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import jax

from redistrib.programs.ir.program import Program
from redistrib.programs.run.prepared import Prepared
from redistrib.programs.time.entry import simulate
from redistrib.programs.time.machine import Machine
from redistrib.programs.time.result import Simulation
from redistrib.report import ShownInNotebooks, seconds_text


class Measured(NamedTuple):
    """Seconds of calls, the first left out.

    Attributes:
        seconds: the median.
        each: all of them.

    >>> import jax.numpy as jnp
    >>> import redistrib as rd
    >>> args = jnp.ones((64, 8)), jnp.ones((8, 8))
    >>> found = rd.search(lambda x, w: x @ w, args, {"d": 4}, progress=False)
    >>> ran = found[0].measure(args, repeats=3)
    >>> len(ran.each), min(ran.each) <= ran.seconds <= max(ran.each)
    (3, True)
    """

    seconds: float
    each: tuple[float, ...]


class Timed(ShownInNotebooks, ABC):
    """A function spread over devices, with its time and memory.

    Attributes:
        prepared: the function.
        program: the program of every device.
        machine: the machine of the search.
    """

    prepared: Prepared
    program: Program
    machine: Machine

    @property
    @abstractmethod
    def name(self) -> str:
        """How it is spread."""

    @cached_property
    @abstractmethod
    def distributed(self) -> Any:
        """The function, run so; it needs as many devices as it is spread over."""

    @cached_property
    def simulation(self) -> Simulation:
        """The program, timed on the machine that was searched for."""
        return simulate(self.program, self.machine, record=False)

    @property
    def seconds(self) -> float:
        """The predicted seconds of a call."""
        return self.simulation.seconds

    @property
    def received_bytes(self) -> int:
        """Bytes that all devices together receive from others."""
        return self.program.received_bytes

    @cached_property
    def memory(self) -> int:
        """Bytes that the fullest device holds at the worst moment."""
        return max(self.simulation.peak_bytes.values(), default=0)

    @property
    def rank(self) -> tuple[float, str]:
        """The figure by which candidates are ordered."""
        return (self.seconds, self.name)

    def measure(self, args: Sequence[Any], repeats: int = 5) -> Measured:
        """Run it, and time it.

        Args:
            args: of the function.
            repeats: timed calls, after an untimed one.
        """
        return measured(self.distributed, tuple(args), repeats)

    def summary(self) -> str:
        """A line with its time and memory."""
        return (
            f"{self.prepared.name} on {self.name}, {self.machine.name}: {seconds_text(self.seconds)}, "
            f"{self.received_bytes:,} bytes received, at most {self.memory:,} bytes on a device"
        )


def measured(function: Callable[..., Any], args: tuple[Any, ...], repeats: int) -> Measured:
    """Time calls of a function of arrays."""
    jax.block_until_ready(function(*args))
    each = []
    for _ in range(repeats):
        began = time.perf_counter()
        jax.block_until_ready(function(*args))
        each.append(time.perf_counter() - began)
    return Measured(statistics.median(each), tuple(each))
