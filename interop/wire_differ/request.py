"""The data types of the catalogue: requests to servers, requests from servers, and scripts.

A script is played on two clusters with the same names, which no other script uses. A value that
depends on an earlier answer of the same side (an offset, a message id) is a function of `Played`.
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
from ..wire import Keys
from .normalise import Normaliser, Side

MAIN = "main"
"""The connection of a request that names none."""

ANY_CODE = -1
"""In `Request.expect`: whatever code, the same on both sides."""

SHORT_MAX = 0x7FFF
"""The greatest code that a ROCKETMQ header can carry."""

_ACCOUNT_CODES = tuple(code for code in RequestCode if 3001 <= code <= 3010)
_POP_CODES = tuple(
    code
    for code in RequestCode
    if 200050 <= code <= 200055 or code is RequestCode.BATCH_ACK_MESSAGE
)
_LITE_CODES = tuple(
    code
    for code in RequestCode
    if 200070 <= code <= 200079 and code is not RequestCode.ACK_LITE_MESSAGE
)

CODE_SINCE: Mapping[RequestCode, str] = MappingProxyType(
    {
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: "5.3.0",
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: "5.3.0",
        RequestCode.REGISTER_TOPIC_IN_NAMESRV: "5.0.0",
        RequestCode.GET_TOPIC_CONFIG: "5.0.0",
        RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC: "5.0.0",
        RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: "5.0.0",
        RequestCode.LITE_PULL_MESSAGE: "5.0.0",
        RequestCode.RECALL_MESSAGE: "5.3.2",
        RequestCode.GET_BROKER_MEMBER_GROUP: "5.0.0",
        RequestCode.BROKER_HEARTBEAT: "5.0.0",
        RequestCode.GET_TIMER_CHECK_POINT: "5.0.0",
        RequestCode.GET_TIMER_METRICS: "5.0.0",
        RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: "5.0.0",
        RequestCode.GET_BROKER_HA_STATUS: "5.0.0",
        RequestCode.QUERY_TOPICS_BY_CONSUMER: "5.0.0",
        RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: "5.0.0",
        RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: "5.0.0",
        RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS: "5.3.2",
        RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON: "5.3.2",
        RequestCode.QUERY_ASSIGNMENT: "5.0.0",
        RequestCode.SET_MESSAGE_REQUEST_MODE: "5.0.0",
        RequestCode.POP_ROLLBACK: "5.3.2",
        **dict.fromkeys(_POP_CODES, "5.0.0"),
        **dict.fromkeys(_LITE_CODES, "5.5.0"),
        **dict.fromkeys(_ACCOUNT_CODES, "5.3.0"),
    }
)
"""The first version of Apache's with a code; codes not listed are older than 4.9."""

CODE_SPANS: Mapping[RequestCode, tuple[tuple[str, str], ...]] = MappingProxyType(
    {RequestCode.REGISTER_FILTER_SERVER: (("4.0", "4.9.6"), ("5.0", "5.1.1"))}
)
"""Codes that Apache's has dropped: ranges of versions with them, as (first, first without)."""


class Server(StrEnum):
    """The server that a request goes to."""

    BROKER = "broker"
    NAMESRV = "name server"


class BodyKind(StrEnum):
    """How a body is decoded before it is compared."""

    BYTES = "bytes"
    JSON = "json"
    """JSON with the extensions of fastjson; compared as values."""
    RECORDS = "records"
    """Stored records, compared field by field."""
    PROPERTIES = "properties"
    """Java's `key=value` lines, compared as a table."""
    TIMER_CHECKPOINT = "timer checkpoint"
    """The 56 bytes of Apache's timer checkpoint; what follows them is ours."""


@dataclass
class Played:
    """The answers of one side so far in a script.

    Attributes:
      side: whose answers these are.
      answers: by the request's name.
    """

    side: Side
    answers: dict[str, RemotingCommand] = field(default_factory=dict)

    def field(self, request: str, name: str) -> str:
        """A field of an earlier answer; "" if it is missing, so that the request fails."""
        answer = self.answers.get(request)
        return "" if answer is None else answer.ext_fields.get(name, "")

    def physical_offset(self, request: str) -> int:
        """The physical offset of an earlier send's message; -1 if there is none."""
        try:
            return decode_offset_id(self.field(request, "msgId")).physical_offset
        except RemoteProtocolError:
            return -1


FieldValue: TypeAlias = object
"""A string, a number, a boolean, or a function of `Played` that gives one."""
Body: TypeAlias = bytes | Callable[[Played], bytes]


@dataclass(frozen=True, kw_only=True)
class ClientAnswer:
    """The client's answer to a request from a server."""

    code: int = 0
    remark: str | None = None
    fields: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, kw_only=True)
class FromServer:
    """A request that a server sends to the client: awaited, compared, and answered.

    Attributes:
      name: for reports.
      connection: the one on which it arrives.
      answer: that of the client; None: it is oneway.
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


class Flaw(StrEnum):
    """What is wrong with a signature."""

    OTHER_SECRET = "made with another secret"
    CUT_SHORT = "its last 8 characters are missing"
    OTHER_BODY = "made for another body"


@dataclass(frozen=True, slots=True)
class Signer:
    """The account that signs a request.

    Attributes:
      keys: its name and secret.
      flaw: of the signature; None: it is right.
    """

    keys: Keys
    flaw: Flaw | None = None


@dataclass(frozen=True)
class Request:
    """One request and the expectations on its answer.

    Attributes:
      name: for reports; unique among the requests of its script with this code.
      fields: of the header; functions are called when the request is sent.
      expect: the response code on both sides, or `ANY_CODE`; None: no answer, whether oneway or
        not.
      erroneous: a server should refuse it, or it asks for something missing.
      normalisers: in addition to those of every answer.
      connection: a name; each name and server has one connection, opened on first use.
      meanwhile: steps between this request and its answer.
      until: the request is repeated until this returns true for an answer, for at most 30 s: for
        effects that follow the answer of an earlier request.
      since: the first version of Apache's that serves it like this.
      version: MQVersion ordinal of the client.
      signer: the account that signs it; None: it is not signed.
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
    signer: Signer | None = None

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
    """Requests that are played one after the other, on connections that no other script uses.

    Attributes:
      header: the kind of header of all requests.
      area: groups its steps in reports; "": they are grouped by their codes.
    """

    name: str
    header: SerializeType
    steps: tuple[Step, ...]
    area: str = ""

    @property
    def label(self) -> str:
        return f"{self.name} ({self.header.name} header)"

    def for_version(self, version: str) -> Script:
        """The script without the steps that a version of Apache's does not serve."""
        return replace(self, steps=_served(self.steps, version_key(version)))

    def features(self) -> list[tuple[str, Step]]:
        """Each step, including nested ones, with its name in a report, in order."""
        before = f"{self.area}: " if self.area else ""
        return [(f"{before}{step.feature} [{self.label}]", step) for step in _flat(self.steps)]


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
    """The versions of Apache's that serve a step, in words."""
    spans = CODE_SPANS.get(step.code)
    if spans is None:
        return f"since {step.served_since}"
    return " and ".join(f"from {since} to before {before}" for since, before in spans)


def version_key(version: str) -> tuple[int, ...]:
    """A version's numbers, for comparison: (4, 9, 7) for "4.9.7"."""
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def answer_field(request: str, name: str) -> Callable[[Played], object]:
    """A field's value, taken from the answer to an earlier request."""
    return lambda played: played.field(request, name)


def send_offset(request: str, beyond: int = 0) -> Callable[[Played], object]:
    """A field's value: the physical offset of an earlier send, plus `beyond` bytes."""
    return lambda played: played.physical_offset(request) + beyond
