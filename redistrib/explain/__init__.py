"""Explanations and pictures: the traffic of a plan, its tiles, its path in the weak graph; the traffic of a program."""

from redistrib.explain.graph import draw_graph, weak_graph
from redistrib.explain.programs import draw_program
from redistrib.explain.received import Traffic, explain, traffic
from redistrib.explain.tiles import picture

__all__ = ["Traffic", "draw_graph", "draw_program", "explain", "picture", "traffic", "weak_graph"]
