"""Quirks of virtual CPU devices, which are threads of one process, and of CPU devices of several processes."""

from __future__ import annotations

import re
from dataclasses import replace

import jax

from redistrib.backends.jax.quirks import Quirks, Widening

# Programs that split a stack take long to compile, and so do programs that follow a short stack.
ONE_PROCESS = Quirks(
    knows_kinds_of_memory=jax.__version_info__ >= (0, 10, 2),  # nothing public tells but a compiled program's result
    # There is no arithmetic of bfloat16. Other collectives move it as integers (`values.as_integer_bits`).
    wide_sums={"bfloat16": 4},
    adds_by_gloo=True,
    copies=True,
    chunk=16 * 2**20,
    piecewise=True,
    numbers=True,
    one_size=True,
    widening=Widening(
        # Without its emitters of fusions, XLA:CPU widens copies too, and its text does not show it.
        {"xla_disable_hlo_passes": "float-normalization-bf16", "xla_cpu_use_fusion_emitters": True},
        selecting=re.compile(r"stablehlo\.(select|pad|case|if)\b.*bf16"),
        converting=re.compile(r"= f32\[[^]]*\]\S* convert\("),
    ),
    unoptimized_bytes=2**17,
    one_at_a_time=True,
    coalesced_least=9,
    bucket_bytes=2 * 2**20,
)


def quirks_of_cpus(processes: int) -> Quirks:
    """The quirks of CPU devices of so many processes; between processes, launches cost as much as elsewhere."""
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
