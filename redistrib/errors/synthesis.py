"""Errors of what is asked of the synthesis."""

from __future__ import annotations

from typing import ClassVar

from redistrib.errors.base import RedistribError, RuleBroken, shown


class ChoiceError(RuleBroken):
    """A value that is none of the choices there are: of cost models, algorithms or schedules.

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
    """Source and target meshes that are not made of the same devices.

    >>> import redistrib as rd
    >>> rd.synthesize("[8]", "[8]", "x=2", target_mesh="x=4")
    Traceback (most recent call last):
        ...
    redistrib.errors.MeshDevicesError: the source mesh has 2 devices and the target mesh has 4; both must be made of \
the same devices
    """

    wordings: ClassVar = {
        "mesh devices": "the source mesh has {source} devices and the target mesh has {target}; both must be made of "
        "the same devices",
        "device set": "source and target meshes have {source} and {target} devices, of which they share {common}; "
        "a plan moves data between the same devices, so use jax.device_put to move an array to others",
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
        least: the least limit that a plan would fit, or this one, in bytes per device.
    """

    def __init__(self, limit: int, least: int, message: str = "") -> None:
        self.limit = limit
        self.least = least
        super().__init__(
            message
            or f"no plan fits in {limit:,} bytes per device; the least memory_limit that one fits is {least:,} bytes"
        )


class MemorySizeError(RedistribError):
    """A memory limit that is no size, or larger than any memory; `most` is the largest in bytes, where it is that.

    >>> import redistrib as rd
    >>> rd.synthesize("[4{x}8]", "[8]", "x=2", memory_limit="2 bananas")
    Traceback (most recent call last):
        ...
    redistrib.errors.MemorySizeError: '2 bananas' is no memory size; give bytes as an integer, or a text such as \
'512MiB' or '2GiB'
    """

    def __init__(self, value: object, most: int | None = None) -> None:
        self.value, self.most = value, most
        why = "is no memory size" if most is None else f"is more than the {most} bytes that a memory limit can be"
        super().__init__(f"{shown(value)} {why}; give bytes as an integer, or a text such as '512MiB' or '2GiB'")


class ProfileError(RedistribError):
    """A cost profile that is malformed, of another version, or holds impossible figures.

    >>> import redistrib as rd
    >>> rd.LatencyBandwidth.from_json("{}")
    Traceback (most recent call last):
        ...
    redistrib.errors.ProfileError: this is no redistrib-profile of version 1; write one with `redistrib calibrate`
    """
