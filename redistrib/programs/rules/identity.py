"""Which equations do the same: by their primitives, parameters, forms and literals, or as text."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import numpy as np

from redistrib.cache import Key

_ADDRESS = re.compile(r"0x[0-9a-f]+")


def identity_of(
    primitive: Any, params: Mapping[str, Any], forms: tuple[Hashable, ...], literals: Iterable[tuple[int, Any]]
) -> Key | None:
    """Equal for equations that do the same; None where a parameter has no hash.

    Jaxprs among the parameters are compared by identity: their text does not say which constants they close over.

    Args:
        primitive: the primitive.
        params: its parameters.
        forms: of operands and results, and what else tells equations apart.
        literals: values of the operands that are no arrays of the program, by position; no random keys.
    """
    named = tuple([(name, type(value), _told_apart(value)) for name, value in params.items()])
    values = [(k, type(value), *_elements(np.asarray(value))) for k, value in literals]
    try:
        return Key((primitive, named, forms, *values))
    except TypeError:
        return None


def text_of(jaxpr: Any) -> str:
    """The text of a jaxpr without addresses, which differ from process to process."""
    return _ADDRESS.sub("", str(jaxpr))


def _elements(array: np.ndarray[Any, Any]) -> tuple[object, ...]:
    return array.dtype, array.shape, array.tobytes()


def _told_apart(value: Any) -> Any:
    """A value that differs where the parameter does: 0.0 and -0.0 are equal."""
    return repr(value) if isinstance(value, float | complex) else value
