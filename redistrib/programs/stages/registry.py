"""Names for what users write themselves: one table for orders of tasks, one for families of layouts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from redistrib.errors import ChoiceError
from redistrib.errors.base import shown

F = TypeVar("F", bound=Callable[..., Any])


class Registry(Mapping[str, F], Generic[F]):
    """Functions by name. Wherever one of them is an argument, its name is accepted as well.

    Attributes:
        noun: of an entry, for errors.
        parameters: of an entry, for errors.
    """

    def __init__(self, noun: str, parameters: str) -> None:
        self.noun, self.parameters = noun, parameters
        self._entries: dict[str, F] = {}

    def register(self, name: str) -> Callable[[F], F]:
        """A decorator that gives a function a name; the function stays as it is.

        A function that is defined again, in a notebook for example, replaces itself.

        Raises:
            ChoiceError: if the name is no text, belongs to another function, or names no function.
        """
        if not isinstance(name, str) or not name.isprintable() or not name.strip():
            raise ChoiceError("registered name", noun=self.noun, value=name)

        def add(function: F) -> F:
            if not callable(function):
                raise ChoiceError("registered value", noun=self.noun, value=function, parameters=self.parameters)
            known = self._entries.get(name)
            if known not in (None, function) and not _is_redefined(known, function):
                raise ChoiceError("registered twice", noun=self.noun, value=name, origin=_origin(known))
            self._entries[name] = function
            return function

        return add

    def of(self, entry: str | F, also: Iterable[str] = ()) -> F:
        """The function of a name; a function is returned as it is.

        Args:
            entry: a name or a function.
            also: further names that the caller accepts, for the error.

        Raises:
            ChoiceError: if nothing has the name, or it is neither a name nor a function.
        """
        if not isinstance(entry, str) and callable(entry):
            return entry
        if isinstance(entry, str) and entry in self._entries:
            return self._entries[entry]
        raise ChoiceError(
            "not registered", noun=self.noun, value=entry, known=(*self, *also), parameters=self.parameters
        )

    def name_of(self, function: F) -> str:
        """The name of a function here, or else its own."""
        named = (name for name, known in self._entries.items() if known is function)
        return next(named, getattr(function, "__name__", shown(function)))

    def __getitem__(self, name: str) -> F:
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def _origin(function: Callable[..., Any] | None) -> str:
    return f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', shown(function))}"


def _is_redefined(known: Callable[..., Any] | None, function: Callable[..., Any]) -> bool:
    """Whether one definition ran twice; functions without a name are never one definition."""
    return _origin(known) == _origin(function) and not _origin(function).endswith("<lambda>")
