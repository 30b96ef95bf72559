"""What decides which messages a consumer gets: the interface, and the filters of the operator.

Uploaded classes are filters too, see `workers`. No filter that fails lets a message pass: its
consumer is told, and its offset stays where it was.
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
"""An installed package names its filter functions here, for `{"named": NAME}`."""

REMARK_LENGTH_MAX: Final = 1_000
"""Characters of what a filter said when it failed that go into a remark."""


class FilterError(Exception):
    """A filter failed; the text is for the consumer's log."""

    def __str__(self) -> str:
        return super().__str__()[:REMARK_LENGTH_MAX]


class FilterCompileError(FilterError):
    """The source of a class is no filter; the text is the compiler's."""


class Filter(Protocol):
    """Decides about the messages of one pull. Bodies are inflated."""

    @property
    def is_disabled(self) -> bool:
        """Whether it has failed too often to be asked again."""

    async def match(self, messages: Sequence[MessageExt], group: str) -> Sequence[bool]:
        """Whether the group gets each of them. Raises: FilterError."""

    async def aclose(self) -> None:
        """End what it holds. What is under way fails."""


NamedFunction = Callable[[MessageExt], object]
"""Whether a consumer gets a message; an exception fails the pull."""


class _OperatorsFilter:
    """What the operator's filters have in common: they hold nothing, and are trusted."""

    is_disabled = False

    async def aclose(self) -> None:
        """Nothing is held."""


class ExpressionFilter(_OperatorsFilter):
    """A class name that means an SQL92 expression.

    Args:
      expression: its text.
    Raises: FilterSyntaxError: it is none.
    """

    def __init__(self, expression: str) -> None:
        self._expression = compile_expression(expression)

    async def match(self, messages: Sequence[MessageExt], group: str) -> Sequence[bool]:
        """Unknown counts as no, as in the broker."""
        return [self._expression.matches(message.properties_bytes) for message in messages]


class NamedFilter(_OperatorsFilter):
    """A class name that means an installed function.

    Args:
      name: the function's, for errors.
      function: called with each message; it runs in the filter server's own process and loop.
    """

    def __init__(self, name: str, function: NamedFunction) -> None:
        self._name = name
        self._function = function

    async def match(self, messages: Sequence[MessageExt], group: str) -> Sequence[bool]:
        """What the function says of each message."""
        try:
            return [bool(self._function(message)) for message in messages]
        except Exception as error:
            raise FilterError(f"the filter {self._name}: {error!r}") from error


def installed_functions() -> dict[str, Callable[[], NamedFunction]]:
    """The filter functions of installed packages by name, each still to be imported."""
    return {point.name: point.load for point in entry_points(group=ENTRY_POINT_GROUP)}


def read_filter_classes(
    text: str, installed: Mapping[str, Callable[[], NamedFunction]], *, path: str = ""
) -> dict[str, Filter]:
    """The filters of a `filterClassesFile` by class name.

    Args:
      text: `{CLASS: {"expression": TEXT}, CLASS: {"named": NAME}}`.
      installed: the functions that there are.
      path: for messages only.
    Raises: ConfigError: it says nothing of the kind, or names what is not there.
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
        raise ConfigError(f"the filter {name!r} is no function", path=path)
    return function
