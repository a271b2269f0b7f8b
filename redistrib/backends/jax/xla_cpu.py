"""What XLA does differently on virtual CPU devices, the threads of one process, and what is done about it.

`quirks_of` is asked where programs are lowered, made and launched; nothing else asks which platform it is for these
reasons. Each field of `Quirks` stands for one of them. In `ONE_PROCESS` each may be switched off by itself, with empty
caches: programs stay right, and may become slower; without `one_at_a_time` many launches may wait in vain.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import jax


@dataclass(frozen=True)
class Quirks:
    """What suits a platform; by default one that has no quirks.

    Behind each is what it brought on 8 devices of one process (bench/results/quirks.json, docs/benchmarks.md).

    Attributes:
        piecewise: all-to-alls over few members cut and join shares one by one; otherwise one packed buffer is reshaped
            and transposed. Trees compile 3 times as fast, and programs run 1.2 times as fast.
        chunk: bytes of a tile above which collectives run in slices: larger buffers come from the system anew, and
            touching them is slow. A quarter less memory, 1.4 times as fast, for compiles 2.3 times as long.
        numbers: equal copies of boxes are compiled once, each for long: such as differ in their offsets alone get these
            as arguments, which the compiler does not see. Trees compile 1.5 to 2.6 times as fast.
        one_size: only tiles of one size are coalesced: a loop for every size takes long to compile. A tree of
            small leaves of several sizes compiles 4 to 6 times as fast.
        bfloat16_options: compiler options that leave bfloat16 as it is, which otherwise travels as integers so that it
            is not widened. None: it always does, and so do programs that choose (`chooses`). A tree compiles 3 times as
            fast, and takes 6% less memory.
        quick_bytes: bytes of cut tiles up to which a program is not optimized, which takes longer than its loops do;
            above, the first level makes loops as fast as the higher ones do. None: the compiler's own level. A tree
            compiles 1.1 to 1.3 times as fast.
        one_at_a_time: launches do not overlap, and all has arrived when a call returns: devices share a pool of
            threads, and those of a later launch may take the place of one for which an earlier launch waits. Without
            it XLA ends the process on a tree of a hundred launches.
        coalesced_least: leaves of small tiles that travel side by side, at least. With more than 2 of them a tree
            compiles 1.4 times as fast.
        bucket_bytes: bytes of source and target tiles that make a launch worth its while. With fewer than by
            default trees compile 1.5 to 1.9 times as fast, and are launched more often.
        one_way_bytes: bytes of a share from which on two devices of different processes do not send to one another
            at the same time (see `one_way`), and all-to-alls go round by round. On the emulated cluster a swap takes
            1.1 times as long as the link needs for its bytes, and otherwise 1.7. None: never.
    """

    piecewise: bool = False
    chunk: int | None = None
    numbers: bool = False
    one_size: bool = False
    bfloat16_options: Mapping[str, Any] | None = field(default=None, hash=False)
    quick_bytes: int | None = None
    one_at_a_time: bool = False
    coalesced_least: int = 2
    bucket_bytes: int = 16 * 2**20
    one_way_bytes: int | None = None

    def compiler_options(self, cut_bytes: int) -> dict[str, Any]:
        """What the compiler is told of a program that cuts tiles of so many bytes."""
        if self.quick_bytes is None:
            return {}
        return {"xla_backend_optimization_level": 0 if cut_bytes <= self.quick_bytes else 1}


# To part what travelled side by side takes long to compile, and so do a short stack and what follows it.
ONE_PROCESS = Quirks(
    piecewise=True,
    chunk=16 * 2**20,
    numbers=True,
    one_size=True,
    bfloat16_options={"xla_disable_hlo_passes": "float-normalization-bf16"},
    quick_bytes=4 * 2**20,
    one_at_a_time=True,
    coalesced_least=9,
    bucket_bytes=2 * 2**20,
)


def quirks_of(platform: str, processes: int = 1) -> Quirks:
    """The quirks of devices of a platform; between processes links cost what they cost elsewhere."""
    if platform != "cpu":
        return Quirks()
    if processes == 1:
        return ONE_PROCESS
    plain = Quirks()
    return replace(
        ONE_PROCESS,
        coalesced_least=plain.coalesced_least,
        bucket_bytes=plain.bucket_bytes,
        one_way_bytes=2**19,
    )


def has_ragged_all_to_all(platform: str) -> bool:
    """Whether the compiler of a platform knows the ragged all-to-all; XLA:CPU does not."""
    return platform != "cpu"


def has_reliable_reduce_scatter(platform: str) -> bool:
    """Whether the platform's own reduce-scatter always gives right sums.

    CPUs add by gloo as soon as a distributed job has begun, even one of one process. Now and then it gives the first
    device of a group wrong sums of tiles of some MiB (jax #40830).
    """
    return platform != "cpu" or not jax.distributed.is_initialized()


def is_widened(text: str) -> bool:
    """Whether a compiled program makes 32-bit floats of others."""
    return re.search(r"= f32\[[^]]*\]\S* convert\(", text) is not None


def chooses(text: str) -> bool:
    """Whether a lowered program chooses between bfloat16 values, or pads them with some.

    XLA:CPU widens these in code that it does not optimize, and says so nowhere: of NaNs the payload goes, and numbers
    below the least normal one become 0.
    """
    return re.search(r"stablehlo\.(select|pad|case|if)\b.*bf16", text) is not None
