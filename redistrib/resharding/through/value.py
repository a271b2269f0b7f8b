"""The plan of `reshard` with `through=`, as a value."""

from __future__ import annotations

from dataclasses import dataclass, field

from redistrib.report import Printed, rendered
from redistrib.resharding.memory import MemoryCopies, said_of_copies
from redistrib.resharding.through.function import Constants
from redistrib.resharding.through.messages import BoxRound, SentLeaf
from redistrib.resharding.through.programs import ThroughProgram


@dataclass(frozen=True)
class ThroughBucket:
    """Results that are made in one go.

    Attributes:
        results: their numbers.
        inputs: numbers of the inputs that they are made of, those of captured arrays that move behind the function's.
        constants: of the constants, numbered behind all inputs.
        sent: boxes that are sent.
        rounds: in which they are sent.
        program: the compiled program.
        given_up: inputs that nothing needs afterwards.
        peak_bytes: bytes on the fullest device meanwhile, all inputs and results counted that are in its memory then.
    """

    results: tuple[int, ...]
    inputs: tuple[int, ...]
    constants: tuple[int, ...]
    sent: tuple[SentLeaf, ...]
    rounds: tuple[BoxRound, ...]
    program: ThroughProgram
    given_up: tuple[int, ...]
    peak_bytes: int

    @property
    def received_bytes(self) -> int:
        """Bytes that devices receive from others, all together."""
        return sum(each.received_bytes for each in self.sent)


@dataclass(frozen=True)
class ThroughPlan(Printed):
    """The plan of `reshard` with `through=`. Print it for a table.

    Attributes:
        names: of the results.
        shapes, dtypes, weak: of the results; whether their types are weak.
        buckets: the launches, in order.
        bound_bytes: bytes of the inputs that devices need for their results and lack, each element once and in the
            fewest bits that it has on its way, over all devices. No plan that sends inputs receives less; one that
            combined several of them before it sends could. Constants that the function captures come from the host,
            and do not count.
        constants: their values, from those of captured arrays.
        moving: captured arrays that move as inputs do, by number.
        memory_copies: copies between kinds of memory: of inputs from another kind than the devices' default, for each
            launch that reads them, and of results to another kind.
        peak_bytes: on the fullest device at the worst moment.

    >>> import jax
    >>> import redistrib as rd
    >>> from jax.sharding import PartitionSpec as P
    >>> mesh = jax.make_mesh((1,), ("x",), (jax.sharding.AxisType.Auto,))
    >>> tree = rd.reshard({"w": jax.numpy.ones((8, 8))}, P("x"), mesh=mesh)
    >>> plan = rd.reshard_plan(tree, {"wt": P("x")}, mesh=mesh, through=lambda tree: {"wt": tree["w"].T})
    >>> plan.names, plan.received_bytes
    (('wt',), 0)
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    weak: tuple[bool, ...]
    buckets: tuple[ThroughBucket, ...]
    bound_bytes: int
    constants: Constants = field(repr=False)
    moving: tuple[int, ...] = ()
    processes: tuple[int, ...] = ()
    digest: str = field(default="", repr=False)
    memory_copies: tuple[MemoryCopies, ...] = ()

    @property
    def received_bytes(self) -> int:
        """Bytes that devices receive from others, all together."""
        return sum(bucket.received_bytes for bucket in self.buckets)

    @property
    def peak_bytes(self) -> int:
        """Bytes on the fullest device at the worst moment."""
        return max((bucket.peak_bytes for bucket in self.buckets), default=0)

    def _text(self) -> str:
        rows = []
        for number, bucket in enumerate(self.buckets, start=1):
            first = self.names[bucket.results[0]] or "the array"
            more = len(bucket.results) - 1
            sent = sorted({each.dtype for each in bucket.sent})
            rows.append(
                [
                    str(number),
                    first if not more else f"{first} and {more} more",
                    f"{self.dtypes[bucket.results[0]]}{list(self.shapes[bucket.results[0]])}",
                    str(len(bucket.inputs)),
                    ", ".join(sent),
                    str(len(bucket.rounds)),
                    f"{bucket.received_bytes:,}",
                    f"{bucket.peak_bytes:,}",
                ]
            )
        columns = ("launch", "results", "array", "inputs", "sent as", "rounds", "received", "peak")
        over = f" ({self.received_bytes / self.bound_bytes:.2f}x)" if self.bound_bytes else ""
        received_bytes = (
            f"received {self.received_bytes:,} bytes over all devices; the bound of the fewest bits on the way is "
            f"{self.bound_bytes:,}{over}; {self.peak_bytes:,} bytes per device at the peak"
        )
        return "\n".join([rendered("", columns, rows), received_bytes, *said_of_copies(self.memory_copies)])
