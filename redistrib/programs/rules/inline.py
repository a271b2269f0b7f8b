"""A jaxpr as a graph: calls inlined, loops of a known length unrolled, a rule applied to each equation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jax.extend import core as jex

from redistrib.backends.jax.memory_kinds import of_host
from redistrib.backends.jax.names import REDISTRIBUTE
from redistrib.backends.jax.private import INLINED, TRACING_FILES, source_line
from redistrib.cache import changed
from redistrib.errors import ProgramError
from redistrib.programs.ir.graph import Array, Graph, Operation
from redistrib.programs.ir.loops import LoopScope
from redistrib.programs.ir.primitives import RECORDS, record_of
from redistrib.programs.ir.record import Fusion, Joins, Opens, Positions
from redistrib.programs.rules import (  # noqa: F401  # they fill the table
    effects,
    experts,
    indexed,
    layout,
    loops,
    pointwise,
    reduce,
    windows,
)
from redistrib.programs.rules.called import JittedCalls
from redistrib.programs.rules.constraints import CUT, constrained, cut_here
from redistrib.programs.rules.counting import Counting, with_batch
from redistrib.programs.rules.dead import JaxprReads, passed_on, read_results
from redistrib.programs.rules.equation import (
    RULES,
    ArrayForm,
    Atom,
    CallRule,
    Equation,
    Lit,
    Rule,
    ValueRange,
    form_of,
    literal,
)
from redistrib.programs.rules.in_parts import in_parts
from redistrib.programs.rules.indexed import bits_looked_up
from redistrib.programs.rules.nests import Derived, Nests
from redistrib.programs.rules.opened import of_platform, opened
from redistrib.programs.rules.padding import Paddings
from redistrib.programs.rules.ranges import of_constant
from redistrib.programs.rules.reduce import by_integers, of_booleans
from redistrib.programs.rules.repeated import Repeated
from redistrib.programs.rules.shard_maps import REGION, region
from redistrib.programs.rules.traced import Traced, TraceOptions
from redistrib.programs.rules.unrolled import unrolled

TRACING_FILES.add(__file__)

_WITHOUT_A_NEST = {
    *(
        "random_wrap",
        "random_unwrap",
        "reshape",
        "device_put",
        "optimization_barrier",
        "sharding_constraint",
        "reshard",
    ),
    *(REDISTRIBUTE, CUT, "jit", "pjit", "platform_index", "cond", *INLINED),
    *(name for name, record in RECORDS.items() if record.opens is Opens.OPERAND),
}  # primitives that may become other operations, or none


def trace(
    function: Callable[..., Any] | jex.ClosedJaxpr,
    args: Sequence[Any],
    names: Sequence[str],
    options: TraceOptions | None = None,
) -> Traced:
    """Trace a function of arrays.

    Args:
        function: as for `jax.jit`; or one that is traced.
        args: its arguments, arrays or `jax.ShapeDtypeStruct`.
        names: of the leaves of the arguments, in order.
        options: rules, and what becomes of loops.

    Raises:
        ProgramError: if the function has an unsupported effect, or reads or writes arrays in place.
    """
    options = options or TraceOptions()
    if isinstance(function, jex.ClosedJaxpr):
        closed, shapes = function, [*function.out_avals]
    else:
        closed, shapes = jax.make_jaxpr(function, return_shape=True)(*args)
    tracer = _Tracer({**RULES, **options.rules}, options, options.parts)
    effects.require_arrays("", [var.aval for var in (*closed.jaxpr.invars, *closed.jaxpr.constvars)])
    env: dict[Any, Atom] = {
        var: tracer.input(name, var.aval) for var, name in zip(closed.jaxpr.invars, names, strict=True)
    }
    env.update(
        (var, tracer.captured(each, var.aval)) for var, each in zip(closed.jaxpr.constvars, closed.consts, strict=True)
    )
    tracer.walk(closed.jaxpr, env, "")
    outputs = [tracer.materialized(tracer.read(env, var), form_of(var.aval)) for var in closed.jaxpr.outvars]
    forms = [form_of(var.aval) for var in closed.jaxpr.outvars]
    graph = Graph(tuple(tracer.inputs), tuple(tracer.operations), tuple(outputs), tuple(tracer.loops)).used()
    return Traced(
        graph,
        tuple(tracer.constants),
        tracer.in_keys,
        {k: form.key for k, form in enumerate(forms) if form.key is not None},
        jax.tree_util.tree_structure(shapes),
        tuple(jax.tree_util.tree_leaves(shapes)),
        tuple(tracer.divisible),
        frozenset(tracer.unstacked),
        tuple(tracer.unrolled),
        tuple(k for k, aval in enumerate(closed.out_avals) if of_host(aval)),
        closed.jaxpr,
    )


@dataclass
class _Tracer:
    rules: Mapping[str, Rule]
    options: TraceOptions
    parts: int  # over which what is traced now may be cut
    inputs: list[Array] = field(default_factory=list)  # the arguments, and captured arrays as they are met
    in_keys: dict[int, Any] = field(default_factory=dict)  # implementations of inputs that are random keys
    constants: list[Any] = field(default_factory=list)  # values of the captured arrays
    captures: dict[int, str] = field(default_factory=dict)  # their names, by `id`
    divisible: list[str] = field(default_factory=list)  # the operations; "" for one that is divided
    operations: list[Operation] = field(default_factory=list)
    loops: list[LoopScope] = field(default_factory=list)
    scope: int | None = None  # the innermost loop that is being traced
    taken: set[str] = field(default_factory=set)
    count: dict[str, int] = field(default_factory=dict)
    stacks: dict[str, list[Atom]] = field(default_factory=dict)  # outputs of scans, by step
    unstacked: set[str] = field(default_factory=set)
    unrolled: dict[tuple[str, int], None] = field(default_factory=dict)
    opened_at: str = ""  # the user's line of the primitive that is being opened; lines inside are those of libraries
    zeros: set[str] = field(default_factory=set)
    ranges: dict[str, ValueRange] = field(default_factory=dict)  # known bounds of values
    counting: Counting = field(default_factory=Counting)
    paddings: Paddings = field(default_factory=Paddings)
    reads: JaxprReads = field(default_factory=JaxprReads)  # of the jaxpr that is walked
    repeated: Repeated = field(default_factory=Repeated)
    calls: JittedCalls = field(default_factory=JittedCalls)

    def __post_init__(self) -> None:
        self.nests = Nests(self.options)

    def input(self, name: str, aval: Any) -> str:
        form = form_of(aval)
        if form.key is not None:
            self.in_keys[len(self.inputs)] = form.key
        self.inputs.append(Array(name, form.shape, form.dtype))
        self.taken.add(name)
        return name

    def captured(self, value: Any, aval: Any) -> str:
        """An array that a function closes over, as an input, so that devices have tiles of it like of any other."""
        if id(value) not in self.captures:
            name = self.captures[id(value)] = self.input(f"constant.{len(self.constants)}", aval)
            self.constants.append(value)
            if (bounds := of_constant(value)) is not None:
                self.ranges[name] = bounds
            self.counting.note_constant(name, value)
        return self.captures[id(value)]

    def inside(self, value: Any, aval: Any) -> Atom:
        """What a function that is called closes over: an array, or a number, which operations have in themselves."""
        return self.captured(value, aval) if aval.shape else literal(value)

    def read(self, env: Mapping[Any, Atom], var: Any) -> Atom:
        return self.inside(var.val, var.aval) if isinstance(var, jex.Literal) else env[var]

    def named(self, kind: str) -> str:
        while True:
            k = self.count.get(kind, 0)
            self.count[kind] = k + 1
            name = f"{kind}_{k}" if k else kind
            if name not in self.taken:
                self.taken.add(name)
                return name

    def walk(self, jaxpr: Any, env: dict[Any, Atom], where: str, used: Sequence[bool] | None = None) -> None:
        """Add the equations of a jaxpr, inlined from source line `where`; `used` says which results are read."""
        around, self.reads = self.reads, JaxprReads(jaxpr, used)
        for eqn in jaxpr.eqns:
            ins = [self.inside(v.val, v.aval) if isinstance(v, jex.Literal) else env[v] for v in eqn.invars]
            source = self.opened_at or source_line(eqn) or where
            try:
                outs = self.again(eqn, ins, source)
                if outs is None:
                    outs = self.apply(eqn, ins, source)
            except ProgramError as error:
                raise error.at(source) from None
            env.update(zip(eqn.outvars, outs, strict=True))
        self.reads = around

    def used(self, eqn: Any) -> list[bool]:
        """Whether each result of an equation is read."""
        return [id(var) in self.reads.live for var in eqn.outvars]

    def apply(self, eqn: Any, ins: list[Atom], source: str) -> list[Atom]:
        kind = eqn.primitive.name
        if kind in _WITHOUT_A_NEST and (outs := self._without_a_nest(eqn, kind, ins, source)) is not None:
            return outs
        effects.require_known(eqn, kind in self.options.rules)
        if kind == REGION and kind in self.rules:
            return region(self, eqn, ins, source)
        if kind == "add_any":  # where a scan begins to add up gradients
            others = [atom for atom in ins if not (isinstance(atom, str) and atom in self.zeros)]
            if len(others) < len(ins):
                return others or ins[:1]
        if self.options.opens_loops and kind in loops.LOOPS and kind not in self.rules:
            return loops.LOOPS[kind](self, eqn, ins, source)
        if kind == "scan" and (eqn.params["length"] <= self.options.unrolled_up_to or loops.is_unrolled(eqn.params)):
            if eqn.params["length"] > 1 and not loops.is_unrolled(eqn.params):
                self.unrolled[source, eqn.params["length"]] = None
            return unrolled(self, eqn, ins, source)
        if kind not in self.rules:
            inner = opened(eqn)
            if inner is None:
                effects.require_no_axes(eqn)
                return self.equation(eqn, ins, source)
            return self.made_of(inner, ins, source, self.parts, self.used(eqn))
        if kind == "cond":
            passed = passed_on(eqn)
            used = [is_used and k not in passed for k, is_used in enumerate(self.used(eqn))]
            read = read_results(eqn, used)
            if read or (passed and not any(used) and not eqn.effects):
                results = iter(self.equation(read.eqn, [ins[k] for k in read.ins], source) if read else ())
                read_alone = [next(results) if is_used else Lit(None) for is_used in used]
                return [ins[passed[k]] if k in passed else atom for k, atom in enumerate(read_alone)]
        is_divisible = kind not in self.options.rules and bool(ins) and isinstance(ins[0], str)
        made = in_parts(eqn, self.parts, exact=self.options.exact) if is_divisible else None
        if made is None:
            outs = self.equation(eqn, ins, source)
            names = self.operations[-1].ins
            if kind not in self.options.rules and names == tuple(ins) and self.ranges.keys().isdisjoint(names):
                self.repeated.note(eqn, self.parts, *self.latest)
            return outs
        is_divided = len(self.divisible) in self.options.divided  # blocks have no blocks
        outs = self.made_of(made(), ins, source, 1) if is_divided else self.equation(eqn, ins, source)
        self.divisible.append("" if is_divided else str(outs[0]))
        return outs

    def _without_a_nest(self, eqn: Any, kind: str, ins: list[Atom], source: str) -> list[Atom] | None:
        """The results of an equation that needs no nest of its own: renamed, constrained, inlined; None if it does."""
        if kind in ("random_wrap", "random_unwrap") and not isinstance(ins[0], Lit):
            return ins
        if kind == "reshape" and isinstance(ins[0], Lit) and eqn.params["dimensions"] is None:
            return [Lit(jax.numpy.reshape(ins[0].value, eqn.outvars[0].aval.shape))]
        if record_of(kind).opens is Opens.OPERAND and kind not in self.rules:
            return ins
        if kind == "device_put" and kind not in self.rules:
            triples = zip(ins, eqn.invars, eqn.params["devices"], strict=True)
            return [constrained(self, atom, var.aval, to, frozenset(), source) for atom, var, to in triples]
        if kind == "optimization_barrier":  # a barrier for each operand suffices
            return [self.fenced(atom, form_of(var.aval), source) for atom, var in zip(ins, eqn.invars, strict=True)]
        if kind in ("sharding_constraint", "reshard") and kind not in self.rules:
            to = eqn.params["sharding" if kind == "sharding_constraint" else "dst_sharding"]
            unconstrained = frozenset(eqn.params.get("unconstrained_dims", ()))
            return [constrained(self, ins[0], eqn.invars[0].aval, to, unconstrained, source)]
        if kind == REDISTRIBUTE and kind not in self.rules and eqn.invars[0].aval.shape == eqn.outvars[0].aval.shape:
            return [constrained(self, ins[0], eqn.invars[0].aval, eqn.params["move"].target, frozenset(), source)]
        if kind == CUT:
            return [cut_here(self, ins[0], eqn.invars[0].aval, eqn.params["cuts"], source)]
        called = str(eqn.params.get("name", "")) if kind in ("jit", "pjit") else ""
        if isinstance(rule := self.rules.get(called), CallRule) and self.calls.is_call_of(eqn, called, rule):
            return self.equation(eqn, ins, source, called)
        if kind == "platform_index" and kind not in self.rules:  # of a function with a branch for each platform
            return [Lit(np.int32(of_platform(eqn.params["platforms"], self.options.platform or jax.default_backend())))]
        if kind == "cond" and isinstance(ins[0], Lit):
            branches = eqn.params["branches"]
            branch = branches[min(max(int(ins[0].value), 0), len(branches) - 1)]
            return self.inlined(branch, ins[1:], source, self.used(eqn))
        if kind in INLINED and kind not in self.rules:
            inner = eqn.params[INLINED[kind]]
            if kind in ("remat2", "checkpoint") and eqn.params.get("differentiated") and eqn.params.get("prevent_cse"):
                ins = [self.fenced(atom, form_of(var.aval), source) for atom, var in zip(ins, eqn.invars, strict=True)]
            return self.inlined(inner, ins, source, self.used(eqn))
        return None

    def made_of(
        self, inner: Any, ins: Sequence[Atom], source: str, parts: int, used: Sequence[bool] | None = None
    ) -> list[Atom]:
        """The results of the equations that an equation is made of."""
        around = self.opened_at, self.parts
        self.opened_at, self.parts = source, parts
        outs = self.inlined(inner, ins, source, used)
        self.opened_at, self.parts = around
        return outs

    def inlined(self, inner: Any, ins: Sequence[Atom], source: str, used: Sequence[bool] | None = None) -> list[Atom]:
        jaxpr, consts = (inner.jaxpr, inner.consts) if isinstance(inner, jex.ClosedJaxpr) else (inner, ())
        env: dict[Any, Atom] = dict(zip(jaxpr.invars, ins, strict=True))
        env.update((var, self.inside(each, var.aval)) for var, each in zip(jaxpr.constvars, consts, strict=True))
        self.walk(jaxpr, env, source, used)
        return [self.read(env, var) for var in jaxpr.outvars]

    def equation(self, eqn: Any, ins: Sequence[Atom], source: str, called: str = "") -> list[Atom]:
        """Add an equation as the operation of its rule, or as two."""
        literals = {k: atom.value for k, atom in enumerate(ins) if isinstance(atom, Lit)}
        equation = self.nests.equation(eqn, literals, called, self.options.rules)
        names: Sequence[str] = [atom for atom in ins if isinstance(atom, str)]
        is_ours = self.rules.get(equation.kind) is RULES.get(equation.kind)
        if equation.record.positions is Positions.LOOKED_UP and is_ours:
            equation, names = with_batch(self, equation, names, source)
        bits = bits_looked_up(equation) if equation.record.fusion is Fusion.LOOKUP and is_ours else None
        if bits is not None:
            form, (after,) = equation.outs[0], self.add(bits, names, source)
            params = {"new_dtype": jax.numpy.dtype(form.dtype)}
            return [self.unary(jax.lax.bitcast_convert_type_p, params, bits.outs[0], form, after, source)]
        integers = of_booleans(equation) if is_ours else None
        if integers is not None:
            return [by_integers(self, equation, integers, names[0], source)]
        joins = is_ours and equation.record.joins is not Joins.NONE
        if joins:
            is_alone = self.reads.uses[id(eqn.invars[0])] < 2
            equation, names = self.paddings.joined(equation, names, self.ranges, is_alone=is_alone)
        outs = self.add(equation, names, source)
        if joins:
            self.paddings.note(outs, equation, names)
        if equation.record.fusion is Fusion.BROADCAST and equation.literals and not np.any(equation.literals[0]):
            self.zeros.update(outs)
        return list(outs)

    def again(self, eqn: Any, ins: Sequence[Atom], source: str) -> list[Atom] | None:
        """The results of an equation of a jaxpr that is called again; None where its operation may be another."""
        seen = self.repeated.find(eqn, self.parts, ins, self.ranges)
        return None if seen is None else [*self.append(seen.equation, seen.derived, [*map(str, ins)], source)]

    def add(self, equation: Equation, ins: Sequence[str], source: str) -> list[str]:
        """Add an operation; returns the names of its results."""
        places = zip(equation.reads, ins, strict=True)
        ranges = {k: self.ranges[name] for k, name in places if name in self.ranges}
        return self.append(equation, self.nests.of(equation, self.rules.get(equation.kind), ranges), ins, source)

    def append(self, equation: Equation, derived: Derived, ins: Sequence[str], source: str) -> list[str]:
        """Add an operation with its nest; returns the names of its results."""
        kind, self.latest = equation.kind, (equation, derived)
        name = self.named(kind)
        nest = changed(derived.nest, name=name)
        names = [name, *[self.named(kind) for _ in equation.outs[1:]]] if equation.outs else []
        outs = [Array(out, form.shape, form.dtype) for out, form in zip(names, equation.outs, strict=True)]
        record = nest.record or equation.record
        more = derived.opaque, record, derived.identity
        operation = Operation.unchecked(nest, kind, tuple(ins), tuple(outs), source, *more)
        self.operations.append(operation)
        if derived.bounds is not None:
            self.ranges[name] = derived.bounds
        if equation.record.positions.go_on:
            self.counting.note(equation, ins, name)
        return names

    def fenced(self, atom: Atom, form: ArrayForm, source: str) -> Atom:
        """The value behind a barrier, so that recomputed values are computed again."""
        if isinstance(atom, Lit):
            return atom
        return self.unary(jax.lax.optimization_barrier_p, {}, form, form, atom, source)

    def materialized(self, atom: Atom, form: ArrayForm) -> str:
        """The name of a value; a constant becomes an operation without operands."""
        if isinstance(atom, str):
            return atom
        plain = form._replace(key=None)
        value = jax.random.key_data(atom.value) if form.key is not None else atom.value
        copy = Equation(jax.lax.copy_p, {}, (plain,), (plain,), {0: np.asarray(value)})
        return self.add(copy, [], "")[0]

    def unary(
        self, primitive: Any, params: Mapping[str, Any], before: ArrayForm, after: ArrayForm, name: str, source: str
    ) -> str:
        """Add an operation with one operand and one result; keys count as their integers."""
        ends = (before._replace(key=None),), (after._replace(key=None),)
        return self.add(Equation(primitive, params, *ends, {}), [name], source)[0]
