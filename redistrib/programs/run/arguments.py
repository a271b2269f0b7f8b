"""Arguments of a distributed function: names of their leaves, and whether they are those that it was traced for."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType

from redistrib.backends.jax.host_values import from_host, is_of_host
from redistrib.backends.jax.sharding import constrained
from redistrib.backends.jax.tree_paths import path_text
from redistrib.errors import ProgramError
from redistrib.errors.base import MASKED, cut, shown
from redistrib.report import counted


def parameter_names(function: Callable[..., Any], args: Sequence[Any]) -> list[str]:
    """A name for each argument: that of the parameter, or `arg0`, `arg1`, ... where there is none."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    plain = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return [plain[k] if k < len(plain) else f"arg{k}" for k in range(len(args))]


def leaf_names(function: Callable[..., Any], args: Sequence[Any]) -> list[str]:
    """A name for each leaf of the arguments: that of the parameter, then the path, `params/layers/0/up`."""
    first = parameter_names(function, args)
    paths = (path for path, _ in jax.tree_util.tree_flatten_with_path(tuple(args))[0])
    return ["/".join(filter(None, (first[path[0].idx], path_text(path[1:])))) for path in paths]


def require_values(args: Sequence[Any], names: Sequence[str]) -> None:
    """Refuse arguments for which JAX has no array.

    Raises:
        ProgramError: names the first.
    """
    for leaf, name in zip(jax.tree.leaves(args), names, strict=True):
        try:
            jax.eval_shape(lambda value: value, leaf)
        except (TypeError, ValueError, OverflowError):
            problem = _masked(leaf) or (
                f"it is {shown(leaf)}, which is no array; give one, or bind the value with functools.partial"
            )
            raise ProgramError("", name, "Arguments", problem) from None


def forms_of(leaves: Sequence[Any]) -> list[tuple[tuple[int, ...], Any]]:
    """Shape and element type of each."""
    return [(tuple(np.shape(leaf)), jax.dtypes.result_type(leaf)) for leaf in leaves]


def leaves_like(
    name: str, args: tuple[Any, ...], tree: Any, forms: Sequence[Any], names: Sequence[str], *, shapes: bool = False
) -> list[Any]:
    """The leaves of arguments of a function, which must be as those that it was traced for.

    Args:
        name: of the function.
        args: its arguments.
        tree: the structure that they must have.
        forms: shape and element type that each leaf must have.
        names: of the leaves.
        shapes: whether a `jax.ShapeDtypeStruct` stands for an array.

    Raises:
        ProgramError: if they are not; it names the argument.
    """
    leaves, structure = jax.tree_util.tree_flatten(args)
    if structure != tree:
        raise ProgramError(name, *_other_tree(structure, tree, names))
    for leaf, (shape, dtype), leaf_name in zip(leaves, forms, names, strict=False):
        if isinstance(leaf, jax.Array) and not isinstance(leaf, jax.core.Tracer) and leaf.is_deleted():
            why = "it has been donated or deleted; give an array that is alive"
            raise ProgramError(name, leaf_name, "Arguments", why)
        if isinstance(leaf, jax.Array) and leaf.shape == shape and leaf.dtype == dtype:
            continue
        problem = "" if shapes else _no_elements(leaf)
        problem = problem or _problem(leaf, shape, dtype)
        if problem:
            raise ProgramError(name, leaf_name, "Arguments", problem)
    return leaves


def lies_at(leaf: Any, sharding: Any) -> bool:
    """Whether a leaf is an array with a sharding; one that is traced may have any."""
    return isinstance(leaf, jax.Array) and not isinstance(leaf, jax.core.Tracer) and leaf.sharding == sharding


def put(leaves: Sequence[Any], shardings: Sequence[Any]) -> list[Any]:
    """Leaves under shardings; those that are traced are constrained, which may stand in a batch.

    Values that each of several processes has must be equal in all of them.
    """
    moved = [*leaves]
    traced = [k for k, leaf in enumerate(leaves) if _is_on_auto_axes(leaf)]
    for k in traced:
        moved[k] = constrained(leaves[k], shardings[k].mesh, shardings[k].spec)
    on_host = [k for k, to in enumerate(shardings) if not to.is_fully_addressable and is_of_host(leaves[k])]
    for k in on_host:
        moved[k] = from_host(leaves[k], shardings[k])
    others = [k for k in range(len(leaves)) if k not in traced and k not in on_host]
    arrays = jax.device_put([leaves[k] for k in others], [shardings[k] for k in others])
    for k, array in zip(others, arrays, strict=True):
        moved[k] = array
    return moved


def _is_on_auto_axes(leaf: Any) -> bool:
    """Whether a leaf is traced, and its type does not say how it lies."""
    if not isinstance(leaf, jax.core.Tracer):
        return False
    mesh = jax.typeof(leaf).sharding.mesh
    return mesh.empty or AxisType.Explicit not in mesh.axis_types


def _no_elements(leaf: Any) -> str:
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return f"it is {shown(leaf)}, which has no elements; give an array"
    return ""


def _masked(leaf: Any) -> str:
    return f"it is a masked array, and JAX has none; {MASKED}" if isinstance(leaf, np.ma.MaskedArray) else ""


def _problem(leaf: Any, shape: tuple[int, ...], dtype: Any) -> str:
    """The fault of a leaf; empty where there is none."""
    expected = f"{dtype}{list(shape)}"
    if masked := _masked(leaf):
        return masked
    try:
        ((other, kind),) = forms_of([leaf])
    except (TypeError, ValueError):
        return f"it is {shown(leaf)}, which is no array; give one of {expected}"
    if (other, kind) == (shape, dtype):
        return ""
    return f"it is {kind}{list(other)}, and the function was distributed for {expected}; distribute it for this one"


def _other_tree(structure: Any, expected: Any, names: Sequence[str]) -> tuple[str, str, str]:
    """The argument, the rule and the message for arguments of another structure."""
    children, parts = structure.children(), expected.children()
    if len(children) != len(parts):
        return "", "Arguments", f"it takes {counted(len(parts), 'argument', 'arguments')}, got {len(children)}"
    number = next(k for k, pair in enumerate(zip(children, parts, strict=True)) if pair[0] != pair[1])
    first = sum(part.num_leaves for part in parts[:number])
    argument = names[first].partition("/")[0] if parts[number].num_leaves else str(number)
    why = (
        f"its structure is {cut(str(children[number]), 300)}, and the function was distributed for "
        f"{cut(str(parts[number]), 300)}; distribute it for this one"
    )
    return argument, "Arguments", why
