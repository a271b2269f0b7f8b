"""An equation of a jaxpr as the argument of a rule, and the table of rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jex

from redistrib.backends.jax.private import bind
from redistrib.cache import Key, cached
from redistrib.programs.ir.graph import CountedStep
from redistrib.programs.ir.loops import LoopForm, WhileForm
from redistrib.programs.ir.nest import Access, Nest
from redistrib.programs.ir.primitives import record_of
from redistrib.programs.ir.record import Record
from redistrib.programs.ir.windows import Window
from redistrib.programs.rules.axes import MeshAxes
from redistrib.programs.rules.identity import identity_of

At: TypeAlias = Mapping[str, Any]  # of every iteration dimension the part that runs, with a length and a start
Dims: TypeAlias = Sequence[str | tuple[str, ...]]  # for each array dimension an iteration dimension; "" reads it whole


def is_whole(part: Any, size: int) -> bool:
    """Whether a part of an iteration dimension has all its points; a part with tails may be as long and have none.

    Args:
        part: with a length, and a start that is traced where parts differ.
        size: points.
    """
    return len(part) == size and isinstance(part.start, int) and part.start == 0


class ArrayForm(NamedTuple):
    """Shape and element type of an operand or result; random keys count as their integers.

    Attributes:
        shape: in elements.
        dtype: name of the element type.
        key: the implementation of random keys; None for other arrays.
    """

    shape: tuple[int, ...]
    dtype: str
    key: Any = None


class Lit(NamedTuple):
    """A value that is known while tracing."""

    value: Any


Atom: TypeAlias = "str | Lit"  # a value: its name, or itself


class ValueRange(NamedTuple):
    """Bounds of all elements of an array, each of which is a number between them; both are finite."""

    low: float
    high: float

    @property
    def most(self) -> float:
        """The largest magnitude."""
        return max(abs(self.low), abs(self.high))


@dataclass(frozen=True)
class Equation:
    """A primitive applied to operands.

    Attributes:
        primitive: the primitive.
        params: its parameters, for whole arrays.
        ins, outs: operands and results.
        literals: values of the operands that are no arrays of the program, by position.
        called: name of the called function; empty where the primitive is no call.
        effectful: whether the primitive has an effect besides its results.
        rules: rules of the caller for functions inside the primitive, by name of the primitive.
        ranges: known bounds of operands, by position.
        exact: whether no partial sum may pass an operation inside a loop or a branch.
        trip_count: steps that a `while` counts as.
        axes: the mesh axes that a function inside may name.
    """

    primitive: Any
    params: Mapping[str, Any]
    ins: tuple[ArrayForm, ...]
    outs: tuple[ArrayForm, ...]
    literals: Mapping[int, Any]
    called: str = ""
    effectful: bool = False
    rules: Mapping[str, Any] = field(default_factory=dict, compare=False)
    ranges: Mapping[int, ValueRange] = field(default_factory=dict)
    exact: bool = False
    trip_count: int = 1
    axes: MeshAxes = field(default_factory=MeshAxes, compare=False)

    @cached_property
    def kind(self) -> str:
        """Name of the primitive, or of the called function."""
        return self.called or str(self.primitive.name)

    @cached_property
    def record(self) -> Record:
        """What is known of the primitive besides its rule."""
        return record_of(self.kind)

    @cached_property
    def reads(self) -> tuple[int, ...]:
        """Positions of the operands that are arrays of the program."""
        return tuple(k for k in range(len(self.ins)) if k not in self.literals)

    def operands(self, tiles: Sequence[Any]) -> list[Any]:
        """All operands, literals in their places; keys as keys."""
        operands_left = iter(tiles)
        values = []
        for k, form in enumerate(self.ins):
            value = self.literals[k] if k in self.literals else next(operands_left)
            is_data = form.key is not None and k not in self.literals
            values.append(jax.random.wrap_key_data(value, impl=form.key) if is_data else value)
        return values

    def run(self, tiles: Sequence[Any], **params: Any) -> Any:
        """The primitive on tiles, with parameters of tiles in the place of those of whole arrays."""
        operands, params = self.operands(tiles), {**self.params, **params}
        if self.record.fusion.writes_in_place:
            return results(
                [written_in_place(lambda base: bind(self.primitive, [base, *operands[1:]], params)[0], operands[0])]
            )
        return results(bind(self.primitive, operands, params))

    def nest(
        self,
        sizes: Mapping[str, int],
        ins: Sequence[Dims],
        outs: Sequence[Dims],
        *,
        body: Callable[..., Any] | None = None,
        linear: Sequence[Sequence[int]] = (),
        windows: Mapping[int, Sequence[Window]] = MappingProxyType({}),
        combine: Mapping[str, str] = MappingProxyType({}),
        whole: Iterable[str] = (),
        indexed: Iterable[str] = (),
        fills: str | None = None,
        flops: int | Fraction = 1,
        replicated: Iterable[int] = (),
        record: Record | None = None,
    ) -> Nest:
        """The nest of the equation.

        Args:
            sizes: points along each iteration dimension.
            ins: the access of each operand, literals included.
            outs: the access of each result.
            body: called with the part and the tiles of the operands that are arrays; by default the primitive itself.
            linear: groups of operands whose partial sums pass, by position, but for literals; else `rules.sums` says.
            windows: of operands, by position, see `redistrib.programs.ir.nest.Access`.
            combine, whole, indexed, fills, flops, replicated, record: as of `redistrib.programs.ir.nest.Nest`.
        """
        place = {k: number for number, k in enumerate(self.reads)}
        reads = tuple(access(f"a{k}", ins[k], self.ins[k].shape, windows.get(k, ())) for k in self.reads)
        writes = tuple(
            access("out" if len(outs) == 1 else f"out{k}", dims, form.shape)
            for k, (dims, form) in enumerate(zip(outs, self.outs, strict=True))
        )
        groups = tuple(tuple(place[k] for k in group) for group in linear if all(k in place for k in group))
        return Nest(
            self.kind, tuple(sizes.items()), reads, writes, tuple(combine.items()),  # type: ignore[arg-type]
            frozenset(whole), groups, frozenset(indexed), fills, body or Primitive(self), flops, self.effectful,
            frozenset(replicated), record,
        )  # fmt: skip


class Primitive:
    """An equation's primitive as the body of a nest; equal to that of an equation that computes the same."""

    def __init__(self, equation: Equation) -> None:
        self.equation = equation

    def __call__(self, at: At, *tiles: Any) -> Any:
        return self.equation.run(tiles)

    @cached_property
    def _key(self) -> Key:
        equation = self.equation
        key = identity_of(equation.primitive, equation.params, (equation.ins, equation.outs), _plain(equation))
        return Key((id(equation),)) if key is None else key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Primitive) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


@dataclass(frozen=True, eq=False)
class EquationBody:
    """The body of a nest that remembers its equation.

    Attributes:
        equation: the operation, for whole arrays.
        run: the body.
        step: of a counted loop one step; None for other operations, and where a step reads arrays of its own.
    """

    equation: Equation
    run: Callable[..., Any]
    step: CountedStep | None = None

    def __call__(self, at: At, *tiles: Any) -> Any:
        return self.run(at, *tiles)


def written_in_place(write: Callable[[Any], Any], base: Any) -> Any:
    """An array for an update, behind a barrier on CPUs so that no reshape is moved in between.

    XLA for CPUs updates arrays in place, and moves later reshapes ahead of the update. Through a reshape it does not
    see that the update reads the same array: `jax.jit(lambda x: x.at[1:5].set(x[:4]).reshape(-1))` reads what
    it has overwritten.
    """
    return _barrier(write(_barrier(base)))


def _barrier(array: Any) -> Any:
    return jax.lax.platform_dependent(array, cpu=jax.lax.optimization_barrier, default=_unchanged)


def _unchanged(array: Any) -> Any:
    return array


def _plain(equation: Equation) -> list[tuple[int, Any]]:
    """The literals; keys as their integers."""
    return [(k, jax.random.key_data(value) if is_key(value) else value) for k, value in equation.literals.items()]


def results(values: Sequence[Any]) -> Any:
    """The results of a body, one or a tuple; keys as their integers."""
    plain = tuple(jax.random.key_data(value) if is_key(value) else value for value in values)
    return plain[0] if len(plain) == 1 else plain


def is_key(array: Any) -> bool:
    """Whether an array, or an abstract value, has random keys as elements."""
    return bool(jnp.issubdtype(array.dtype, jax.dtypes.prng_key))


def literal(value: Any) -> Lit:
    """A literal of a jaxpr; JAX gives arrays among them the mesh of the function, which is not that of the program."""
    return Lit(np.asarray(value) if hasattr(value, "aval") and not is_key(value) else value)


def form_of(aval: Any) -> ArrayForm:
    """Shape and element type; keys as their integers."""
    element = _element_of(aval.dtype)
    return ArrayForm((*aval.shape, *element.shape), element.dtype, element.key)


@cached(64)
def _element_of(dtype: Any) -> ArrayForm:
    """The form of one element."""
    if not jnp.issubdtype(dtype, jax.dtypes.prng_key):
        return ArrayForm((), str(dtype))
    kinds: list[Any] = []

    def read(key: jax.Array) -> jax.Array:
        kinds.append(jax.random.key_impl(key))
        return jax.random.key_data(key)

    data = jax.eval_shape(read, jax.ShapeDtypeStruct((), dtype))
    return ArrayForm(data.shape, str(data.dtype), kinds[0])


def scan_form(params: Mapping[str, Any], ins: Sequence[ArrayForm], outs: Sequence[ArrayForm]) -> LoopForm:
    """How operands and results of a scan follow each other: its step has arrays of entries without a dimension.

    The parameters that say so have other names from JAX 0.12 on.

    Args:
        params: of the scan.
        ins, outs: forms of its operands and results.
    """
    body = params["jaxpr"]
    entries, stacked = (
        sum(len(form.shape) > len(form_of(aval).shape) for form, aval in zip(forms, avals, strict=True))
        for forms, avals in ((ins, body.in_avals), (outs, body.out_avals))
    )
    carried = len(outs) - stacked
    return LoopForm(len(ins) - entries - carried, carried, params["length"], bool(params["reverse"]))


def access(array: str, dims: Dims, shape: Sequence[int], windows: Sequence[Window] = ()) -> Access:
    """An access by names of iteration dimensions."""
    names = tuple((dim,) if isinstance(dim, str) and dim else tuple(dim) for dim in dims)
    extents = tuple(size for size, dim in zip(shape, names, strict=True) if not dim)
    return Access(array, names, extents, tuple(windows))


def while_form(params: Mapping[str, Any]) -> WhileForm:
    """How operands of a `while` follow each other."""
    return WhileForm(params["cond_nconsts"], params["body_nconsts"])


def with_scalar_condition(params: Mapping[str, Any]) -> tuple[Mapping[str, Any], bool]:
    """The parameters of a `while` whose condition is one boolean, and whether they are others.

    Under `vmap` a condition may have a boolean for each row: the loop goes on while any is true, and a step changes the
    rows that are true. The step then reads the constants of the condition first, and then those of the step.
    """
    condition, body = params["cond_jaxpr"], params["body_jaxpr"]
    shape = condition.out_avals[0].shape
    if not shape:
        return params, False
    form = while_form(params)
    holds, change = jex.jaxpr_as_fun(condition), jex.jaxpr_as_fun(body)

    def step(*operands: Any) -> list[Any]:
        of_condition, fixed, state = form.operands(operands)
        (rows,) = holds(*of_condition, *state)
        after = change(*fixed, *state)
        return [
            jax.lax.select(jax.lax.broadcast_in_dim(rows, new.shape, range(rows.ndim)), new, old)
            for new, old in zip(after, state, strict=True)
        ]

    of_condition, _, state = form.operands([*condition.in_avals[: form.tested], *body.in_avals])
    changed = jax.make_jaxpr(step)(*of_condition, *body.in_avals)
    any_holds = jax.make_jaxpr(lambda *operands: [holds(*operands)[0].any()])(*of_condition, *state)
    return {**params, "cond_jaxpr": any_holds, "body_jaxpr": changed, "body_nconsts": form.held}, True


Rule: TypeAlias = Callable[[Equation], Nest | None]


@dataclass(frozen=True)
class CallRule:
    """A rule that also applies to calls of jitted functions of its name; `run`, if any, computes the function."""

    rule: Rule
    run: Callable[..., Any] | None = None

    def __call__(self, equation: Equation) -> Nest | None:
        return self.rule(equation)


RULES: dict[str, Rule] = {}


def rule(*kinds: str, table: dict[str, Rule] = RULES) -> Callable[[Rule], Rule]:
    """Register the rule of primitives: a function that returns the nest of an equation, or None if it stays whole."""

    def add(function: Rule) -> Rule:
        table.update(dict.fromkeys(kinds, function))
        return function

    return add


def whole(equation: Equation, flops: int = 0) -> Nest:
    """The nest of a primitive that reads and writes whole arrays, with its FLOPs where they are known."""
    ins = [("",) * len(form.shape) for form in equation.ins]
    return equation.nest({}, ins, [("",) * len(form.shape) for form in equation.outs], flops=flops)


def letters(prefix: str, shape: Sequence[int]) -> dict[str, int]:
    """A name for each dimension."""
    return {f"{prefix}{k}": size for k, size in enumerate(shape)}


def product_letters(left: Sequence[int], right: Sequence[int], numbers: tuple[Any, Any]) -> tuple[list[str], list[str]]:
    """Names of the batch and contracted dimensions of a product's operands; empty for other dimensions.

    Args:
        left, right: shapes of the operands.
        numbers: contracted dimensions and batch dimensions of both, as `lax.dot_general` takes them.
    """
    (left_sum, right_sum), (left_batch, right_batch) = numbers
    a, b = [""] * len(left), [""] * len(right)
    batch, contracted = zip(left_batch, right_batch, strict=True), zip(left_sum, right_sum, strict=True)
    for prefix, pairs in (("b", batch), ("k", contracted)):
        for number, (i, j) in enumerate(pairs):
            a[i] = b[j] = f"{prefix}{number}"
    return a, b


def name_the_rest(a: list[str], b: list[str]) -> None:
    """Name the dimensions of a product that only one operand has: `m0`, `n0`, ..."""
    for prefix, dims in (("m", a), ("n", b)):
        for number, k in enumerate([k for k, name in enumerate(dims) if not name]):
            dims[k] = f"{prefix}{number}"
