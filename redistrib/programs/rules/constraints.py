"""Constraints on layouts inside a traced function: `cut`, and the sharding constraints of JAX.

Each is a copy of the value, an operation that must be cut so; partial sums are added before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol, TypeVar

import jax
from jax.extend import core as jex
from jax.interpreters import ad, batching, mlir
from jax.sharding import NamedSharding

from redistrib.backends.jax.private import BINDING_FILES
from redistrib.errors import CutError
from redistrib.errors.base import shown
from redistrib.programs.ir.graph import Operation, Pinned
from redistrib.programs.rules.equation import ArrayForm, Atom, Equation, Lit, form_of

BINDING_FILES.add(__file__)

_Tree = TypeVar("_Tree")

CUT = "redistrib_cut"  # the name of the primitive of `cut`


class Tracing(Protocol):
    """The part of a tracer that a constraint needs."""

    operations: list[Operation]

    def add(self, equation: Equation, ins: list[str], source: str) -> list[str]: ...

    def materialized(self, atom: Atom, form: ArrayForm) -> str: ...


# ----------------------------------------------------------------------------------------------- our own


def cut(x: _Tree, axes: Mapping[str, int | None]) -> _Tree:
    """Say inside a function how an array is cut there: which mesh axis cuts which of its dimensions.

    `rd.distribute`, `rd.partition` and `rd.search` read it where they trace the function; it holds before any
    tactic. The cuts spread from there, and where the array has another layout, a move brings it into this one. Axes
    that are not named cut as the schedule has it. Everywhere else it is the identity: under plain `jax.jit`, in
    `rd.pipeline`, in the branches of a `cond` and inside `rd.proxy`, where nothing moves. The gradient and the
    tangent of the array are cut so too; under `jax.vmap` dimensions are those of one example.

    Args:
        x: an array, or a tree of arrays that are all cut so.
        axes: for mesh axes, by name, the dimension that each cuts, from the end if negative; None: the axis cuts no
            dimension. Of several axes that cut one dimension the first is the most major.

    Returns:
        The same arrays.

    Raises:
        CutError: if an array has no such dimension. `rd.distribute` and `rd.search` raise it if the mesh has no such
            axis. An axis need not divide the dimension in `rd.distribute`, but for bodies of loops.

    >>> import jax.numpy as jnp
    >>> cut(jnp.arange(4.0), {"data": 0}).tolist()
    [0.0, 1.0, 2.0, 3.0]
    """
    return jax.tree.map(lambda leaf: _cut(leaf, axes), x)  # type: ignore[no-any-return]


def _cut(leaf: Any, axes: Mapping[str, int | None]) -> Any:
    if not isinstance(axes, Mapping):
        raise CutError(
            "", "", "Schedule", f"rd.cut takes a dimension for each mesh axis, {{'data': 0}}, and not {shown(axes)}"
        )
    rank = jax.numpy.ndim(leaf)
    cuts = []
    for axis, dim in axes.items():
        if not isinstance(axis, str):
            raise CutError("", "", "Schedule", f"rd.cut takes names of mesh axes, and not {shown(axis)}")
        if dim is not None and (isinstance(dim, bool) or not isinstance(dim, int) or not -rank <= dim < rank):
            choices = f"give one of {', '.join(map(str, range(rank)))}, or None" if rank else "a scalar is never cut"
            why = f"to cut dimension {shown(dim)} of an array of shape {list(jax.numpy.shape(leaf))}; {choices}"
            raise CutError("", "", "Schedule", f"axis {axis!r} is {why}")
        cuts.append((axis, dim if dim is None else dim % rank))
    return _cut_p.bind(jax.numpy.asarray(leaf), cuts=tuple(cuts))


def _batched(args: Any, dims: Any, *, cuts: tuple[tuple[str, int | None], ...]) -> Any:
    (leaf,), (batch,) = args, dims
    shifted = tuple((axis, dim if dim is None or dim < batch else dim + 1) for axis, dim in cuts)
    return _cut_p.bind(leaf, cuts=shifted), batch


_cut_p = jex.Primitive(CUT)
_cut_p.def_impl(lambda leaf, *, cuts: leaf)
_cut_p.def_abstract_eval(lambda aval, *, cuts: aval)
mlir.register_lowering(_cut_p, lambda _, leaf, *, cuts: [leaf])
ad.deflinear2(_cut_p, lambda cotangent, _, *, cuts: [_cut_p.bind(cotangent, cuts=cuts)])
batching.primitive_batchers[_cut_p] = _batched


def cut_here(tracer: Tracing, atom: Atom, aval: Any, cuts: tuple[tuple[str, int | None], ...], source: str) -> str:
    """A copy of the value, cut as `cut` says; a constant becomes a value too."""
    form = form_of(aval)
    taken = tuple((axis, 0, f"d{dim}") for axis, dim in cuts if dim is not None)
    free = frozenset(f"d{k}" for k in range(len(form.shape)))
    whole = frozenset(axis for axis, dim in cuts if dim is None)
    name = tracer.materialized(atom, form)
    return _pinned(tracer, name, form._replace(key=None), Pinned(taken, free, whole), source)


# ----------------------------------------------------------------------------------------------- of JAX


def constrained(
    tracer: Tracing, atom: Atom, aval: Any, sharding: Any, unconstrained: frozenset[int], source: str
) -> Atom:
    """A copy of the value, cut as a sharding says."""
    if isinstance(atom, Lit) or not isinstance(sharding, NamedSharding):
        return atom
    sizes, taken = sharding.mesh.shape, []
    for k, entry in enumerate(sharding.spec):
        axes = (entry,) if isinstance(entry, str) else entry if isinstance(entry, tuple) else ()
        taken += [(axis, sizes[axis], f"d{k}") for axis in axes]
    free = frozenset(f"d{k}" for k in unconstrained)
    return _pinned(tracer, atom, form_of(aval)._replace(key=None), Pinned(tuple(taken), free), source)


def _pinned(tracer: Tracing, name: str, form: ArrayForm, pinned: Pinned, source: str) -> str:
    """A copy of a value, cut as a pin says."""
    copied = tracer.add(Equation(jax.lax.copy_p, {}, (form,), (form,), {}), [name], source)[0]
    operation = tracer.operations[-1]
    tracer.operations[-1] = replace(operation, nest=replace(operation.nest, linear=()), pinned=pinned)
    return copied
