"""Quirks of virtual CPU devices, which are threads of one process.

`quirks_of` is the only place that tests for this platform. Each field of `Quirks` is one difference. In `ONE_PROCESS`
each may be switched off by itself, with empty caches: programs stay correct and may become slower. Without
`one_at_a_time` many launches may deadlock.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax

from redistrib.backends.jax.xla_cpu.half_duplex import HalfDuplexLinks


@dataclass(frozen=True)
class Quirks:
    """Choices for the programs of a platform; the defaults are those of a platform without quirks.

    Each gain was measured on 8 devices of one process (bench/results/quirks.json, docs/benchmarks.md).

    Attributes:
        piecewise: all-to-alls of small groups cut and join shares one by one; by default one packed buffer is reshaped
            and transposed. Trees compile 3 times as fast, and programs run 1.2 times as fast.
        chunk: bytes of a tile above which collectives run in slices, because larger buffers come from the operating
            system and touching their pages is slow. A quarter less memory, 1.4 times as fast; compiles take 2.3 times
            as long.
        numbers: copies of boxes that differ only in their offsets take these as arguments, so that XLA compiles them
            once. Trees compile 1.5 to 2.6 times as fast.
        one_size: only tiles of equal size are coalesced, because a loop for every size takes long to compile. A tree of
            small leaves of several sizes compiles 4 to 6 times as fast.
        bfloat16_options: compiler options under which bfloat16 is not widened. None: bfloat16 travels as integers, as
            it does in programs that select (`chooses`). A tree compiles 3 times as fast and takes 6% less memory.
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

    piecewise: bool = False
    chunk: int | None = None
    numbers: bool = False
    one_size: bool = False
    bfloat16_options: Mapping[str, Any] | None = field(default=None, hash=False)
    unoptimized_bytes: int | None = None
    one_at_a_time: bool = False
    coalesced_least: int = 2
    bucket_bytes: int = 16 * 2**20
    half_duplex_bytes: int | None = None
    shares_memory: bool = False

    def compiler_options(self, source_bytes: int) -> dict[str, Any]:
        """Options for a launch with so many bytes of source tiles per device."""
        if self.unoptimized_bytes is None or source_bytes > self.unoptimized_bytes:
            return {}
        return {"xla_backend_optimization_level": 0}

    def links(self, processes: Sequence[int]) -> HalfDuplexLinks | None:
        """The links between devices of these processes; None if they carry data in both directions at a time."""
        return None if self.half_duplex_bytes is None else HalfDuplexLinks(tuple(processes), self.half_duplex_bytes)


# Programs that split a stack take long to compile, and so do programs that follow a short stack.
ONE_PROCESS = Quirks(
    piecewise=True,
    chunk=16 * 2**20,
    numbers=True,
    one_size=True,
    # Without its emitters of fusions, XLA:CPU widens copies too, and its text does not show it.
    bfloat16_options={"xla_disable_hlo_passes": "float-normalization-bf16", "xla_cpu_use_fusion_emitters": True},
    unoptimized_bytes=2**17,
    one_at_a_time=True,
    coalesced_least=9,
    bucket_bytes=2 * 2**20,
)


def quirks_of(platform: str, processes: int = 1) -> Quirks:
    """The quirks of a platform with so many processes; between processes, launches cost as much as elsewhere."""
    if platform != "cpu":
        return Quirks()
    if processes == 1:
        return ONE_PROCESS
    plain = Quirks()
    return replace(
        ONE_PROCESS,
        coalesced_least=plain.coalesced_least,
        bucket_bytes=plain.bucket_bytes,
        half_duplex_bytes=2**19,
        shares_memory=True,
    )


def knows_kinds_of_memory(platform: str) -> bool:
    """Whether results of `jit` lie in the memory that their type says; on CPUs none does in JAX before 0.10.2.

    Nothing public tells but the result of a compiled program.
    """
    return platform != "cpu" or bool(jax.__version_info__ >= (0, 10, 2))


def has_ragged_all_to_all(platform: str) -> bool:
    """Whether the compiler of a platform has the ragged all-to-all; XLA:CPU has not."""
    return platform != "cpu"


def has_reliable_reduce_scatter(platform: str) -> bool:
    """Whether the platform's reduce-scatter always gives correct sums.

    CPUs add by gloo once a distributed job has begun, even one of one process. Gloo sometimes gives the first device of
    a group wrong sums of tiles of several MiB (jax #40830).
    """
    return platform != "cpu" or not jax.distributed.is_initialized()


def widened_sums(platform: str) -> dict[str, int]:
    """Element types whose sums across devices the platform's compiler makes in a wider type, with its bytes.

    XLA:CPU has no bfloat16 arithmetic: it makes an all-reduce or a reduce-scatter of bfloat16 one of float32, of twice
    the bytes. Other collectives move bfloat16 as integers (`values.as_integer_bits`), on all platforms.
    """
    return {"bfloat16": 4} if platform == "cpu" else {}


def is_widened(text: str) -> bool:
    """Whether a compiled program converts other floats to 32 bits."""
    return re.search(r"= f32\[[^]]*\]\S* convert\(", text) is not None


def chooses(text: str) -> bool:
    """Whether a lowered program selects between bfloat16 values, or pads with one.

    XLA:CPU widens these in code that it does not optimize, and its text does not show it: NaNs lose their payload, and
    subnormal numbers become 0.
    """
    return re.search(r"stablehlo\.(select|pad|case|if)\b.*bf16", text) is not None
