"""NumPy's functions on traced arrays, so that bodies of nests written for NumPy can be traced.

NumPy passes calls on foreign arrays to the arrays (NEP 13 and NEP 18). JAX's arrays refuse them; `NumpyArray` runs the
functions of `jax.numpy` with the same names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_MODULES = {"numpy": jnp, "numpy.linalg": jnp.linalg, "numpy.fft": jnp.fft}


def traced(function: Callable[..., Any], arrays: Sequence[jax.Array]) -> Any:
    """The result of a function of traced arrays, written for JAX or for NumPy.

    A function that fails under JAX because it makes NumPy arrays of its arguments is called a second time.

    Raises:
        jax.errors.JAXTypeError, TypeError: if it can be traced as neither.
    """
    try:
        return function(*arrays)
    except jax.errors.TracerArrayConversionError:
        return _plain(function(*map(NumpyArray, arrays)))


class NumpyArray(np.lib.mixins.NDArrayOperatorsMixin):
    """A traced array as an argument of NumPy's functions.

    Attributes:
        array: the array.
    """

    def __init__(self, array: jax.Array) -> None:
        self.array = array

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *args: Any, **options: Any) -> Any:
        function = getattr(jnp, ufunc.__name__, None)
        if method != "__call__":
            function = getattr(function, method, None)
        return NotImplemented if function is None else _called(function, args, options)

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        counterpart = getattr(_MODULES.get(function.__module__), function.__name__, None)
        return NotImplemented if counterpart is None else _called(counterpart, args, options)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise TypeError("a NumPy array is made of a traced one; use jax.numpy, or functions that return arrays")

    def __array_namespace__(self, api_version: Any = None) -> Any:
        return np

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = getattr(self.array, name)
        if not callable(value):
            return _wrapped(value)
        return lambda *args, **options: _called(value, args, options)

    def __getitem__(self, index: Any) -> NumpyArray:
        return NumpyArray(self.array[_plain(index)])

    def __len__(self) -> int:
        return len(self.array)

    def __iter__(self) -> Iterator[NumpyArray]:
        return map(NumpyArray, self.array)

    def __bool__(self) -> bool:
        return bool(self.array)

    def __int__(self) -> int:
        return int(self.array)

    def __float__(self) -> float:
        return float(self.array)


def _called(function: Callable[..., Any], args: Any, options: Any) -> Any:
    return _wrapped(function(*_plain(args), **_plain(options)))


def _plain(values: Any) -> Any:
    is_leaf = lambda value: isinstance(value, NumpyArray)  # noqa: E731
    return jax.tree.map(lambda value: value.array if isinstance(value, NumpyArray) else value, values, is_leaf=is_leaf)


def _wrapped(values: Any) -> Any:
    return jax.tree.map(lambda value: NumpyArray(value) if isinstance(value, jax.Array) else value, values)
