"""The latency of a collective, before its first byte."""

from __future__ import annotations

from dataclasses import dataclass

from redistrib.cache import cached


@dataclass(frozen=True)
class Latency:
    """Seconds before the first byte: `launch + member * (group size - 1)`."""

    launch: float
    member: float = 0.0

    def seconds(self, members: int) -> float:
        """Latency of a collective over `members` devices."""
        return self.launch + self.member * (members - 1)


@cached(1 << 10)
def calls_at_least(latency: Latency, product: int) -> float:
    """A lower bound on the seconds of collectives whose group sizes multiply to at least `product`."""
    least = latency.seconds(product)
    for calls in range(2, product.bit_length()):
        # A sum of equal sizes is least, by the inequality of arithmetic and geometric means.
        least = min(least, calls * (latency.launch + latency.member * (product ** (1 / calls) - 1)))
    return least
