"""The constants of searches, each with its unit and the reason for it.

Shares are of 1. Those of overlap, which times moves beside operations, are in `overlap`.
"""

from __future__ import annotations

# ------------------------------------------------------------------------------------- seconds: who gets how much
LEAST = 0.2  # a share of the limit that every search has for schedules, though tracing may have taken all of it
APART = 0.4  # a share of the time that the search without overlap has, whose schedule the one with overlap begins with
FREE = 0.5  # a share of the time in which the fastest schedule is looked for without a limit of bytes, with overlap
DECIDING = 0.85  # a share of the time in which schedules are looked for; the rest is for the bound
DERIVING = 0.5  # a share of that in which the schedules that people write are derived; the rest is to better them

# -------------------------------------------------------------------------------------------- what is the same price
BETTER = 1e-7  # a share of the price by which a schedule must be better to be taken, so that a search ends
GAP = 1e-6  # a share of the objective within which the integer program's solver proves its optimum
ROUNDING = 1e-10  # a share of a sum of prices by which it may differ when it is added up in another order
TIES = 2e-4  # a share of the work shared out evenly, the price of idle devices: it decides where nothing else does
HEAVY = 100  # the largest work over that of an operation which still has much: others may stay uncut for bytes' sake

# ------------------------------------------------------------------------------------------------- what is decided
ALONE = 2_000  # operations of a program up to which each is decided by itself in the end; of more, layers once
ANEW = 400  # operations of a program up to which axes are decided from nothing too: with more it takes a third of the
# search, and came to nothing better than the schedules that people write wherever it was tried
TOGETHER = 1_500  # options of all operations up to which two axes are decided together: an axis takes the sum of them
CONVERSIONS = (
    10_000  # conversions in a choice graph of two axes up to which its relaxation is solved, which takes longest
)
HIDDEN = ((1.0, 1.0), (0.1, 1.0), (0.1, 0.3), (4.0, 4.0))  # factors of the seconds of moves that wait for nothing, and
# of others, tried in turn with overlap: sums of prices do not say which moves are hidden
TURNED = 100  # decisions turned to another option since the last that was better: each may be a walk over the program
WEIGHTS = (0.0, 0.25, 1.0, 4.0)  # factors of the seconds of moves beside operations, for each of which a bound is found

# ---------------------------------------------------------------------------------------------- the price of a byte
CHEAPEST = 0.01  # the first price, in prices of the fastest schedule over its bytes: it hardly changes anything
STEEP = 8.0  # a factor by which a byte becomes dearer while the schedule does not fit
STEPS = 8  # times that it does: then the bytes of the fastest schedule cost 20,000 times what it takes
HALVINGS = 4  # times that the price is set between one that fits and one that does not, to come near the limit again

# ------------------------------------------------------------------------------------------------- tables, programs
LARGEST = 4_000_000  # entries of a table, 32 MB, above which nodes are not eliminated
LARGEST_EDGE = 500_000  # entries of the table of an edge, 4 MB, up to which it is kept with all options
MOST_NODES = 32  # nodes of a table besides the decided one: NumPy has arrays of 64 dimensions
SMALL = 1_000_000  # entries of a table up to which a whole choice graph is solved by elimination
WITHIN = 100_000  # entries of a table up to which a neighbourhood is decided anew: many are
NEIGHBOURHOOD = 24  # nodes of a neighbourhood: more leave tables too large
STRIDE = 4  # nodes from the centre of one neighbourhood to that of the next, so that they overlap
CLOSED = 60  # nodes up to which the integer program is solved to the end: its time grows exponentially
MANY = 200  # nodes above which a known choice is improved without another relaxation, which takes longest
SHARES = (
    1e-6,
    0.05,
    0.1,
    0.2,
    0.3,
)  # shares of an option in the relaxation from which on it is tried, in turn
MERGED = 3_000  # entries of the table by which a node that the integer program leaves out is decided: more enlarge it
COMBINATIONS = 2_000  # options of a value's maker and readers up to which each combination is a variable

# --------------------------------------------------------------------------------------------------- repeated layers
NEAR = 3  # steps to neighbours by which operations are compared to be alike
FEWEST = 6  # layers of a stack that is folded: with fewer hardly any are taken out
WINDOW = 6  # operations in a row by which a repetition is recognised: shorter rows repeat by chance
PERIODS = 12  # lengths of a layer that are tried, the most frequent first
LAYERS_KEPT = 2  # layers that stay before those that are taken out: the last of them stands for these
AFTER = 1  # layers that stay after those that are taken out
AGREED = 0.5  # a share of the arrays that two runs have in common, which must say which of their layers go together
WIDEST = 16  # operations that have an array in common, above which it says nothing of layers
SWEEPS = 2  # times that runs are begun elsewhere, one after the other
SLACK = 3  # layers by which readers of a run may look back or ahead

# ------------------------------------------------------------------------------------------- meshes, moves, written
AXES = 3  # axes of a mesh that is searched for a number of devices: a torus has no more dimensions
SIMULATED = 1 << 13  # devices of a mesh up to which figures of a result are those of its program; more plan slowly
PLANNED = 32  # devices of a mesh up to which a move has the price of its plan: plans grow with devices, formulas do not
TRIALS = 24  # dimensions of arguments of which it is tried how much work follows from cutting them
NEARLY = 0.9  # a share of the most work that a dimension cuts: examples are by custom the first dimension that has it
SOME = 0.1  # a share of the work that examples cut, which a dimension must cut to be their sequence
SHOWN = 10  # lines of a report about decisions, where not all are asked for
