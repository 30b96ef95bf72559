"""Errors for what programs try that the client does not have; they say what to write instead.

Three things hook in without a cost for correct programs: a decorator of constructors, attributes of
classes with the names that other clients have, and the protocols of the wrong kind of `with` and
`for`. Type checkers and `dir` see none of them.

Java counterpart: none.
"""

from __future__ import annotations

import functools
import inspect
from abc import ABCMeta
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NoReturn, ParamSpec, TypeVar

from ..errors import ConfigurationError
from .other_names import option_elsewhere
from .shown import shown

P = ParamSpec("P")
KindT = TypeVar("KindT", bound=type)

URL: Final = "'rocketmq://127.0.0.1:9876'"
EXAMPLES: Final[Mapping[str, str]] = {
    "group": "group='billing'",
    "subscriptions": "subscriptions={'orders': '*'}",
    "check": "check=check",
}
"""What to write for the keyword arguments that constructors need."""

INTERNALS: Final[Mapping[str, tuple[str, ...]]] = {
    "Client": (
        "add_member",
        "check_loop",
        "connection",
        "forget_route",
        "is_over",
        "known_publish_info",
        "master_address",
        "master_of",
        "members",
        "next_opaque",
        "next_unique_id",
        "now_s",
        "on_connected",
        "open_connection",
        "owner",
        "publish_info",
        "reading_address",
        "remove_member",
        "replies",
        "start_soon",
        "start_wait_s",
        "wait_for_broker_s",
        "window",
    ),
    "DeliveryState": ("look_at", "settle"),
    "Producer": ("accumulator", "sender"),
    "PushConsumer": ("ready_messages", "handling", "next_message", "receive_nowait"),
    "PushedMessage": ("again", "inner"),
}
"""Public attributes that parts of the package use of one another, by the class that has them.

`dir`, completion and the API's pages leave them out; subclasses inherit them."""


class Shown(ABCMeta):
    """The metaclass of classes whose `dir` has only what programs use."""

    def __dir__(cls) -> list[str]:
        return [name for name in super().__dir__() if not is_hidden(cls, name)]


class Presentable(metaclass=Shown):
    """Base of objects whose `dir`, and so completion in a shell, has only what programs use."""

    __slots__ = ()

    def __dir__(self) -> Iterable[str]:
        return [name for name in super().__dir__() if not is_hidden(type(self), name)]


def is_hidden(kind: type, name: str) -> bool:
    """Whether an attribute of a class is not for programs."""
    for base in kind.__mro__:
        attributes = vars(base)
        if name in attributes:
            if isinstance(attributes[name], _Elsewhere):
                return True
            break
    return is_internal(kind, name)


def is_internal(kind: type, name: str) -> bool:
    """Whether a class has an attribute for other parts of the package."""
    return any(
        name in INTERNALS.get(base.__name__, ()) and base.__module__.startswith("trocket.")
        for base in kind.__mro__
    )


class _Elsewhere:
    """An attribute that another client has: reading it is an error that says what to write."""

    __slots__ = ("_hint", "_name")

    def __init__(self, name: str, hint: str) -> None:
        self._name = name
        self._hint = hint

    def __get__(self, instance: object, owner: type) -> NoReturn:
        text = f"{owner.__name__} has no {self._name}: {self._hint}"
        raise AttributeError(text, name=self._name, obj=owner if instance is None else instance)


def knows_elsewhere(names: Mapping[str, str]) -> Callable[[KindT], KindT]:
    """Decorate a class with names that other clients have, each with what to write instead.

    What the class has itself keeps its meaning.
    """

    def decorate(kind: KindT) -> KindT:
        for name, hint in names.items():
            if not hasattr(kind, name):
                setattr(kind, name, _Elsewhere(name, hint))
        return kind

    return decorate


def explained(init: Callable[P, None]) -> Callable[P, None]:
    """Decorate a constructor: arguments that do not fit it are errors that say what to write."""
    parameters = list(inspect.signature(init).parameters.values())[1:]
    first = parameters[0].name
    keywords = [each for each in parameters if each.kind is each.KEYWORD_ONLY]
    required = [each.name for each in keywords if each.default is each.empty]
    named = [each.name for each in keywords if each.name in EXAMPLES]

    @functools.wraps(init)
    def checked(*args: P.args, **kwargs: P.kwargs) -> None:
        if len(args) != 2 or not kwargs.keys() >= set(required):
            more = named[: len(args) - 2] if len(args) > 2 else []
            examples = [EXAMPLES[name] for name in named if name in (*required, *more)]
            line = f"{type(args[0]).__name__}({', '.join([URL, *examples])})"
            _check_arguments(line, first, required, args[1:], kwargs)
        init(*args, **kwargs)

    return checked


def _check_arguments(
    line: str, first: str, required: list[str], given: tuple[object, ...], options: Iterable[str]
) -> None:
    """Check how a constructor is called; `line` is what to write, `first` its first parameter."""
    kind = line.partition("(")[0]
    for name in options:
        hint = option_elsewhere(name)
        if hint is not None and name != first and name not in required:
            raise ConfigurationError(f"unknown option {name}: {hint}. Write {line}")
    if not given and first not in options:
        raise ConfigurationError(f"{kind} needs the address of the name servers: write {line}")
    if len(given) > 1:
        more = ", ".join(map(shown, given[1:]))
        raise ConfigurationError(f"{kind} takes {more} by name only: write {line}")
    missing = [name for name in required if name not in options]
    if missing:
        raise ConfigurationError(f"{kind} needs {' and '.join(missing)}: write {line}")


def check_client(client: object, *, kind: str, door: str, client_type: type) -> None:
    """Check the first argument of a producer, a consumer or Admin.

    Args:
      client: what the program gave.
      kind: name of the class that it gave it to.
      door: the package that this class is of, such as "trocket.blocking".
      client_type: the class of clients that it can share.

    Raises: ConfigurationError: it is neither a URL nor such a client.
    """
    if isinstance(client, str | client_type):
        return
    line = f"{kind}({URL}, ...)"
    if client is None:
        hint = f"write {line}; if it comes from an environment variable, that is not set"
    elif isinstance(client, tuple) and len(client) == 2 and isinstance(client[1], int):
        hint = f"write {kind}('{client[0]}:{client[1]}', ...)"
    elif isinstance(client, list | tuple | set | frozenset):
        joined = ";".join(str(each) for each in client) or "127.0.0.1:9876"
        hint = f"several name servers are one string: write {kind}({joined!r}, ...)"
    elif type(client).__name__ == "Client":
        hint = f"it is of the other door: share a {door}.Client, or write {line}"
    elif type(client).__module__.startswith("trocket.testing"):
        hint = f"write {kind}(broker.url, ...)"
    elif isinstance(client, bytes):
        hint = f"write {kind}({client.decode(errors='replace')!r}, ...)"
    else:
        hint = f"pass a URL or a {door}.Client: write {line}"
    name = f"{type(client).__module__}.{type(client).__qualname__}"
    given = "None" if client is None else f"a {name.removeprefix('builtins.')}"
    raise ConfigurationError(f"client is {given}: {hint}")


def wrong_with(owner: object, right: str) -> TypeError:
    """The error for an object in the wrong kind of `with` block; `right` is the right kind."""
    kind = type(owner).__name__
    other = "trocket.blocking" if right.startswith("async") else "trocket"
    return TypeError(
        f"write `{right} {kind}(...) as name:`; {other}.{kind} is the one for the other kind of"
        " `with`"
    )


def wrong_for(owner: object, right: str) -> TypeError:
    """The error for an object in the wrong kind of `for` loop; `right` is the right kind."""
    kind = type(owner).__name__
    other = "trocket.blocking" if right.startswith("async") else "trocket"
    return TypeError(
        f"write `{right} message in ...:`; {other}.{kind} is the one for the other kind of loop"
    )
