"""Filters: the interface, and the filters that an operator can configure.

`workers` has the filters for uploaded classes. When a filter fails, no message passes: the pull
fails with an error for the consumer, whose offset does not move.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from typing import Final, Protocol

from ..common.config import ConfigError
from ..common.sql92.expression import FilterSyntaxError, compile_expression
from ..remoting.message import MessageExt

ENTRY_POINT_GROUP: Final = "trocket.filters"
"""Entry point group in which packages name their filter functions, for `{"named": NAME}`."""

REMARK_LENGTH_MAX: Final = 1_000
"""Largest number of characters of a filter's error in the remark of an answer."""


class FilterError(Exception):
    """A filter failed; its text is sent to the consumer."""

    def __str__(self) -> str:
        return super().__str__()[:REMARK_LENGTH_MAX]


class FilterCompileError(FilterError):
    """The source of a class is not a filter; the text is that of the compiler."""


class Filter(Protocol):
    """Selects messages of a pull."""

    @property
    def is_disabled(self) -> bool:
        """Whether it has failed so often that it is not called any more."""

    async def match(self, messages: Sequence[MessageExt], group: str) -> Sequence[bool]:
        """Decide for each message, with decompressed body, whether the group gets it.

        Raises: FilterError: the filter failed.
        """

    async def aclose(self) -> None:
        """Release its resources; calls in progress fail."""


NamedFunction = Callable[[MessageExt], object]
"""Returns whether a consumer gets a message; an exception fails the pull."""


class _ConfiguredFilter:
    """Base of the filters that an operator configures: they are trusted and hold no resources."""

    is_disabled = False

    async def aclose(self) -> None:
        """Do nothing: there are no resources."""


class ExpressionFilter(_ConfiguredFilter):
    """A filter that evaluates an SQL92 expression.

    Args:
      expression: text of the expression.

    Raises: FilterSyntaxError: the expression is invalid.
    """

    def __init__(self, expression: str) -> None:
        self._expression = compile_expression(expression)

    async def match(self, messages: Sequence[MessageExt], group: str) -> Sequence[bool]:
        """Evaluate the expression; the result UNKNOWN means no match, as in the broker."""
        return [self._expression.matches(message.properties_bytes) for message in messages]


class NamedFilter(_ConfiguredFilter):
    """A filter that calls a function of an installed package.

    Args:
      name: name of the function, for error messages.
      function: called with each message, in the process and event loop of the filter server.
    """

    def __init__(self, name: str, function: NamedFunction) -> None:
        self._name = name
        self._function = function

    async def match(self, messages: Sequence[MessageExt], group: str) -> Sequence[bool]:
        """Call the function with each message."""
        try:
            return [bool(self._function(message)) for message in messages]
        except Exception as error:
            raise FilterError(f"the filter {self._name}: {error!r}") from error


def installed_functions() -> dict[str, Callable[[], NamedFunction]]:
    """The filter functions of installed packages by name; call a value to import its function."""
    return {point.name: point.load for point in entry_points(group=ENTRY_POINT_GROUP)}


def read_filter_classes(
    text: str, installed: Mapping[str, Callable[[], NamedFunction]], *, path: str = ""
) -> dict[str, Filter]:
    """Read the filters of a `filterClassesFile`.

    Args:
      text: `{CLASS: {"expression": TEXT}, CLASS: {"named": NAME}}`.
      installed: the installed functions; see `installed_functions`.
      path: path of the file, for error messages.

    Returns: the filters by class name.
    Raises: ConfigError: the file has another form, an expression is invalid, or a function is not
      installed.
    """
    try:
        table = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"is not JSON: {error}", path=path) from error
    if not isinstance(table, dict):
        raise ConfigError("is not an object of class names", path=path)
    filters: dict[str, Filter] = {}
    for class_name, wanted in table.items():
        match wanted:
            case {"expression": str(expression), **rest} if not rest:
                try:
                    filters[class_name] = ExpressionFilter(expression)
                except FilterSyntaxError as error:
                    raise ConfigError(f"{class_name}: {error}", path=path) from error
            case {"named": str(name), **rest} if not rest:
                if name not in installed:
                    known = ", ".join(sorted(installed)) or "none"
                    raise ConfigError(
                        f"{class_name}: no installed package has a filter {name!r} "
                        f"(entry points {ENTRY_POINT_GROUP}: {known})",
                        path=path,
                    )
                filters[class_name] = NamedFilter(name, _load(name, installed[name], path))
            case _:
                raise ConfigError(
                    f'{class_name}: expected {{"expression": TEXT}} or {{"named": NAME}}',
                    path=path,
                )
    return filters


def _load(name: str, load: Callable[[], NamedFunction], path: str) -> NamedFunction:
    try:
        function = load()
    except Exception as error:
        raise ConfigError(
            f"the filter {name!r} cannot be imported: {error!r}", path=path
        ) from error
    if not callable(function):
        raise ConfigError(f"the filter {name!r} is not a function", path=path)
    return function
