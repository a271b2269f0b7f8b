"""Child of `bench.kernels`: counts the bytes of a program's kernels, and compiles it for a TPU without a TPU."""

from __future__ import annotations

import math
import re
from typing import Any

import jax
from jax.sharding import SingleDeviceSharding

from bench.children import serve
from bench.kernel_programs import Program, programs
from bench.pairing import Part
from bench.worker_compiled import devices_of
from redistrib.lang.mesh import Mesh
from redistrib.plans.dtypes import itemsize_of
from redistrib.programs.run.prepared import prepare
from redistrib.programs.time.kernels.fusion import kernels_of

HLO_TYPES = {"pred": "bool", "bf16": "bfloat16", "f32": "float32", "s32": "int32", "u32": "uint32", "s8": "int8"}
PREFETCHES = 4  # times that the count has the bytes of a copy into the memory on the chip: read and written, twice


def counted(program: Program, products: bool = True, several: bool = True) -> int:
    """Bytes that the kernels of a search read and write; a step of each loop counts once, as compilers count.

    `products` and `several` are those of `redistrib.programs.time.kernels.fusion`.
    """
    graph = prepare(program.function, program.args, Mesh.of({"d": 1}), None, None, None).traced.graph
    return sum(kernel.share() for kernel in kernels_of(graph, products=products, several=several))


def compiled(program: Program, device: Any) -> Any:
    """The program compiled for a device."""
    place = SingleDeviceSharding(device)
    args = jax.tree.map(lambda form: jax.ShapeDtypeStruct(form.shape, form.dtype, sharding=place), program.args)
    return jax.jit(program.function).lower(*args).compile()


def size_of(text: str) -> int:
    """Bytes of the arrays in an HLO type."""
    arrays = re.findall(rf"\b({'|'.join(HLO_TYPES)})\[([\d,]*)\]", text)
    return sum(
        itemsize_of(HLO_TYPES[dtype]) * math.prod(map(int, filter(None, dims.split(",")))) for dtype, dims in arrays
    )


def uncounted(text: str) -> tuple[int, int]:
    """Bytes of an HLO text that the count has too often, and those that it lacks.

    Too often: copies of operands into the memory on the chip. Lacking: operands and results of kernels by hand.
    """
    types = dict(re.findall(r"%([\w.\-]+) = ((?:\(.*?\)|\S+)) [\w\-]+\(", text))
    copies = lacking = 0
    for result, opcode, rest in re.findall(r"= (\(.*?\)|\S+) (copy-start|custom-call)\((.*)$", text, re.MULTILINE):
        operands = [size_of(types.get(name, "")) for name in re.findall(r"%([\w.\-]+)", rest.split("), ")[0])]
        if opcode == "copy-start":
            copies += PREFETCHES * sum(operands)
        elif "tpu_custom_call" in rest:
            lacking += size_of(result) + sum(operands)
    return copies, lacking


def handle(task: dict[str, Any], part: Part) -> None:
    program = programs()[task["name"]]
    part({"ours": counted(program)})
    executable = compiled(program, devices_of(task["topology"])[0])
    part({"theirs": int(executable.cost_analysis()["bytes accessed"])})
    jax.clear_caches()
    copies, lacking = uncounted(executable.as_text())  # which fails for some programs of libtpu 0.0.52
    part({"copies": copies, "custom_calls": lacking})


if __name__ == "__main__":
    serve(handle)
