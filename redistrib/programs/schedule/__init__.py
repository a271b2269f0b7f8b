"""How work is cut: schedules, tactics, grids, and the cuts that follow from them along a graph."""
