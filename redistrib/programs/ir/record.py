"""What is known of a primitive besides its rule: one record for each, which every room reads.

An operation has the record of its nest, as a rule of the user's gives it, or else that of its kind in
`redistrib.programs.ir.primitives`. No other place decides by the name of a primitive how it is fused, priced, padded,
summed, bounded or followed. Its own parameters are read by those that know its name: rules, the tracer, which opens
some primitives by them, and pipelines, which cut scans, slices and joins of stacked layers.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from functools import cached_property


class Fusion(StrEnum):
    """How compilers fuse an operation.

    By its `nest`, most operations are loops (element-wise), reductions or products. Others move elements, and are
    part of loops whatever their nest: those that give them another order (`layout`), repeat them (`broadcast`), keep
    their order (`reshape`), take a part (`slice`), or change nothing but a type or a buffer (`convert`).
    """

    NEST = "nest"
    LAYOUT = "layout"
    BROADCAST = "broadcast"
    RESHAPE = "reshape"
    BITCAST = "bitcast"  # a loop if its nest is, and the same bytes
    SLICE = "slice"
    CONVERT = "convert"
    SELECT = "select"
    LOOKUP = "lookup"  # of rows at indices
    SCATTER = "scatter"
    UPDATE = "update"  # of a slice in place
    FOLD = "fold"  # a reduction that its nest does not say
    PRODUCT = "product"  # by its nest; of matrices, each of which libraries take transposed or not
    EXPONENTIAL = "exponential"  # by its nest; softmax begins with one
    COSTLY = "costly"  # by its nest, and not computed twice
    HASH = "hash"  # of random numbers: a kernel of its own, over the words that it hashes
    ALONE = "alone"  # a kernel of its own

    @cached_property
    def moves(self) -> bool:
        """Whether it is part of loops whatever elements it reads."""
        return self in (Fusion.LAYOUT, Fusion.BROADCAST, Fusion.RESHAPE, Fusion.SLICE, Fusion.CONVERT)

    @cached_property
    def renames(self) -> bool:
        """Whether the result has the same elements in the same order."""
        return self in (Fusion.RESHAPE, Fusion.BITCAST)

    @cached_property
    def slices(self) -> bool:
        """Whether no more of the first operand is read than is written."""
        return self in (Fusion.SLICE, Fusion.LOOKUP)

    @cached_property
    def writes_in_place(self) -> bool:
        """Whether the first operand and the result are one array."""
        return self in (Fusion.SCATTER, Fusion.UPDATE)

    @cached_property
    def is_alone(self) -> bool:
        """Whether it has a kernel of its own."""
        return self in (Fusion.HASH, Fusion.ALONE)


class WorkClass(StrEnum):
    """Classes of work that a device may do at another rate than large products."""

    NONE = ""
    CONVOLUTION = "convolution"
    FUNCTION = "function"
    INDEX = "index"
    RUNNING = "running"
    SORT = "sort"
    FOURIER = "fourier"
    TRANSPOSE = "transpose"


class Tails(Enum):
    """Whether the body may see tiles with tails, which have elements that no array has."""

    FREE = auto()  # an element of the result depends on the same element of the operands only
    MASKED = auto()  # combines elements; tails become the identity first
    POSITIONED = auto()  # knows the size of the array
    LOOKED_UP = auto()  # knows it, and looks up rows, of which parts are added
    ADDED = auto()  # knows it, and adds updates
    NEVER = auto()

    @property
    def knows_size(self) -> bool:
        """Whether the body knows the size of the array, so that it may be cut where it is told its place."""
        return self in (Tails.POSITIONED, Tails.LOOKED_UP, Tails.ADDED)

    @property
    def may_combine(self) -> bool:
        """Whether elements may be combined along a dimension with tails, which the body masks where it looks it up."""
        return self in (Tails.MASKED, Tails.ADDED, Tails.LOOKED_UP)


class Sums(Enum):
    """In which operands it is linear, so that partial sums pass where the arithmetic of element types allows."""

    NONE = auto()
    FIRST = auto()
    BOTH = auto()  # the first two together
    UPDATES = auto()  # the array and the updates of a scatter together
    FACTORS = auto()  # each of two, if the other is finite
    COMPONENTS = auto()  # the first, between real and complex numbers of one precision
    CONVERTED = auto()  # the first, between types of one kind
    DIVIDED = auto()  # the first, if the second is not zero
    CHOSEN = auto()  # all but the first together
    ALL = auto()  # all together
    PADDED = auto()  # the first, if the padding is zero
    LOOKED_UP = auto()  # the first, if what fills it is zero


class Bounds(Enum):
    """How bounds of the result follow from those of the operands."""

    UNKNOWN = auto()
    SAME = auto()  # the result has the elements of the first operand at other positions
    UNITED = auto()  # each element is one of those of the operands
    CHOSEN = auto()  # each element is one of those of the operands after the first
    COUNTED = auto()
    CONVERTED = auto()
    NEGATED = auto()
    ABSOLUTE = auto()
    ADDED = auto()
    SUBTRACTED = auto()
    MULTIPLIED = auto()
    DIVIDED = auto()
    ROOT = auto()


class Positions(Enum):
    """How positions along a dimension, which `iota` makes, are followed to the indices of look-ups."""

    NONE = auto()
    MADE = auto()
    SAME = auto()
    RESHAPED = auto()
    BROADCAST = auto()
    TRANSPOSED = auto()
    COMPARED = auto()
    CHOSEN = auto()
    JOINED = auto()
    LOOKED_UP = auto()

    @cached_property
    def go_on(self) -> bool:
        """Whether positions may be known of its result."""
        return self not in (Positions.NONE, Positions.LOOKED_UP)


class Joins(Enum):
    """Whether it may become one with a padding before it."""

    NONE = auto()
    WINDOWS = auto()  # of which zeros around elements are a parameter
    CROPPED = auto()  # and it may crop its result
    PAD = auto()


class Keys(Enum):
    """How its rule sees random keys."""

    NEVER = auto()
    INTEGERS = auto()  # it counts the integers as a dimension, or handles keys
    SHAPE = auto()  # it sees the shape of the array of keys


class Opens(Enum):
    """What becomes of it without a rule."""

    REPLACED = auto()  # by the primitives that implement it, if there are any
    NEVER = auto()  # it runs whole
    LOOP = auto()  # it becomes a loop of the graph
    OPERAND = auto()  # it is its operand under another name, or of another type of its region


class Combines(Enum):
    """What a reduction makes of the elements along a dimension, where a collective makes the same."""

    NONE = auto()
    SUM = auto()
    MAX = auto()
    MIN = auto()
    ANY = auto()  # the largest of booleans
    ALL = auto()  # the least of booleans


class Effects(Enum):
    """What becomes of its effects."""

    REFUSED = auto()
    CALLBACK = auto()  # the first device calls back, with whole arrays
    INSIDE = auto()  # they are those of operations of the function inside


class Blocks(Enum):
    """How it is made of parts of a dimension that its rule keeps whole."""

    NONE = auto()
    PRODUCT = auto()
    RUNNING = auto()
    LARGEST = auto()
    APPROXIMATE = auto()
    EXTREME = auto()


@dataclass(frozen=True)
class Record:
    """The facts of a primitive besides its rule.

    Attributes:
        fusion: how compilers fuse it.
        work: its class of work.
        flops: floating-point operations for an element, where its rule counts by elements.
        tails: whether its body may see tails.
        sums: in which operands it is linear.
        bounds: how bounds of its result follow.
        positions: how counted positions are followed through it.
        joins: whether it may become one with a padding.
        keys: how its rule sees random keys.
        opens: what becomes of it without a rule.
        combines: what it makes of elements along a dimension.
        effects: what becomes of its effects.
        blocks: how it is made of parts.
        rounds: whether floats differ by the order of its terms, which blocks change.
    """

    fusion: Fusion = Fusion.NEST
    work: WorkClass = WorkClass.NONE
    flops: int = 1
    tails: Tails = Tails.FREE
    sums: Sums = Sums.NONE
    bounds: Bounds = Bounds.UNKNOWN
    positions: Positions = Positions.NONE
    joins: Joins = Joins.NONE
    keys: Keys = Keys.NEVER
    opens: Opens = Opens.REPLACED
    combines: Combines = Combines.NONE
    effects: Effects = Effects.REFUSED
    blocks: Blocks = Blocks.NONE
    rounds: bool = False
