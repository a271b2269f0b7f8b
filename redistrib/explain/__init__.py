"""Explanations and pictures: the traffic of a plan, its tiles, its path in the weak graph."""

from redistrib.explain.graph import draw_graph, weak_graph
from redistrib.explain.received import Traffic, explain, traffic
from redistrib.explain.tiles import picture

__all__ = ["Traffic", "draw_graph", "explain", "picture", "traffic", "weak_graph"]
