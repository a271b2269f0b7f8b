"""Errors of the arguments of `synthesize` and `reshard`."""

from __future__ import annotations

from typing import Any, ClassVar

from redistrib.errors.base import RedistribError, RuleBroken, shown

_SIZES = "give bytes as an integer, or a text such as '512MiB' or '2GiB'"


class ChoiceError(RuleBroken):
    """An unknown choice of an argument: a machine, algorithm, objective, schedule or memory size.

    >>> import redistrib as rd
    >>> rd.synthesize("[8]", "[8]", "x=2", machine="warp")
    Traceback (most recent call last):
        ...
    redistrib.errors.ChoiceError: no machine 'warp'; give a CostModel, the path of a profile, or one of the names \
'paper', 'exact', 'tpu', 'gpu', 'cpu', 'gloo', 'v100', 'a100', 'h100', 'h200', 'b200', 'gb200', 'mi300x', 'v4', 'v5e', \
'v5p' and 2 more
    """

    wordings: ClassVar = {
        "unknown machine": "no machine {value!v}; give a CostModel, the path of a profile, or one of the names "
        "{known!l}",
        "unknown objective": "no objective {value!v}; give one of {known!l}",
        "unknown algorithm": "no algorithm {value!v}; give one of {known!l}",
        "memory size": "{value!v} is no memory size; " + _SIZES,
        "memory size above most": "{value!v} is more than the {most} bytes that a memory limit can be; " + _SIZES,
        "hosts": "{devices:,} devices cannot belong to {hosts} hosts alike; give a number that divides them",
        "not registered": "no {noun} {value!v}; give {parameters} or one of the names {known!l}",
        "registered name": "{value!v} is no name; give the {noun} a text that is not empty",
        "registered value": "{value!v} is no {noun}; give {parameters}",
        "registered twice": "the {noun} {value!v} is {origin} already; take another name",
        "schedule": "there is no schedule {schedule!r}; choose 'overlap' or 'sequential'",
        "via": "arrays cannot move via {via!r}; choose 'auto', 'collectives' or 'copies', in the argument via= or the "
        "environment variable REDISTRIB_VIA",
    }


class GlobalShapeError(RuleBroken):
    """The global shapes of source and target differ (Section 2.5), or are unknown.

    >>> import redistrib as rd
    >>> rd.synthesize("[8]", "[16]", "x=2")
    Traceback (most recent call last):
        ...
    redistrib.errors.GlobalShapeError: source and target have different global shapes: [8] and [16]; a redistribution \
moves an array and never changes it, so reshape before or after
    """

    wordings: ClassVar = {
        "missing shape": "{value} says how an array is cut but not how large it is; give shape= as well",
        "other shape": "{value} is another shape than shape={shape}; leave shape= out where types say it",
    }


class MeshDevicesError(RuleBroken):
    """Source and target have different devices, where they must have the same.

    >>> import redistrib as rd
    >>> rd.synthesize("[8]", "[8]", "x=2", target_mesh="x=4", algorithm="paper")
    Traceback (most recent call last):
        ...
    redistrib.errors.MeshDevicesError: the paper's algorithm needs the same devices on both sides, but the source mesh \
{x:2} has the devices 0, 1 and the target mesh {x:4} the devices 0, 1, 2, 3
    """

    wordings: ClassVar = {
        "topology": "the topology says where {source} devices stand, and the source mesh has {target}; give the host "
        "of every device, in the order of their numbers",
        "other mesh": "{name}={given} is another mesh than {own}, that of the sharding; leave {name}= out",
        "between processes": "the array is on {source} and is to go to {target}, and these belong to several "
        "processes, between which an array moves among devices of one kind only; give it a target there, "
        "and move it on inside each process",
        "padded array": "the array is on {source} and is to go to {target}, and one with padding moves among "
        "devices of one kind only; give it a target there, and move it on from there",
    }


def global_shape_error(source: tuple[int, ...], target: tuple[int, ...]) -> GlobalShapeError:
    """The error of a source and a target with different global shapes (Section 2.5)."""
    quantity = "ranks" if len(source) != len(target) else "global shapes"
    return GlobalShapeError(
        "global shape",
        f"source and target have different {quantity}: {list(source)} and {list(target)}; "
        "a redistribution moves an array and never changes it, so reshape before or after",
        source=source,
        target=target,
    )


def mesh_devices_error(subject: str, source: Any, target: Any) -> MeshDevicesError:
    """The error of source and target meshes with different devices; `subject` is the algorithm that needs the same."""
    devices = [
        ", ".join(map(str, mesh.devices[:16])) + (", ..." if mesh.size > 16 else "") for mesh in (source, target)
    ]
    return MeshDevicesError(
        "mesh devices",
        f"{subject} needs the same devices on both sides, but the source mesh {source} has the devices {devices[0]} "
        f"and the target mesh {target} the devices {devices[1]}",
        source=source.devices,
        target=target.devices,
    )


class DtypeError(RedistribError):
    """An unknown name of an element type, or an element type that a library does not have.

    >>> import redistrib as rd
    >>> rd.synthesize("[4{x}8]", "[8]", "x=2", dtype="float33")
    Traceback (most recent call last):
        ...
    redistrib.errors.DtypeError: 'float33' names no element type; give a NumPy or ml_dtypes name such as 'float32' or \
'bfloat16'
    """

    def __init__(self, value: object, holder: str = "", option: str = "") -> None:
        self.value = value
        where = f" that {holder} can hold" if holder else ""
        meant = _MEANT.get(value) if isinstance(value, str) else None
        remedy = "give a NumPy or ml_dtypes name such as 'float32' or 'bfloat16'"
        remedy = f"did you mean {meant!r}?" if meant else remedy
        super().__init__(f"{option and f'{option}='}{shown(value)} names no element type{where}; {remedy}")


# What other libraries call NumPy's types.
_MEANT = {"bf16": "bfloat16", **{f"{kind}{bits}": f"float{bits}" for kind in ("fp", "f") for bits in (16, 32, 64)}}


class ReductionError(RedistribError):
    """An impossible reduction: of elements without a sum or an order, or from one reduction to another.

    >>> import redistrib as rd
    >>> rd.synthesize("[8] max{x}", "[8] sum{x}", "x=2")
    Traceback (most recent call last):
        ...
    redistrib.errors.ReductionError: partial sums by max cannot become partial sums by sum; reduce [8] max{x} first, \
and make [8] sum{x} of the result
    """


MOST_BYTES = 2**63 - 1  # of a memory limit, in bytes


class MemoryLimitError(RedistribError):
    """No plan fits the memory limit, or the plan to run does not fit it.

    >>> import redistrib as rd
    >>> rd.synthesize("[4{x}8]", "[8]", "x=2", memory_limit=40)
    Traceback (most recent call last):
        ...
    redistrib.errors.MemoryLimitError: no plan fits in 40 bytes per device; the least memory_limit that one fits is \
48 bytes

    Attributes:
        limit: the limit, in bytes per device.
        least: the least limit that a known plan or program fits, in bytes per device. If it is above `MOST_BYTES`, no
            limit is possible, and the message says so.
        proved: whether it is proved that no plan or program fits the limit. If False, the search did not find one.
    """

    def __init__(self, limit: int, least: int, message: str = "", *, proved: bool = False) -> None:
        self.limit = limit
        self.least = least
        self.proved = proved
        way_out = (
            f"the least memory_limit that one fits is {least:,} bytes"
            if least <= MOST_BYTES
            else f"every plan needs {least:,} bytes or more, and a memory_limit is at most {MOST_BYTES:,}; give none"
        )
        super().__init__(message or f"no plan fits in {limit:,} bytes per device; {way_out}")


class ProfileError(RedistribError):
    """A cost profile that is malformed, has another version, or has impossible values.

    >>> import redistrib as rd
    >>> rd.LatencyBandwidth.from_json("{}")
    Traceback (most recent call last):
        ...
    redistrib.errors.ProfileError: this is no redistrib-profile of version 1; write one with `redistrib calibrate`
    """
