"""What programs of a platform do otherwise than elsewhere: facts of its compiler, and measured choices."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jax


@dataclass(frozen=True)
class Widening:
    """A compiler that makes 32 bits of bfloat16, and options under which it does not.

    With the options trees compile 3 times as fast as with bfloat16 as integers, and take 6% less memory.

    Attributes:
        options: of the compiler.
        selecting: matches a lowered program whose bfloat16 is widened under the options too, although its compiled text
            does not show it: NaNs lose their payload, and subnormal numbers become 0.
        converting: matches a compiled program that widens.
    """

    options: Mapping[str, Any] = field(hash=False)
    selecting: re.Pattern[str]
    converting: re.Pattern[str]


@dataclass(frozen=True)
class Quirks:
    """Facts and choices for the programs of a platform; the defaults suit every platform.

    Each choice may be switched off by itself, with empty caches: programs stay correct and may become slower. Without
    `one_at_a_time` many launches may deadlock. The gains of CPUs were measured on 8 devices of one process
    (bench/results/quirks.json, docs/benchmarks.md).

    Attributes:
        ragged: whether the compiler has a ragged all-to-all; without it, ragged exchanges go in rounds.
        copies_results: whether the compiler copies the result of a collective to the program's result. Then every
            gather takes a local copy, and every permute scratch.
        adds_up_lines: whether the compiler turns a gather of tiles of rank 1 into a sum of padded tiles, of twice the
            bytes.
        knows_kinds_of_memory: whether results of `jit` lie in the memory that their type says.
        wide_sums: element types whose sums across devices the compiler makes in a wider type, with its bytes.
        adds_by_gloo: whether sums across devices are gloo's once a distributed job has begun, even one of one process.
            Gloo sometimes gives the first device of a group wrong sums of tiles of several MiB (jax #40830).
        copies: whether tiles of one process may be copied in the host's memory instead, see `xla_cpu.copies`.
        chunk: bytes of a tile above which dense collectives with local copies run in a loop over slices; None: never.
            On CPUs larger buffers come from the operating system, and touching their pages is slow: a quarter less
            memory, 1.4 times as fast; compiles take 2.3 times as long. On TPUs memory is scarce.
        piecewise: all-to-alls of small groups cut and join shares one by one; by default one packed buffer is reshaped
            and transposed. Trees compile 3 times as fast, and programs run 1.2 times as fast.
        numbers: copies of boxes that differ only in their offsets take these as arguments, so that XLA compiles them
            once. Trees compile 1.5 to 2.6 times as fast.
        one_size: only tiles of equal size are coalesced, because a loop for every size takes long to compile. A tree of
            small leaves of several sizes compiles 4 to 6 times as fast.
        widening: of bfloat16. None: bfloat16 travels as integers.
        unoptimized_bytes: bytes of source tiles per device up to which the compiler does not optimize a launch. Without
            it the first call on a tree of 64 leaves takes 1.3 times as long (`bench/test_quick.py`); larger tiles would
            be copied more slowly.
        one_at_a_time: launches do not overlap, and all arrays have arrived when a call returns. Devices share a pool of
            threads, and a later launch may take the threads for which an earlier launch waits. Without it XLA ends the
            process on a tree of a hundred launches.
        coalesced_least: the fewest leaves of small tiles that travel side by side. With more than 2 a tree compiles 1.4
            times as fast.
        bucket_bytes: bytes of source and target tiles from which a launch is worth its cost. With fewer than the
            default trees compile 1.5 to 1.9 times as fast, in more launches.
        half_duplex_bytes: bytes of a share from which links between processes carry data in one direction at a time
            (`half_duplex`), and all-to-alls go in rounds. On the emulated cluster a swap then takes 1.1 times as long
            as the link needs for its bytes; without it, 1.7 times. None: never.
        shares_memory: devices of one process share its memory. Of a tile that several of them hold, one receives it
            from other processes, and the others copy it. A load onto replicas on the emulated cluster takes 1.1 times
            the limit of its links; without it, 1.3 times.
    """

    ragged: bool = False
    copies_results: bool = False
    adds_up_lines: bool = False
    knows_kinds_of_memory: bool = True
    wide_sums: Mapping[str, int] = field(default_factory=dict, hash=False)
    adds_by_gloo: bool = False
    copies: bool = False
    chunk: int | None = None
    piecewise: bool = False
    numbers: bool = False
    one_size: bool = False
    widening: Widening | None = None
    unoptimized_bytes: int | None = None
    one_at_a_time: bool = False
    coalesced_least: int = 2
    bucket_bytes: int = 16 * 2**20
    half_duplex_bytes: int | None = None
    shares_memory: bool = False

    @property
    def has_reliable_reduce_scatter(self) -> bool:
        """Whether the platform's reduce-scatter always gives correct sums."""
        return not (self.adds_by_gloo and jax.distributed.is_initialized())

    def compiler_options(self, source_bytes: int) -> dict[str, Any]:
        """Options for a launch with so many bytes of source tiles per device."""
        if self.unoptimized_bytes is None or source_bytes > self.unoptimized_bytes:
            return {}
        return {"xla_backend_optimization_level": 0}
