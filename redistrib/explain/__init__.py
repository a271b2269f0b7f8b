"""How to see a plan: why it receives what it does, who holds what, and the weak graph that it is a path through."""

from redistrib.explain.graph import draw_graph, weak_graph
from redistrib.explain.received import Traffic, explain, traffic
from redistrib.explain.tiles import picture

__all__ = ["Traffic", "draw_graph", "explain", "picture", "traffic", "weak_graph"]
