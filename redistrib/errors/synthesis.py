"""Errors of what is asked of the synthesis."""

from __future__ import annotations

from typing import Any, ClassVar

from redistrib.errors.base import RedistribError, RuleBroken, shown

_SIZES = "give bytes as an integer, or a text such as '512MiB' or '2GiB'"


class ChoiceError(RuleBroken):
    """A value that is none that there is: of cost models, algorithms, schedules or memory sizes.

    >>> import redistrib as rd
    >>> rd.synthesize("[8]", "[8]", "x=2", cost_model="warp")
    Traceback (most recent call last):
        ...
    redistrib.errors.ChoiceError: no cost model 'warp'; give a CostModel or one of the names 'paper', 'exact', 'tpu', \
'gpu', 'cpu'
    """

    wordings: ClassVar = {
        "unknown cost model": "no cost model {value!v}; give a CostModel or one of the names {known!l}",
        "unknown algorithm": "no algorithm {value!v}; give one of {known!l}",
        "memory size": "{value!v} is no memory size; " + _SIZES,
        "memory size above most": "{value!v} is more than the {most} bytes that a memory limit can be; " + _SIZES,
        "schedule": "there is no schedule {schedule!r}; choose 'overlap' or 'sequential'",
    }


class GlobalShapeError(RuleBroken):
    """The global shapes of source and target differ (Section 2.5), or are not known.

    >>> import redistrib as rd
    >>> rd.synthesize("[8]", "[16]", "x=2")
    Traceback (most recent call last):
        ...
    redistrib.errors.GlobalShapeError: source and target have different global shapes: [8] and [16]; a redistribution \
moves an array and never changes it, so reshape before or after
    """

    wordings: ClassVar = {
        "missing shape": "{value} says how an array is cut but not how large it is; give shape= as well",
    }


class MeshDevicesError(RuleBroken):
    """Source and target are on other devices, where they have to be on the same.

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
        "between processes": "the array is in memory of {source} and is to go to {target}, and these belong to several "
        "processes, between which an array moves among devices and memory of one kind only; give it a target there, "
        "and move it on inside each process",
        "padded array": "the array is in memory of {source} and is to go to {target}, and one with padding moves among "
        "devices and memory of one kind only; give it a target there, and move it on from there",
    }


def global_shape_error(source: tuple[int, ...], target: tuple[int, ...]) -> GlobalShapeError:
    """Source and target are arrays of different global shapes (Section 2.5)."""
    what = "ranks" if len(source) != len(target) else "global shapes"
    return GlobalShapeError(
        "global shape",
        f"source and target have different {what}: {list(source)} and {list(target)}; "
        "a redistribution moves an array and never changes it, so reshape before or after",
        source=source,
        target=target,
    )


def mesh_devices_error(what: str, source: Any, target: Any) -> MeshDevicesError:
    """Source and target meshes of other devices, for something that cannot do with them."""
    devices = [
        ", ".join(map(str, mesh.devices[:16])) + (", ..." if mesh.size > 16 else "") for mesh in (source, target)
    ]
    return MeshDevicesError(
        "mesh devices",
        f"{what} needs the same devices on both sides, but the source mesh {source} has the devices {devices[0]} and "
        f"the target mesh {target} the devices {devices[1]}",
        source=source.devices,
        target=target.devices,
    )


class DtypeError(RedistribError):
    """An element type that is not known by that name, or not to the library that is to hold it.

    >>> import redistrib as rd
    >>> rd.synthesize("[4{x}8]", "[8]", "x=2", dtype="float33")
    Traceback (most recent call last):
        ...
    redistrib.errors.DtypeError: 'float33' names no element type; give a NumPy or ml_dtypes name such as 'float32' or \
'bfloat16'
    """

    def __init__(self, value: object, holder: str = "") -> None:
        self.value = value
        where = f" that {holder} can hold" if holder else ""
        super().__init__(
            f"{shown(value)} names no element type{where}; "
            "give a NumPy or ml_dtypes name such as 'float32' or 'bfloat16'"
        )


class ReductionError(RedistribError):
    """A reduction that there is not: of elements that have no sum or order, from one kind of summands to another.

    >>> import redistrib as rd
    >>> rd.synthesize("[8] max{x}", "[8] sum{x}", "x=2")
    Traceback (most recent call last):
        ...
    redistrib.errors.ReductionError: summands by max cannot become summands by sum; reduce [8] max{x} first, and make \
[8] sum{x} of the result
    """


MOST_BYTES = 2**63 - 1  # of a memory limit: more than any device has


class MemoryLimitError(RedistribError):
    """No plan fits the memory limit, or the one that is to run does not.

    >>> import redistrib as rd
    >>> rd.synthesize("[4{x}8]", "[8]", "x=2", memory_limit=40)
    Traceback (most recent call last):
        ...
    redistrib.errors.MemoryLimitError: no plan fits in 40 bytes per device; the least memory_limit that one fits is \
48 bytes

    Attributes:
        limit: the limit, in bytes per device.
        least: the least limit that a plan would fit, or this one, in bytes per device. Above `MOST_BYTES` it cannot be
            given as a limit, and the message says so.
    """

    def __init__(self, limit: int, least: int, message: str = "") -> None:
        self.limit = limit
        self.least = least
        way_out = (
            f"the least memory_limit that one fits is {least:,} bytes"
            if least <= MOST_BYTES
            else f"every plan needs {least:,} bytes or more, and a memory_limit is at most {MOST_BYTES:,}; give none"
        )
        super().__init__(message or f"no plan fits in {limit:,} bytes per device; {way_out}")


class ProfileError(RedistribError):
    """A cost profile that is malformed, of another version, or holds impossible figures.

    >>> import redistrib as rd
    >>> rd.LatencyBandwidth.from_json("{}")
    Traceback (most recent call last):
        ...
    redistrib.errors.ProfileError: this is no redistrib-profile of version 1; write one with `redistrib calibrate`
    """
