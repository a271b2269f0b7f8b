"""Errors of what is asked of the synthesis."""

from __future__ import annotations

from collections.abc import Sequence

from redistrib.errors.base import RedistribError, listed, shown


class UnknownCostModelError(RedistribError):
    """A cost model that is neither a `CostModel` nor the name of one."""

    def __init__(self, value: object, known: Sequence[str]) -> None:
        self.value = value
        self.known = tuple(known)
        super().__init__(f"no cost model {shown(value)}; give a CostModel or one of the names {listed(self.known)}")


class UnknownAlgorithmError(RedistribError):
    """An algorithm the synthesis does not have."""

    def __init__(self, value: object, known: Sequence[str]) -> None:
        self.value = value
        self.known = tuple(known)
        super().__init__(f"no algorithm {shown(value)}; give one of {listed(self.known)}")


class GlobalShapeError(RedistribError):
    """Source and target are arrays of different global shapes (Section 2.5)."""

    def __init__(self, source: tuple[int, ...], target: tuple[int, ...]) -> None:
        self.source = source
        self.target = target
        what = "ranks" if len(source) != len(target) else "global shapes"
        super().__init__(
            f"source and target have different {what}: {list(source)} and {list(target)}; "
            "a redistribution moves an array and never changes it, so reshape before or after"
        )


class MeshDevicesError(RedistribError):
    """Source and target meshes with different numbers of devices."""

    def __init__(self, source: int, target: int) -> None:
        self.source = source
        self.target = target
        super().__init__(
            f"the source mesh has {source} devices and the target mesh has {target}; "
            "both must be made of the same devices"
        )


class DtypeError(RedistribError):
    """An element type that is not known by that name, or not to the library that is to hold it."""

    def __init__(self, value: object, holder: str = "") -> None:
        self.value = value
        where = f" that {holder} can hold" if holder else ""
        super().__init__(
            f"{shown(value)} names no element type{where}; "
            "give a NumPy or ml_dtypes name such as 'float32' or 'bfloat16'"
        )


class MemoryLimitError(RedistribError):
    """No plan fits the memory limit.

    Attributes:
        limit: the limit, in bytes per device.
        least: the least limit that a plan would fit, in bytes per device.
    """

    def __init__(self, limit: int, least: int) -> None:
        self.limit = limit
        self.least = least
        super().__init__(
            f"no plan fits in {limit:,} bytes per device; the least memory_limit that one fits is {least:,} bytes"
        )


class MemorySizeError(RedistribError):
    """A memory limit that is no size, or larger than any memory; `most` is the largest in bytes, where it is that."""

    def __init__(self, value: object, most: int | None = None) -> None:
        self.value, self.most = value, most
        why = "is no memory size" if most is None else f"is more than the {most} bytes that a memory limit can be"
        super().__init__(f"{shown(value)} {why}; give bytes as an integer, or a text such as '512MiB' or '2GiB'")


class ProfileError(RedistribError):
    """A cost profile that is malformed, of another version, or holds impossible figures."""


class MissingShapeError(RedistribError):
    """A sharding given without the shape of the array."""

    def __init__(self, value: object) -> None:
        self.value = value
        super().__init__(f"{value} says how an array is cut but not how large it is; give shape= as well")


class DeviceSetError(RedistribError):
    """Two meshes that are not made of the same devices."""

    def __init__(self, source: int, target: int, common: int) -> None:
        self.source = source
        self.target = target
        self.common = common
        super().__init__(
            f"source and target meshes have {source} and {target} devices, of which they share {common}; "
            "a plan moves data between the same devices, so use jax.device_put to move an array to others"
        )
