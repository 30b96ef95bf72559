"""An independent client of one broker: one socket, JSON headers, blocking calls with a deadline.

It implements the protocol without our codec, so that a bug of the codec cannot hide itself. Records
in bodies stay bytes.

Source: frames recorded from the 5.5.0 client; RocketMQ 5.3.3 remoting/protocol/RequestCode.java,
header/*.java, common/sysflag/PullSysFlag.java.
"""

from __future__ import annotations

import base64
import hmac
import json
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType

from .process import PeerError

PULL_MESSAGE = 11
QUERY_MESSAGE = 12
QUERY_CONSUMER_OFFSET = 14
UPDATE_CONSUMER_OFFSET = 15
UPDATE_AND_CREATE_TOPIC = 17
GET_ALL_TOPIC_CONFIG = 21
SEARCH_OFFSET_BY_TIMESTAMP = 29
GET_MAX_OFFSET = 30
GET_MIN_OFFSET = 31
GET_EARLIEST_MSG_STORETIME = 32
GET_ROUTEINFO_BY_TOPIC = 105
UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = 200
GET_ALL_SUBSCRIPTIONGROUP_CONFIG = 201
SEND_MESSAGE_V2 = 310
SEND_BATCH_MESSAGE = 320

SUCCESS = 0
SYSTEM_BUSY = 2
PULL_NOT_FOUND = 19
PULL_RETRY_IMMEDIATELY = 20
QUERY_NOT_FOUND = 22

PULL_COUNT = 32
WITH_SUBSCRIPTION = 0x4
"""Bit of a pull's sysFlag: the pull contains its subscription, so no heartbeat is needed."""

TIMEOUT_S = 30.0
BUSY_S = 30.0
LONG_MAX = 0x7FFF_FFFF_FFFF_FFFF
CLIENT_VERSION = 513

_LENGTHS = struct.Struct(">ii")
_RECORD_SIZE = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class Answer:
    """A broker's answer: response code, remark ("" for none), fields, body."""

    code: int
    remark: str
    fields: dict[str, str]
    body: bytes

    def checked(self) -> Answer:
        """The answer itself. Raises: PeerError: the code is not SUCCESS."""
        if self.code != SUCCESS:
            raise PeerError(f"answered with code {self.code}: {self.remark}")
        return self


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One send; `properties` as encoded on the wire, `KEYS\\x01k\\x02TAGS\\x01t\\x02`.

    `batch`: the body is an encoded batch, and the properties are those of the batch.
    """

    topic: str
    queue_id: int
    body: bytes
    properties: str = ""
    sys_flag: int = 0
    born_timestamp_ms: int = 1_700_000_000_000
    batch: bool = False


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The place of a stored send, from its answer; `physical_offset` is of its (first) record."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of an account."""

    access_key: str
    secret_key: str = field(repr=False)


class TlsAddress(str):
    """HOST:PORT of a server to which the harness itself connects by TLS.

    Attributes:
      context: of these connections.
    """

    __slots__ = ("context",)

    context: ssl.SSLContext

    @classmethod
    def of(cls, address: str, context: ssl.SSLContext) -> TlsAddress:
        made = cls(address)
        made.context = context
        return made


class WireClient:
    """One connection to one broker. Use it as a context manager; not thread-safe.

    Args:
      address: HOST:PORT; a TlsAddress: connect by TLS.
      timeout_s: of each socket operation.
      keys: of the account that signs all requests; None: they are not signed.
    Raises: PeerError: the connection is refused; from the methods: no answer, or an unexpected one.
    """

    def __init__(
        self, address: str, *, timeout_s: float = TIMEOUT_S, keys: Keys | None = None
    ) -> None:
        host, _, port = address.rpartition(":")
        self._address = address
        self._keys = keys
        self._opaque = 0
        try:
            self._socket = socket.create_connection((host, int(port)), timeout=timeout_s)
            if isinstance(address, TlsAddress):
                self._socket = address.context.wrap_socket(self._socket, server_hostname=host)
        except OSError as error:
            raise PeerError(f"cannot connect to {address}: {error}") from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = self._socket.makefile("rb")

    def __enter__(self) -> WireClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._stream.close()
        self._socket.close()

    # ---- any request ---------------------------------------------------------------------

    def send_request(self, code: int, fields: Mapping[str, object], body: bytes = b"") -> int:
        """Send a request and return its opaque. Raises: PeerError: the connection broke."""
        self._opaque += 1
        texts = {name: _text(value) for name, value in fields.items()}
        if self._keys is not None:
            _sign(texts, body, self._keys)
        header = json.dumps(
            {
                "code": code,
                "extFields": texts,
                "flag": 0,
                "language": "JAVA",
                "opaque": self._opaque,
                "serializeTypeCurrentRPC": "JSON",
                "version": CLIENT_VERSION,
            }
        ).encode()
        try:
            # In one write: a second one would wait for the acknowledgement of the first.
            lengths = _LENGTHS.pack(4 + len(header) + len(body), len(header))
            self._socket.sendall(lengths + header + body)
        except OSError as error:
            raise PeerError(f"sending to {self._address} failed: {error}") from error
        return self._opaque

    def receive(self) -> tuple[int, Answer]:
        """The next answer and the opaque of its request.

        Requests from the broker, such as its notifications about consumers, are ignored.

        Raises: PeerError: the connection ended, or nothing came in time.
        """
        while True:
            try:
                head = self._stream.read(_LENGTHS.size)
                if len(head) < _LENGTHS.size:
                    raise PeerError(f"{self._address} closed the connection")
                length, mark = _LENGTHS.unpack(head)
                content = self._stream.read(length - 4)
            except OSError as error:
                raise PeerError(f"no answer from {self._address}: {error}") from error
            size = mark & 0xFFFFFF
            if len(content) < length - 4 or mark >> 24 != 0:
                raise PeerError(f"{self._address} sent a partial frame, or a header not in JSON")
            header = json.loads(content[:size])
            if header.get("flag", 0) & 1:
                fields = header.get("extFields") or {}
                answer = Answer(header["code"], header.get("remark") or "", fields, content[size:])
                return header["opaque"], answer

    def call(self, code: int, fields: Mapping[str, object], body: bytes = b"") -> Answer:
        """Send a request and return its answer, whatever its code.

        Raises: PeerError: no answer, or one to another request.
        """
        opaque = self.send_request(code, fields, body)
        answered, answer = self.receive()
        if answered != opaque:
            raise PeerError(f"{self._address} answered request {answered} instead of {opaque}")
        return answer

    # ---- sending -------------------------------------------------------------------------

    def start_send(self, message: Outgoing) -> int:
        """Send a message without waiting for its answer, and return its opaque."""
        fields = {
            "a": "interop",
            "b": message.topic,
            "c": "TBW102",
            "d": 4,
            "e": message.queue_id,
            "f": message.sys_flag,
            "g": message.born_timestamp_ms,
            "h": 0,
            "i": message.properties,
            "j": 0,
            "k": False,
            "m": message.batch,
        }
        code = SEND_BATCH_MESSAGE if message.batch else SEND_MESSAGE_V2
        return self.send_request(code, fields, message.body)

    def send_all(self, messages: Iterable[Outgoing], *, together: int = 64) -> list[Acknowledged]:
        """Send all messages and return their places, in order.

        Sends that a busy broker refuses are repeated, behind the others of their burst; Apache's
        refuses when other processes load the machine.

        Args:
          together: messages in a burst, sent before their answers are awaited.
        Raises: PeerError: a send failed, or was refused as busy for 30 s.
        """
        places: list[Acknowledged] = []
        for batch in _chunks(messages, together):
            answers: dict[int, Answer] = {}
            left = list(range(len(batch)))
            deadline_s = time.monotonic() + BUSY_S
            while left:
                asked = {self.start_send(batch[number]): number for number in left}
                answers |= {asked[opaque]: got for opaque, got in (self.receive() for _ in left)}
                if time.monotonic() > deadline_s:
                    break
                left = [number for number in left if answers[number].code == SYSTEM_BUSY]
            places += [
                acknowledged(message, answers[number].checked())
                for number, message in enumerate(batch)
            ]
        return places

    # ---- reading -------------------------------------------------------------------------

    def pull(
        self, group: str, topic: str, queue_id: int, queue_offset: int, *, count: int = PULL_COUNT
    ) -> Answer:
        """One pull of all tags, answered at once, whatever its code."""
        fields = {
            "consumerGroup": group,
            "topic": topic,
            "queueId": queue_id,
            "queueOffset": queue_offset,
            "maxMsgNums": count,
            "sysFlag": WITH_SUBSCRIPTION,
            "commitOffset": 0,
            "suspendTimeoutMillis": 0,
            "subscription": "*",
            "subVersion": 0,
            "expressionType": "TAG",
        }
        return self.call(PULL_MESSAGE, fields)

    def pull_all(self, group: str, topic: str, queue_id: int) -> Iterator[bytes]:
        """Every record of a queue from its min offset on, as raw bytes.

        Raises: PeerError: a pull failed, or did not advance.
        """
        offset = self.min_offset(topic, queue_id)
        end = self.max_offset(topic, queue_id)
        while offset < end:
            answer = self.pull(group, topic, queue_id, offset)
            if answer.code not in (SUCCESS, PULL_RETRY_IMMEDIATELY):
                raise PeerError(f"{topic}/{queue_id} at {offset}: {answer.code} {answer.remark}")
            yield from split_records(answer.body)
            before, offset = offset, int(answer.fields["nextBeginOffset"])
            if offset <= before:
                raise PeerError(f"{topic}/{queue_id}: nextBeginOffset {offset} after {before}")

    def query_message(
        self, topic: str, key: str, *, unique: bool = False, count: int = 64
    ) -> list[bytes]:
        """The records found by key, or by unique key, in the broker's order."""
        fields: dict[str, object] = {
            "topic": topic,
            "key": key,
            "maxNum": count,
            "beginTimestamp": 0,
            "endTimestamp": LONG_MAX,
        }
        if unique:
            fields["_UNIQUE_KEY_QUERY"] = True
        answer = self.call(QUERY_MESSAGE, fields)
        if answer.code == QUERY_NOT_FOUND:
            return []
        return list(split_records(answer.checked().body))

    def _queue_number(self, code: int, topic: str, queue_id: int, **more: object) -> int:
        answer = self.call(code, {"topic": topic, "queueId": queue_id, **more}).checked()
        return int(answer.fields.get("offset", answer.fields.get("timestamp", "")))

    def min_offset(self, topic: str, queue_id: int) -> int:
        """The smallest queue offset that is still stored."""
        return self._queue_number(GET_MIN_OFFSET, topic, queue_id)

    def max_offset(self, topic: str, queue_id: int) -> int:
        """The offset that the next message will get."""
        return self._queue_number(GET_MAX_OFFSET, topic, queue_id)

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        more = {"timestamp": timestamp_ms}
        return self._queue_number(SEARCH_OFFSET_BY_TIMESTAMP, topic, queue_id, **more)

    def earliest_store_time(self, topic: str, queue_id: int) -> int:
        """Store timestamp of the queue's first message, in ms."""
        return self._queue_number(GET_EARLIEST_MSG_STORETIME, topic, queue_id)

    # ---- tables --------------------------------------------------------------------------

    def consumer_offset(self, group: str, topic: str, queue_id: int) -> int | None:
        """The committed offset of a group; None if there is none."""
        answer = self.call(
            QUERY_CONSUMER_OFFSET,
            {
                "consumerGroup": group,
                "topic": topic,
                "queueId": queue_id,
                "setZeroIfNotFound": False,
            },
        )
        if answer.code == QUERY_NOT_FOUND:
            return None
        return int(answer.checked().fields["offset"])

    def commit_offset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        fields = {
            "consumerGroup": group,
            "topic": topic,
            "queueId": queue_id,
            "commitOffset": offset,
        }
        self.call(UPDATE_CONSUMER_OFFSET, fields).checked()

    def create_topic(
        self, topic: str, *, queue_count: int, perm: int = 6, message_type: str = ""
    ) -> None:
        """Create or change a topic.

        Args:
          message_type: which proxies check, such as FIFO, or MIXED for any; "" sets none.
        """
        fields: dict[str, object] = {
            "topic": topic,
            "defaultTopic": "TBW102",
            "readQueueNums": queue_count,
            "writeQueueNums": queue_count,
            "perm": perm,
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0,
            "order": False,
        }
        if message_type:
            fields["attributes"] = f"+message.type={message_type}"
        self.call(UPDATE_AND_CREATE_TOPIC, fields).checked()

    def create_group(self, group: str, **members: object) -> None:
        """Create or change a consumer group; `members` with their names in the JSON body."""
        body = json.dumps({"groupName": group, **members}).encode()
        self.call(UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body).checked()

    def topics(self) -> dict[str, dict[str, object]]:
        """All topics' configurations, by name."""
        body = json.loads(self.call(GET_ALL_TOPIC_CONFIG, {}).checked().body)
        table = body["topicConfigTable"]
        assert isinstance(table, dict)
        return table

    def groups(self) -> dict[str, dict[str, object]]:
        """All consumer groups' configurations, by name."""
        body = json.loads(self.call(GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {}).checked().body)
        table = body["subscriptionGroupTable"]
        assert isinstance(table, dict)
        return table


def acknowledged(message: Outgoing, answer: Answer) -> Acknowledged:
    """The place of a send, from its successful answer.

    An answer's message id is the broker's address and the physical offset (8 bytes) in hex; for a
    batch, several ids separated by commas.
    """
    return Acknowledged(
        message.topic,
        int(answer.fields["queueId"]),
        int(answer.fields["queueOffset"]),
        int(answer.fields["msgId"].partition(",")[0][-16:], 16),
    )


def split_records(body: bytes) -> Iterator[bytes]:
    """The records of a body as raw bytes; each begins with its size.

    Raises: PeerError: the sizes do not add up to the body.
    """
    position = 0
    while position < len(body):
        (size,) = _RECORD_SIZE.unpack_from(body, position)
        if not 0 < size <= len(body) - position:
            raise PeerError(f"a record of {size} bytes with {len(body) - position} left")
        yield body[position : position + size]
        position += size


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _sign(fields: dict[str, str], body: bytes, keys: Keys) -> None:
    """Add an account's name and its signature: of all values, by the names' order, and the body.

    Source: RocketMQ 4.9.7 acl/common/AclClientRPCHook, AclSigner.
    """
    fields["AccessKey"] = keys.access_key
    content = "".join(fields[name] for name in sorted(fields)).encode() + body
    digest = hmac.digest(keys.secret_key.encode(), content, "sha1")
    fields["Signature"] = base64.b64encode(digest).decode()


def _chunks(messages: Iterable[Outgoing], size: int) -> Iterator[list[Outgoing]]:
    chunk: list[Outgoing] = []
    for message in messages:
        chunk.append(message)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def wait_for_route(namesrv_address: str, topic: str, *, timeout_s: float) -> None:
    """Wait until a name server has a route for a topic.

    Raises: PeerError: it does not answer, or has no route in time.
    """
    until_s = time.monotonic() + timeout_s
    never = threading.Event()
    with WireClient(namesrv_address) as wire:
        while wire.call(GET_ROUTEINFO_BY_TOPIC, {"topic": topic}).code != SUCCESS:
            if time.monotonic() > until_s:
                raise PeerError(
                    f"the name server {namesrv_address} has no route for {topic}"
                    f" after {timeout_s:.0f} s"
                )
            never.wait(0.1)
