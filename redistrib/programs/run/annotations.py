"""Annotations of instructions in HLO text: the user's source line, and the sharding of the result."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from redistrib.arith import prime_factors
from redistrib.explain.profiling.hlo import Instruction
from redistrib.lang.mesh import Axis, Mesh
from redistrib.lang.types import DistType

_NAME = re.compile(r'op_name="((?:[^"\\]|\\.)*)"')
_FRAME = re.compile(r"stack_frame_id=(\d+)")
_OLD = re.compile(r'source_file="([^"]*)" source_line=(\d+)')
_SHARDING = re.compile(r"sharding=(\{[^{}]*\})")
_NAMED = re.compile(r"sharding=\{mesh\[([^\]]*)\], \[([^\]]*)\]\}")
_AXIS, _QUOTED, _BRACES = re.compile(r"'([^']+)'=(\d+)"), re.compile(r"'([^']+)'"), re.compile(r"\{([^{}]*)\}")
_MESH = re.compile(r"sdy\.mesh @\w+ = <(.*?)>")
_SDY_AXIS = re.compile(r'"([^"]+)"=(\d+)')
_TILES = re.compile(r"devices=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_DTYPES = {"pred": "bool", "bf16": "bfloat16"} | {
    f"{short}{bits}": f"{long}{bits}"
    for short, long in (("f", "float"), ("s", "int"), ("u", "uint"), ("c", "complex"))
    for bits in (8, 16, 32, 64, 128)
}


@dataclass(frozen=True)
class Lines:
    """Source lines by the number of a stack frame, read off the tables at the head of a module."""

    of_frame: Mapping[int, str]

    @classmethod
    def read(cls, text: str) -> Lines:
        """The tables of a module's text, or empty tables."""
        tables: dict[str, dict[int, str]] = {}
        current: dict[int, str] | None = None
        for line in text.splitlines():
            if line in ("FileNames", "FunctionNames", "FileLocations", "StackFrames"):
                current = tables.setdefault(line, {})
            elif not line.strip():
                current = None
            elif current is not None and (match := re.match(r"(\d+) (.*)", line)):
                current[int(match[1])] = match[2]
        lines = {}
        for frame, entry in tables.get("StackFrames", {}).items():
            place = tables.get("FileLocations", {}).get(_number(entry, "file_location_id"), "")
            name = tables.get("FileNames", {}).get(_number(place, "file_name_id"), "").strip('"')
            if name:
                lines[frame] = f"{name}:{_number(place, 'line')}"
        return cls(lines)

    def of(self, instruction: Instruction) -> str:
        """The line of an instruction, `file:line`; empty if unknown."""
        if match := _FRAME.search(instruction.attributes):
            return self.of_frame.get(int(match[1]), "")
        match = _OLD.search(instruction.attributes)
        return f"{match[1]}:{match[2]}" if match else ""


def _number(text: str, key: str) -> int:
    match = re.search(rf"\b{key}=(\d+)", text)
    return int(match[1]) if match else -1


def label(instruction: Instruction) -> str:
    """JAX's name of the operation of an instruction, `jit(step)/dot_general`."""
    match = _NAME.search(instruction.attributes)
    return match[1] if match else ""


def dtype_of(hlo: str) -> str | None:
    """An HLO element type as NumPy and JAX spell it; None for rare types."""
    return _DTYPES.get(hlo)


def sharded(instruction: Instruction, devices: int) -> tuple[DistType, Mesh] | None:
    """The type of an instruction's single result, with its mesh; None without a sharding that a type can express.

    The axes of the mesh are prime, since HLO names none. Tiles that do not divide an array are of another kind.

    >>> text = "sharding={devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}"
    >>> array = Instruction("x", "copy", (), (), text, "", False)
    >>> form, mesh = annotated(text, (8, 6), 8)
    >>> print(form, mesh)
    [2{a2,a1}8, 6] {a0:2, a1:2, a2:2}
    """
    if len(instruction.results) != 1:
        return None
    return annotated(instruction.attributes, instruction.results[0].shape, devices)


def annotated(attributes: str, shape: Sequence[int], devices: int) -> tuple[DistType, Mesh] | None:
    """As `sharded`, from text and shape."""
    if named := _NAMED.search(attributes):
        return _on_named_axes(named[1], named[2], shape, devices)
    match = _SHARDING.search(attributes.replace("last_tile_dims={", "last_tile_dims=<"))
    if match is None:
        return None
    text = match[1]
    if "replicated" in text and "devices=" not in text:
        mesh = _mesh([devices])
        return DistType.cut(shape, {}, mesh), mesh
    tiles = _TILES.search(text)
    if tiles is None or "manual" in text:
        return None
    counts, extents = ([int(n) for n in part.split(",")] for part in (tiles[1], tiles[2]))
    order = [int(n) for n in tiles[3].split(",")] if tiles[3] else list(range(len(extents)))
    mesh = _mesh(extents)
    by_extent, k = [], 0
    for extent in extents:
        factors = prime_factors(extent)
        by_extent.append([mesh.axes[k + j] for j in range(len(factors))])
        k += len(factors)
    axes = [axis for place in order for axis in by_extent[place]]
    names: dict[int, list[str]] = {}
    for k, (size, count) in enumerate(zip(shape, counts, strict=False)):
        cutting: list[Axis] = []
        while math.prod(axis.size for axis in cutting) < count and axes:
            cutting.append(axes.pop(0))
        if math.prod(axis.size for axis in cutting) != count or size % count:
            return None
        names[k] = [axis.name for axis in reversed(cutting)]
    return DistType.cut(shape, names, mesh), mesh


def mesh_named(stablehlo: str) -> Mesh | None:
    """The mesh of the shardings in a lowered module's text; None if they have several, or it lists its devices.

    >>> print(mesh_named('sdy.mesh @mesh = <["x"=2, "y"=3]> {stablehlo.mesh = {}}'))
    {x:2, y:3}
    """
    meshes = set(_MESH.findall(stablehlo))
    text = meshes.pop() if len(meshes) == 1 else ""
    axes = [] if "device_ids" in text else _SDY_AXIS.findall(text)
    return Mesh(tuple(Axis(name, int(size)) for name, size in axes)) if axes else None


def _on_named_axes(axes: str, dims: str, shape: Sequence[int], devices: int) -> tuple[DistType, Mesh] | None:
    """The type of a sharding that names the axes of its mesh, as XLA writes them since JAX 0.12.

    >>> form, mesh = _on_named_axes("'x'=2,'y'=4", "{'y', 'x'}, {}", (8, 6), 8)
    >>> print(form, mesh)
    [1{x,y}8, 6] {x:2, y:4}
    """
    mesh = Mesh(tuple(Axis(name, int(size)) for name, size in _AXIS.findall(axes)))
    cut = [_QUOTED.findall(part) for part in _BRACES.findall(dims)]
    size = {axis.name: axis.size for axis in mesh.axes}
    plain = "(" not in dims and "?" not in dims and len(cut) == len(shape) and mesh.size == devices
    if not plain or any(n % math.prod(size[name] for name in names) for n, names in zip(shape, cut, strict=True)):
        return None
    return DistType.cut(shape, {k: names[::-1] for k, names in enumerate(cut) if names}, mesh), mesh


def _mesh(extents: Sequence[int]) -> Mesh:
    primes = [prime for extent in extents for prime in prime_factors(extent)]
    return Mesh(tuple(Axis(f"a{k}", prime) for k, prime in enumerate(primes)))
