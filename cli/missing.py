"""Names on a command line that the cluster does not have: said in plain words, with the nearest.

The parameters that name a topic or a group note it here. If a command fails because something is
not there, or finds nothing, the names are compared with those of the cluster.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from .names import Cluster

TIMEOUT_S: Final = 2.0
"""How long the look-up of names may take: the command has failed already."""

_FURTHER: Final = re.compile(r"\.? ?See https?://\S+ for further details\.?")
"""What RocketMQ's servers add to some answers."""


class _Noted(NamedTuple):
    """What a command line names."""

    url: str = ""
    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


_noted: ContextVar[_Noted] = ContextVar("names_of_the_command_line", default=_Noted())  # noqa: B039


def forget() -> None:
    """Begin a command line."""
    _noted.set(_Noted())


def note_url(url: str) -> None:
    """Record the cluster."""
    _noted.set(_noted.get()._replace(url=url))


def note_topic(name: str) -> str:
    """Record a topic; the callback of its parameter."""
    now = _noted.get()
    _noted.set(now._replace(topics=(*now.topics, name) if name else now.topics))
    return name


def note_group(name: str) -> str:
    """Record a group; the callback of its parameter."""
    now = _noted.get()
    _noted.set(now._replace(groups=(*now.groups, name) if name else now.groups))
    return name


def is_about_names(error: Exception) -> bool:
    """Whether an error of the client may come from a name that is not there."""
    from ..client import NotFoundError, RouteNotFoundError

    return isinstance(error, (NotFoundError, RouteNotFoundError)) or "NOT_EXIST" in str(error)


def absent() -> str:
    """Which noted names the cluster does not have; "" also if it cannot be asked."""
    noted = _noted.get()
    lines = []
    for kind, names, ask in (
        ("topic", noted.topics, _topics),
        ("group", noted.groups, _groups),
    ):
        known = _known(noted.url, ask) if names else None
        if known is not None:
            lines += [_line(kind, name, known) for name in names if name not in known.all]
    return "; ".join(lines)


def plain(error: Exception) -> str:
    """An error's text for a person; a topic that has no route is one that is not there."""
    from ..client import RouteNotFoundError

    topics = _noted.get().topics
    if isinstance(error, RouteNotFoundError) and len(topics) == 1:
        return f"there is no topic {topics[0]!r}, or no broker serves it now"
    return _FURTHER.sub("", str(error))


class _Known(NamedTuple):
    all: frozenset[str]
    shown: list[str]


def _known(url: str, ask: Callable[[Cluster], _Known]) -> _Known | None:
    from ..remoting.tls_options import TlsSettings
    from .names import Cluster, NamesError
    from .tls_flags import tls_flags

    try:
        return ask(Cluster.of(url, os.environ, TIMEOUT_S, TlsSettings(**tls_flags())))
    except NamesError:
        return None


def _topics(cluster: Cluster) -> _Known:
    return _Known(frozenset(cluster.topics(is_all=True)), cluster.topics())


def _groups(cluster: Cluster) -> _Known:
    return _Known(frozenset(cluster.groups(is_all=True)), cluster.groups())


def _line(kind: str, name: str, known: _Known) -> str:
    from .names import nearest

    near = nearest(name, known.shown)
    if near is not None:
        return f"there is no {kind} {name!r}; did you mean {near!r}?"
    return f"there is no {kind} {name!r}; `trocket {kind} list` lists them"
