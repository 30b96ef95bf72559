"""What a catalogue of requests is made of: requests, what servers ask in turn, and scripts.

Data only. A script is played on two clusters; its names are the same on both, and no other
script uses them. What a request takes from an earlier answer of its own side (an offset, a message
id) is given as a function of `Played`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import TypeAlias

from ...remoting.codec import CURRENT_VERSION, RemotingCommand, SerializeType
from ...remoting.errors import RemoteProtocolError
from ...remoting.message_id import decode_offset_id
from ...remoting.request_codes import RequestCode
from .normalise import Normaliser, Side

MAIN = "main"
"""The connection of a request that names none."""


CODE_SINCE: Mapping[RequestCode, str] = MappingProxyType(
    {
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: "5.3.0",
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: "5.3.0",
        RequestCode.REGISTER_TOPIC_IN_NAMESRV: "5.0.0",
        RequestCode.GET_TOPIC_CONFIG: "5.0.0",
        RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: "5.0.0",
        RequestCode.LITE_PULL_MESSAGE: "5.0.0",
        RequestCode.RECALL_MESSAGE: "5.3.2",
        RequestCode.GET_BROKER_MEMBER_GROUP: "5.0.0",
        RequestCode.BROKER_HEARTBEAT: "5.0.0",
        RequestCode.GET_TIMER_CHECK_POINT: "5.0.0",
        RequestCode.GET_TIMER_METRICS: "5.0.0",
        RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: "5.0.0",
        RequestCode.GET_BROKER_HA_STATUS: "5.0.0",
    }
)
"""The versions of Apache's that a code came with; the others are older than 4.9."""

CODE_SPANS: Mapping[RequestCode, tuple[tuple[str, str], ...]] = MappingProxyType(
    {RequestCode.REGISTER_FILTER_SERVER: (("4.0", "4.9.6"), ("5.0", "5.1.1"))}
)
"""Codes that Apache's has no more: from which versions on it had them, and before which ones."""


class Server(StrEnum):
    """Whom a request is for."""

    BROKER = "broker"
    NAMESRV = "name server"


class BodyKind(StrEnum):
    """How a body is read before it is compared."""

    BYTES = "bytes"
    JSON = "json"
    """JSON and what fastjson writes beyond it; compared as values."""
    RECORDS = "records"
    """Stored records, compared field by field."""
    PROPERTIES = "properties"
    """Java's `key=value` lines, compared as a table."""
    TIMER_CHECKPOINT = "timer checkpoint"
    """The 56 bytes of Apache's timer checkpoint; what follows them is ours."""


@dataclass
class Played:
    """What one side has answered so far in a script.

    Attributes:
      side: whose answers these are.
      answers: by the request's name.
    """

    side: Side
    answers: dict[str, RemotingCommand] = field(default_factory=dict)

    def field(self, request: str, name: str) -> str:
        """A field of an earlier answer; "" where it has none, so that the request goes wrong."""
        answer = self.answers.get(request)
        return "" if answer is None else answer.ext_fields.get(name, "")

    def physical_offset(self, request: str) -> int:
        """Where the message of an earlier send is in the commit log; -1 where there is none."""
        try:
            return decode_offset_id(self.field(request, "msgId")).physical_offset
        except RemoteProtocolError:
            return -1


FieldValue: TypeAlias = object
"""A text, a number, a boolean, or a function of `Played` that gives one."""
Body: TypeAlias = bytes | Callable[[Played], bytes]


@dataclass(frozen=True, kw_only=True)
class ClientAnswer:
    """What the client answers to a server's request."""

    code: int = 0
    remark: str | None = None
    fields: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, kw_only=True)
class FromServer:
    """A request that a server sends to the client: waited for, compared, and answered.

    Attributes:
      name: for people.
      connection: on which one it comes.
      answer: what the client answers; None: it is oneway.
    """

    name: str
    code: RequestCode
    connection: str
    answer: ClientAnswer | None = None
    body_kind: BodyKind = BodyKind.BYTES
    normalisers: tuple[Normaliser, ...] = ()
    since: str = "4.0"

    @property
    def feature(self) -> str:
        """Its name in a report."""
        return f"{self.code.name} {self.code.value}: {self.name}"

    @property
    def served_since(self) -> str:
        """The first version of Apache's that has it."""
        return max(self.since, CODE_SINCE.get(self.code, "0"), key=version_key)


@dataclass(frozen=True)
class Request:
    """One request and what is expected of its answers.

    Attributes:
      name: for people; no other one of its script with this code has it.
      fields: the header's; values that are functions are called when it is sent.
      expect: the response code on both sides; None: no answer, whether oneway or not.
      erroneous: it is one that a server should refuse, or that asks for what is not there.
      normalisers: beyond those that every answer has.
      connection: a name; one connection for each name and server, opened at its first use.
      meanwhile: what happens between this request and its answer.
      until: the request is sent again until this says yes to an answer (its fields and body), for
        at most 10 s: for what a server does a moment after it has answered.
      since: the first version of Apache's that serves it so.
      version: MQVersion ordinal of the client.
    """

    name: str
    code: RequestCode
    fields: Mapping[str, FieldValue] = field(default_factory=dict)
    body: Body = b""
    _: KW_ONLY
    server: Server = Server.BROKER
    expect: int | None = 0
    erroneous: bool = False
    body_kind: BodyKind = BodyKind.BYTES
    normalisers: tuple[Normaliser, ...] = ()
    connection: str = MAIN
    oneway: bool = False
    meanwhile: tuple[Step, ...] = ()
    until: Callable[[RemotingCommand], bool] | None = None
    since: str = "4.0"
    version: int = CURRENT_VERSION

    @property
    def feature(self) -> str:
        """Its name in a report."""
        return f"{self.code.name} {self.code.value}: {self.name}"

    @property
    def served_since(self) -> str:
        """The first version of Apache's that has it."""
        return max(self.since, CODE_SINCE.get(self.code, "0"), key=version_key)


Step: TypeAlias = Request | FromServer


@dataclass(frozen=True)
class Script:
    """Requests that are played one after the other on connections of their own.

    Attributes:
      header: how the headers of all of them are written.
    """

    name: str
    header: SerializeType
    steps: tuple[Step, ...]

    @property
    def label(self) -> str:
        """The name with the kind of header."""
        return f"{self.name} ({self.header.name} header)"

    def for_version(self, version: str) -> Script:
        """The script without what a version of Apache's does not serve yet."""
        return replace(self, steps=_served(self.steps, version_key(version)))

    def features(self) -> list[tuple[str, Step]]:
        """Each step with its name in a report, those inside others too, in the order played."""
        return [(f"{step.feature} [{self.label}]", step) for step in _flat(self.steps)]


def _flat(steps: tuple[Step, ...]) -> list[Step]:
    flat: list[Step] = []
    for step in steps:
        flat.append(step)
        if isinstance(step, Request):
            flat += _flat(step.meanwhile)
    return flat


def _served(steps: tuple[Step, ...], version: tuple[int, ...]) -> tuple[Step, ...]:
    kept: list[Step] = []
    for step in steps:
        if version_key(step.served_since) > version or not _has(step.code, version):
            continue
        if isinstance(step, Request) and step.meanwhile:
            step = replace(step, meanwhile=_served(step.meanwhile, version))
        kept.append(step)
    return tuple(kept)


def _has(code: RequestCode, version: tuple[int, ...]) -> bool:
    spans = CODE_SPANS.get(code)
    return spans is None or any(
        version_key(since) <= version < version_key(before) for since, before in spans
    )


def served_in(step: Step) -> str:
    """Which versions of Apache's serve a step, in words."""
    spans = CODE_SPANS.get(step.code)
    if spans is None:
        return f"since {step.served_since}"
    return " and ".join(f"from {since} to before {before}" for since, before in spans)


def version_key(version: str) -> tuple[int, ...]:
    """A version's numbers, for comparing: "4.9.7" is (4, 9, 7)."""
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def taken(request: str, name: str) -> Callable[[Played], object]:
    """A field's value: that field of the answer to an earlier request."""
    return lambda played: played.field(request, name)


def place_of(request: str, beyond: int = 0) -> Callable[[Played], object]:
    """A field's value: the physical offset that an earlier send was answered with."""
    return lambda played: played.physical_offset(request) + beyond
