"""The data types of the gRPC catalogue: calls, streams of commands, and scripts.

A script is played on both servers with the same topics, groups and client ids, which no other
script uses. A value that depends on an earlier answer of the same side (a receipt handle, a
transaction's id) is a function of `Played`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from ..wire_differ.normalise import Normaliser, Side

MAIN: Final = "main"
"""The client of a call that names none."""

TIMEOUT_S: Final = 90.0
"""How long a call waits: far longer than the longest receive, for busy machines."""

NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})

Metadata: TypeAlias = Mapping[str, str | None]
"""Headers that replace the usual ones, or, if None, take them away."""


@dataclass
class Played:
    """The answers of one side so far in a script.

    Attributes:
      side: whose answers these are; `broker_address` is that of its gRPC port.
      answers: as messages, by the call's name.
    """

    side: Side
    answers: dict[str, list[Any]] = field(default_factory=dict)

    def value(self, call: str, path: str, default: Any = "") -> Any:
        """A field of an earlier answer, such as `0.entries.1.message_id`; the default if there is
        none, so that the call fails."""
        found: Any = self.answers.get(call, [])
        for name in path.split("."):
            try:
                found = found[int(name)] if name.isdigit() else getattr(found, name)
            except (IndexError, AttributeError):
                return default
        return found


def given(call: str, path: str, default: Any = "") -> Callable[[Played], Any]:
    """A field's value: that of an earlier answer. See `Played.value`."""
    return lambda played: played.value(call, path, default)


def endpoints(played: Played) -> dict[str, Any]:
    """A field's value: the Endpoints of the server that is called."""
    host, _, port = played.side.broker_address.rpartition(":")
    return {"scheme": 1, "addresses": [{"host": host, "port": int(port)}]}


def resolved(value: Any, played: Played) -> Any:
    """A value in which functions are replaced by what they give."""
    if callable(value):
        return value(played)
    if isinstance(value, Mapping):
        return {name: resolved(item, played) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [resolved(item, played) for item in value]
    return value


@dataclass(frozen=True)
class Call:
    """One call of a unary method, or of one with several answers.

    Attributes:
      name: for reports; unique in its script.
      method: such as SendMessage; an unknown one is called with an empty message.
      fields: of the request, by name; functions are called when the request is sent.
      body: the encoded request instead.
      metadata: see `Metadata`.
      client: the name of the client, which has a connection.
      service: the full name of the service.
      timeout_s: sent as `grpc-timeout`; None: none is sent.
      is_gzipped: the request is compressed.
      changes: normalisers, in addition to those of every answer.
      until: the call is repeated until this returns true for its answers, for at most 15 s.
      is_compared: whether it is; otherwise it only prepares others.
    """

    name: str
    method: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    _: KW_ONLY
    body: bytes | None = None
    metadata: Metadata = field(default_factory=dict)
    client: str = MAIN
    service: str = ""
    timeout_s: float | None = TIMEOUT_S
    is_gzipped: bool = False
    changes: tuple[Normaliser, ...] = ()
    until: Callable[[Sequence[Any]], bool] | None = None
    is_compared: bool = True


@dataclass(frozen=True)
class Together:
    """Calls that are begun at once, and do not depend on one another."""

    calls: tuple[Call, ...]


@dataclass(frozen=True)
class Talk:
    """Commands on the telemetry stream of a client, which stays open.

    Attributes:
      commands: the fields of each TelemetryCommand; bytes: an encoded one.
      answers: how many to wait for; fewer if the stream ends.
      is_new: on a new stream, whether or not the client has one.
      closes: the client ends its side after the commands, and the server's end is awaited.
    """

    name: str
    commands: tuple[Mapping[str, Any] | bytes, ...]
    _: KW_ONLY
    answers: int = 1
    is_new: bool = False
    closes: bool = False
    client: str = MAIN
    metadata: Metadata = field(default_factory=dict)
    changes: tuple[Normaliser, ...] = ()
    is_compared: bool = True


@dataclass(frozen=True)
class Raw:
    """A request of HTTP/2, written without a library of gRPC.

    Attributes:
      headers: that replace the usual ones of a QueryRoute, or, if None, take them away.
      body: of the request, after it the client ends its side.
    """

    name: str
    headers: Mapping[str, str | None]
    body: bytes = b""


@dataclass(frozen=True)
class Topic:
    """A topic that is created by remoting.

    Attributes:
      kind: the attribute message.type; "": none.
    """

    name: str
    kind: str = ""
    _: KW_ONLY
    reads: int = 1
    writes: int = 1
    perm: int = 6


@dataclass(frozen=True)
class Group:
    """A group that is created by remoting; `members` as in the JSON body of the request."""

    name: str
    members: Mapping[str, Any] = field(default_factory=dict)


Compared: TypeAlias = Call | Talk | Raw
Step: TypeAlias = Call | Together | Talk | Raw | Topic | Group


@dataclass(frozen=True)
class Script:
    """Steps that are played one after the other."""

    name: str
    steps: tuple[Step, ...]

    def compared(self) -> list[tuple[str, Compared]]:
        """Each step that is compared, with its name in a report."""
        found: list[Compared] = []
        for step in self.steps:
            if isinstance(step, Together):
                found += step.calls
            elif isinstance(step, (Call, Talk, Raw)):
                found.append(step)
        return [
            (self.title(step), step) for step in found if isinstance(step, Raw) or step.is_compared
        ]

    def title(self, step: Compared) -> str:
        """The name of a step in a report."""
        if isinstance(step, Call):
            method = step.method
        else:
            method = "Telemetry" if isinstance(step, Talk) else "HTTP/2"
        return f"{method}: {step.name} [{self.name}]"
