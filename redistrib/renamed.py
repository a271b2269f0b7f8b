"""Arguments and attributes under the names that they had in the last release, with a hint."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast
from warnings import warn

_Function = TypeVar("_Function", bound=Callable[..., Any])


def renamed(earlier: str, name: str) -> Callable[[_Function], _Function]:
    """A decorator: the function also takes the keyword argument `name` under its earlier name, and warns."""

    def decorate(function: _Function) -> _Function:
        @wraps(function)
        def called(*args: Any, **options: Any) -> Any:
            if earlier in options:
                if name in options:
                    raise TypeError(f"{function.__name__}() got {name}= and {earlier}=, its earlier name")
                told = f"{function.__name__}() takes {earlier}= as {name}= now; write {name}="
                warn(told, DeprecationWarning, stacklevel=2)
                options[name] = options.pop(earlier)
            return function(*args, **options)

        return cast(_Function, called)

    return decorate


def renamed_attribute(earlier: str, name: str) -> Any:
    """The attribute `name` under its earlier name, which warns."""

    def read(value: Any) -> Any:
        told = f"{type(value).__name__}.{earlier} is named {name} now; write {name}"
        warn(told, DeprecationWarning, stacklevel=2)
        return getattr(value, name)

    return property(read, doc=f"`{name}`, under its earlier name.")
