"""How to see plans and programs: why a plan receives what it does, who holds what, its path; what a program moves."""

from redistrib.explain.graph import draw_graph, weak_graph
from redistrib.explain.programs import draw_program
from redistrib.explain.received import Traffic, explain, traffic
from redistrib.explain.tiles import picture

__all__ = ["Traffic", "draw_graph", "draw_program", "explain", "picture", "traffic", "weak_graph"]
