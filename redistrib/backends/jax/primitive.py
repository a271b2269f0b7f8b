"""The primitive of a move: an identity on global arrays, with all of JAX's rules for transformations.

Its one parameter is a `GlobalMove`, which knows how to run, what results and cotangents are, and what a batch changes.
The rules here are the same for all moves.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Protocol

import jax
from jax.interpreters import ad, batching, mlir
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from redistrib.backends.jax import private
from redistrib.backends.jax.contexts import abstract, own_context
from redistrib.backends.jax.dummies import zeros_like
from redistrib.backends.jax.names import REDISTRIBUTE
from redistrib.backends.jax.sharding import constrained
from redistrib.cache import Cache
from redistrib.errors import TracedError
from redistrib.lang.specs import spec_entries

# Whether partial sums without elements may be a result of `jit`. Where not, an assertion fails or XLA refuses them.
RETURNS_EMPTY_SUMS = (0, 9, 2) <= jax.__version_info__ < (0, 12)


class GlobalMove(Hashable, Protocol):
    """A move of a global array to another sharding, as a value: equal moves are lowered and compiled once."""

    @property
    def target(self) -> Any:
        """The sharding of the moved array."""

    @property
    def is_at_once(self) -> bool:
        """Whether `run` moves arrays outside `jit` and no others."""

    def run(self, array: jax.Array) -> jax.Array:
        """The moved array, by operations of JAX."""

    def result(self, aval: Any) -> Any:
        """The abstract value of the moved array."""

    def cotangent(self, array: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """A cotangent of the result, as a cotangent of the argument, which has this global shape."""

    def batched(self, array: jax.Array, dim: int, axes: tuple[str, ...]) -> tuple[jax.Array, GlobalMove, int]:
        """The move of a batch: the array that it takes, the move, and the dimension of the batch in its result.

        Args:
            array: the batch.
            dim: the dimension along which examples lie.
            axes: the mesh axes that cut this dimension, major to minor.
        """

    def require_derivative(self, array: jax.Array) -> None:
        """Refuse a move of an array without tangents and cotangents.

        Raises:
            TracedError: for such a move.
        """


def bind(array: jax.Array, move: GlobalMove) -> jax.Array:
    """The moved array, as one operation that JAX differentiates, batches and lowers by the move's own rules.

    On Auto axes a constraint follows, which the target fulfils: JAX finds the devices of a function without arguments
    in constraints.
    """
    moved = _bound(array, move)
    if move.is_at_once or _is_in_type(move.target) or not isinstance(moved, jax.core.Tracer):
        return moved
    with own_context():
        return constrained(moved, move.target.mesh, move.target.spec)


def _is_in_type(sharding: NamedSharding) -> bool:
    return AxisType.Explicit in sharding.mesh.axis_types


def _bound(array: jax.Array, move: GlobalMove) -> jax.Array:
    moved: jax.Array = _redistribute_p.bind(array, move=move)
    return moved


def moved_type(aval: Any, shape: tuple[int, ...], mesh: Any, spec: PartitionSpec) -> Any:
    """An abstract value, of another shape and on another mesh; axes that are not Explicit are no part of it."""
    kinds = dict(zip(mesh.axis_names, mesh.axis_types, strict=True))
    entries: list[Any] = []
    for entry in spec_entries(spec):
        explicit = tuple(name for name in names_of(entry) if kinds[name] == AxisType.Explicit)
        entries.append(explicit[0] if len(explicit) == 1 else explicit or None)
    entries += [None] * (len(shape) - len(entries))
    return aval.update(shape=shape, sharding=NamedSharding(abstract(mesh), remarked(spec, entries)))


def remarked(spec: PartitionSpec, entries: Any, *, cotangent: bool = False) -> PartitionSpec:
    """A partition spec of other entries with the same unreduced and reduced axes, exchanged if `cotangent`."""
    marks = [frozenset(getattr(spec, name, None) or ()) for name in ("unreduced", "reduced")]
    unreduced, reduced = reversed(marks) if cotangent else marks
    return PartitionSpec(
        *entries, **{name: axes for name, axes in (("unreduced", unreduced), ("reduced", reduced)) if axes}
    )


def names_of(entry: Any) -> tuple[str, ...]:
    """The axes of an entry of a partition spec."""
    if entry is None or entry is PartitionSpec.UNCONSTRAINED:
        return ()
    return (entry,) if isinstance(entry, str) else tuple(entry)


def names_in(spec: PartitionSpec) -> tuple[str, ...]:
    """The axes that cut a dimension."""
    return tuple(name for entry in spec_entries(spec) for name in names_of(entry))


# By move, so that eager differentiation and batching compile an equal move once.
_COMPILED: Cache[Any] = Cache(512)


def _implementation(array: jax.Array, *, move: GlobalMove) -> jax.Array:
    if move.is_at_once:
        return move.run(array)
    with own_context():
        if not array.size and isinstance(move.target.mesh, jax.sharding.Mesh):
            return zeros_like(array, move.target, move.result(array.aval).shape)
        moved: jax.Array = _COMPILED.get(move, lambda: _compiled(move))(array)
    return moved


def _result(aval: Any, *, move: GlobalMove) -> Any:
    result = move.result(aval)
    if 0 in result.shape and not RETURNS_EMPTY_SUMS and not move.is_at_once and move.target.spec.unreduced:
        raise TracedError("empty sums", shape=result.shape, spec=str(move.target.spec), version=jax.__version__)
    return result


def _compiled(move: GlobalMove) -> Any:
    if _is_in_type(move.target) or not isinstance(move.target.mesh, jax.sharding.Mesh):
        return jax.jit(move.run)
    return jax.jit(move.run, out_shardings=move.target)


def _jvp(primals: Any, tangents: Any, *, move: GlobalMove) -> Any:
    (array,), (tangent,) = primals, tangents
    moved = _bound(array, move)
    if type(tangent) is ad.Zero:
        return moved, ad.Zero.from_primal_value(moved)  # type: ignore[attr-defined]  # JAX does not type it
    move.require_derivative(array)
    return moved, _bound(tangent, move)


def _transpose(cotangent: Any, array: Any, *, move: GlobalMove) -> list[Any]:
    return [move.cotangent(cotangent, array.aval.shape)]


def _batcher(axis: Any, arrays: Any, dims: Any, *, move: GlobalMove) -> tuple[jax.Array, int | None]:
    (array,), (dim,) = arrays, dims
    if dim is None:
        return _bound(array, move), None
    array, batched, where = move.batched(array, dim, _axes_of_batch(axis, array, dim))
    return _bound(array, batched), where


def _axes_of_batch(axis: Any, array: jax.Array, dim: int) -> tuple[str, ...]:
    """The mesh axes that cut a batch: those that `jax.vmap` was told, or those of its type on Explicit axes."""
    if axis.spmd_name is not None:
        return tuple(axis.spmd_name)
    sharding = jax.typeof(array).sharding
    return () if sharding.mesh.empty else names_of(spec_entries(sharding.spec)[dim])


_redistribute_p = private.new_primitive(REDISTRIBUTE)
_redistribute_p.def_impl(_implementation)
_redistribute_p.def_abstract_eval(_result)
ad.deflinear2(_redistribute_p, _transpose)
ad.primitive_jvps[_redistribute_p] = _jvp
batching.fancy_primitive_batchers[_redistribute_p] = _batcher
mlir.register_lowering(_redistribute_p, mlir.lower_fun(lambda array, *, move: move.run(array), multiple_results=False))
