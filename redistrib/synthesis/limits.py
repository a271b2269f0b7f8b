"""How much synthesis tries, in one table: above these numbers a way to plan is left out, to plan within seconds.

No number changes what is correct; all but the last bound work whose time grows faster than the problem. Read as
`limits.NAME`.
"""

from __future__ import annotations

# --------------------------------------------------------------------------------------------- exchanges

UNEQUAL_SHARES = 1 << 12
"""Shares of unequal size of an exchange that is arranged in several ways; each way colours them one by one."""

ROUND_SHARES = 1 << 16
"""Shares of an exchange that is arranged in rounds beside other candidates, which need no colouring."""

DIRECT_SHARES = 1 << 18
"""Shares of equal size of the direct exchange, where no other plan meets the lower bound; arranged once."""

DIRECT_UNEQUAL_SHARES = 1 << 17
"""Shares of unequal size of the direct exchange, where no other plan meets the lower bound; arranged once."""

PADDED_DEVICES = 1 << 8
"""Devices of an exchange that is arranged in rounds with padding, by matchings that take the cube of the devices."""

MATCHED_DEVICES = 1 << 8
"""Devices on a torus that hold one tile and are matched with receivers by distance; the cube of their number."""

SWAPPED_PAIRS = 4096
"""Pairs of a permute whose senders are changed so that no two hosts swap; in more, single swaps do not matter."""

BALANCED_SHARES = 1024
"""Shares of an exchange whose rounds are balanced between unequal hosts, in which one share counts for little."""

BALANCED_ROUNDS = 16
"""Rounds of such an exchange."""

BALANCED_PATHS = 5
"""Paths of two rounds whose exchanges are tried in all combinations, 2 to the power of this less 1."""

# ------------------------------------------------------------------------------- placements in the middle

TARGET_PARTS = 12
"""Ways to cut the target finer, between device sets; those that leave least to the gather come first."""

PART_DIMENSIONS = 6
"""Dimensions that are cut finer, between device sets: ways grow with the product of divisors by dimension."""

GATHER_FACTORS = 24
"""Ways to cut the target finer, before a gather on the same devices; the finest come first."""

# ------------------------------------------------------------------------------------------ the paper's search

VISITED_NODES = 1 << 20
"""Expanded nodes times devices, since paths on many devices are slow to lower; at least `LEAST_VISITED` nodes."""

LEAST_VISITED = 120
"""Nodes that are expanded on any number of devices."""

PLACED_TILES = 1 << 17
"""Tiles that are assigned to devices, of all paths that are lowered."""

QUICK_EXPANSIONS, QUICK_REVISITS, QUICK_PATHS = 120, 2, 4
"""Nodes, paths through one node and lowered paths of a search beside other candidates: it is slow and rarely wins."""

# --------------------------------------------------------------------------------------------- partial sums

SUM_CUTS = 1 << 10
"""Ways to cut one number of parts over the dimensions, in the middle of a reduction: a product of divisors."""

SUM_PRICED = 1 << 14
"""Placements in the middle of a reduction that are priced by their bound: ways to slice times ways to scatter."""

SUM_MIDDLES = 48
"""Placements in the middle of a reduction that are built, by the price of their bound; each assigns all tiles."""

SUM_EXCHANGES = 3
"""Reductions by exchange that are built, by elements received; the shares of each are coloured."""

SUM_ASSIGNED_DEVICES = 64
"""Devices that are assigned to tiles in the middle by largest overlap, for each grid; the cube of their number."""

SUM_ROUND_SHARES = 1 << 12
"""Shares of an exchange of summands that is arranged in several ways; each way colours them one by one."""

SUM_SOURCES = 8
"""Placements of partial sums from which a partial target is made; for each the steps to it are searched."""

SUM_SOURCES_TRIED = 24
"""Placements of partial sums whose elements received are counted, to choose those; each takes assignments."""

SUM_SOURCE_WEIGHED, SUM_SOURCES_WEIGHED = 1 << 22, 1 << 25
"""Pairs of a device and a part of a summand that it may hold, in one such placement, which has a table of them in
memory, and in all; where finer ones have so many, the coarsest are tried in place of further ones."""

SUM_SOURCES_LARGE = 2
"""Further placements with at most twice as many pairs, in which every sum of the target has a part of its own, or that
have the tiles of the target and need no table."""

SUM_SOURCE_SHARES = 1 << 15
"""Shares of an exchange that brings every device one of several summands: their rounds are slow to colour."""

PULLED_SHARES = 1 << 16
"""Shares of all exchanges that pull sums, once there is another candidate: their rounds are slow to colour."""

NUMBERED_SUMS, NUMBERED_PAIRS = 1 << 9, 1 << 22
"""Partial sums of a tile that are numbered by a table of all pairs, and such pairs of all tiles: of more sums, each
takes its best place; where there is no room for all, and there are more pairs, the heaviest come first."""

SUM_TAILS = 4
"""Placements in the middle from which the steps to the target are searched."""

SUM_TAIL_DEVICES = 256
"""Devices above which that is one placement, as it is for every source of a partial target."""

# ------------------------------------------------------------------------------------------------ the choice

PRICE_TOLERANCE = 1.3
"""Where hosts are unequal, a plan may cost so many times the least price if it saves more time on the links between
hosts, since all devices of a host wait for their shared link."""
