"""One pull, and the offsets that say where a group goes on: what both kinds of consumer need.

Java counterparts: PullAPIWrapper, RemoteBrokerOffsetStore, LocalFileOffsetStore.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from typing import Final, Protocol

import msgspec

from ..remoting import fastjson
from ..remoting.bodies import MessageQueue, SubscriptionData
from ..remoting.codec import RemotingCommand
from ..remoting.errors import RemoteProtocolError
from ..remoting.headers import (
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    OffsetResponseHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    QueryConsumerOffsetRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from ..remoting.headers.base import Header, decode
from ..remoting.message import MessageExt
from ..remoting.message_codec import decode_messages
from ..remoting.request_codes import RequestCode
from ..remoting.response_codes import ResponseCode
from .client import Client
from .core.subscription import matches
from .errors import ClientError, ConfigurationError, ConnectError, ServerError, reading_answer

logger = logging.getLogger(__name__)

COMMIT: Final = 0x1
SUSPEND: Final = 0x2
SUBSCRIPTION: Final = 0x4
CLASS_FILTER: Final = 0x8
"""Bits of a pull's sysFlag. Source: PullSysFlag."""


class PullStatus(Enum):
    """What a pull brought."""

    FOUND = ResponseCode.SUCCESS
    NO_NEW_MESSAGE = ResponseCode.PULL_NOT_FOUND
    NO_MATCHED_MESSAGE = ResponseCode.PULL_RETRY_IMMEDIATELY
    OFFSET_ILLEGAL = ResponseCode.PULL_OFFSET_MOVED


_STATUSES: Final = {int(status.value): status for status in PullStatus}


class PullResult(msgspec.Struct, frozen=True, gc=False):
    """The answer to a pull.

    Attributes:
      status: whether there are messages, and if not, why.
      messages: those that the subscription wants, bodies inflated.
      next_begin_offset: where to pull next, in messages.
      min_offset, max_offset: what the queue has, in messages.
      suggest_which_broker_id: whom to ask next; 0: the master.
    """

    status: PullStatus
    messages: list[MessageExt]
    next_begin_offset: int
    min_offset: int
    max_offset: int
    suggest_which_broker_id: int


def broker_of(client: Client, queue: MessageQueue, broker_id: int = 0) -> str:
    """The address to ask about a queue.

    Raises: ConnectError: no name server says where the broker is.
    """
    return _known(client.broker_address(queue.broker_name, broker_id), queue)


def reader_of(client: Client, queue: MessageQueue) -> str:
    """The address to read a queue at, and to note there how far a group is.

    A slave while there is no master: what it is told then, its master may never hear.

    Raises: ConnectError: no name server says where the broker is.
    """
    return _known(client.reading_address(queue.broker_name), queue)


def _known(address: str | None, queue: MessageQueue) -> str:
    if address is None:
        raise ConnectError(queue.broker_name, "no name server says where this broker is")
    return address


async def pull(
    client: Client,
    queue: MessageQueue,
    subscription: SubscriptionData,
    group: str,
    offset: int,
    *,
    count: int,
    suspend_s: float,
    timeout_s: float,
    commit_offset: int = 0,
    broker_id: int = 0,
    is_subscription_sent: bool = False,
    filter_server: str | None = None,
) -> PullResult:
    """Pull once.

    Args:
      queue: its topic with namespace.
      group: with namespace.
      offset: of the first message wanted, in messages.
      count: at most so many messages.
      suspend_s: seconds that the broker may hold the pull when there is nothing; 0: none.
      timeout_s: seconds to wait for the answer; more than `suspend_s`.
      commit_offset: the group's offset to note on the way; 0: none. A slave is told none.
      broker_id: 0: the master, or a slave while there is none; else what the last pull suggested,
        or whoever is there.
      is_subscription_sent: tell the subscription with the pull; else heartbeats have told it.
      filter_server: `host:port` of a filter server to ask in place of the broker.

    Raises: ServerError; ConnectError; RequestTimeoutError; BadAnswerError; ConfigurationError: a
      body is compressed in a way that needs a package.
    """
    if broker_id != 0:
        commit_offset = 0
    header = PullMessageRequestHeader(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_msg_nums=count,
        sys_flag=(COMMIT if commit_offset > 0 else 0)
        | (SUSPEND if suspend_s > 0 else 0)
        | (SUBSCRIPTION if is_subscription_sent else 0)
        | (CLASS_FILTER if filter_server else 0),
        commit_offset=commit_offset,
        suspend_timeout_millis=round(suspend_s * 1000),
        subscription=subscription.sub_string if is_subscription_sent else None,
        sub_version=subscription.sub_version,
        expression_type=subscription.expression_type,
        broker_name=queue.broker_name,
    )
    answer = await client.request(
        filter_server
        or (broker_of(client, queue, broker_id) if broker_id else reader_of(client, queue)),
        RequestCode.PULL_MESSAGE,
        header,
        timeout_s=timeout_s,
        ok=tuple(_STATUSES),
    )
    with reading_answer(queue.broker_name):
        return _pull_result(answer, subscription)


def _pull_result(answer: RemotingCommand, subscription: SubscriptionData) -> PullResult:
    told = decode(PullMessageResponseHeader, answer.ext_fields)
    messages: list[MessageExt] = []
    if answer.code == ResponseCode.SUCCESS:
        messages = decode_messages(answer.body)
    if messages:
        if subscription.tags_set:
            messages = [m for m in messages if matches(subscription, m.tags)]
        if told.offset_delta:
            for message in messages:
                message.queue_offset += told.offset_delta
    return PullResult(
        _STATUSES[answer.code],
        messages,
        told.next_begin_offset,
        told.min_offset,
        told.max_offset,
        told.suggest_which_broker_id,
    )


class PullTroubles:
    """Says in the log why pulls of a consumer failed, and how it goes on.

    Messages that only a package can inflate say so once per topic: the pull is tried again until
    it is installed or they are gone, and the group's offset does not move past them.
    """

    def __init__(self) -> None:
        self._told: set[str] = set()

    def tell(self, queue: MessageQueue, error: ClientError, pause_s: float) -> None:
        """A pull of this queue failed; the next one comes after so many seconds."""
        if not isinstance(error, ConfigurationError):
            logger.warning("a pull of %s failed, once more in %g s: %s", queue, pause_s, error)
        elif queue.topic not in self._told:
            self._told.add(queue.topic)
            logger.error(
                "messages of the topic %s cannot be read here, and wait at the broker: %s",
                queue.topic,
                error,
            )


async def max_offset(client: Client, queue: MessageQueue) -> int:
    """Queue offset of the next message to come. Raises: as `Client.request`."""
    header = GetMaxOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id)
    return await _offset(client, queue, RequestCode.GET_MAX_OFFSET, header)


async def min_offset(client: Client, queue: MessageQueue) -> int:
    """Queue offset of the first message that is there. Raises: as `Client.request`."""
    header = GetMinOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id)
    return await _offset(client, queue, RequestCode.GET_MIN_OFFSET, header)


async def search_offset(client: Client, queue: MessageQueue, timestamp_ms: int) -> int:
    """Queue offset of the first message stored at a time or later, ms since 1970.

    Raises: as `Client.request`.
    """
    header = SearchOffsetRequestHeader(
        topic=queue.topic, queue_id=queue.queue_id, timestamp=timestamp_ms
    )
    return await _offset(client, queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)


async def committed_offset(client: Client, queue: MessageQueue, group: str) -> int | None:
    """Where a group goes on, by the broker; None: it never committed.

    Raises: as `Client.request`.
    """
    header = QueryConsumerOffsetRequestHeader(
        consumer_group=group, topic=queue.topic, queue_id=queue.queue_id
    )
    ok = (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)
    answer = await client.request(
        reader_of(client, queue), RequestCode.QUERY_CONSUMER_OFFSET, header, ok=ok
    )
    if answer.code == ResponseCode.QUERY_NOT_FOUND:
        return None
    with reading_answer(queue.broker_name):
        return decode(OffsetResponseHeader, answer.ext_fields).offset


async def commit_offset(client: Client, queue: MessageQueue, group: str, offset: int) -> None:
    """Note where a group goes on.

    A broker that has not had our first heartbeat yet does not know the group: it gets one, and is
    told once more.

    Raises: as `Client.request`.
    """
    header = UpdateConsumerOffsetRequestHeader(
        consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=offset
    )
    code = RequestCode.UPDATE_CONSUMER_OFFSET
    try:
        await client.request(reader_of(client, queue), code, header)
    except ServerError as error:
        if error.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
            raise
        await client.heartbeat()
        await client.request(reader_of(client, queue), code, header)


async def _offset(client: Client, queue: MessageQueue, code: int, header: Header) -> int:
    answer = await client.request(broker_of(client, queue), code, header)
    with reading_answer(queue.broker_name):
        return decode(OffsetResponseHeader, answer.ext_fields).offset


class OffsetStore(Protocol):
    """Where a consumer notes how far it is."""

    def update(self, queue: MessageQueue, offset: int) -> None:
        """Note an offset in memory."""

    def known(self, queue: MessageQueue) -> int | None:
        """The offset noted in memory."""
        ...

    async def read(self, queue: MessageQueue) -> int | None:
        """The offset that was kept; None: none was. Raises: ClientError."""
        ...

    async def persist(self, queues: Iterable[MessageQueue]) -> None:
        """Keep what was noted of these queues; what fails is logged, and kept the next time."""

    def remove(self, queue: MessageQueue) -> None:
        """Forget what was noted in memory."""


class RemoteOffsetStore:
    """Offsets of a group, kept by the brokers.

    Args:
      client: open.
      group: with namespace.
    """

    def __init__(self, client: Client, group: str) -> None:
        self._client = client
        self._group = group
        self._offsets: dict[MessageQueue, int] = {}
        self._persisted: dict[MessageQueue, int] = {}

    def update(self, queue: MessageQueue, offset: int) -> None:
        """Note an offset in memory."""
        self._offsets[queue] = offset

    def known(self, queue: MessageQueue) -> int | None:
        """The offset noted in memory."""
        return self._offsets.get(queue)

    async def read(self, queue: MessageQueue) -> int | None:
        """The offset that the broker has."""
        return await committed_offset(self._client, queue, self._group)

    async def persist(self, queues: Iterable[MessageQueue]) -> None:
        """Tell the brokers what changed."""
        for queue in queues:
            offset = self._offsets.get(queue)
            if offset is None or offset == self._persisted.get(queue):
                continue
            try:
                await commit_offset(self._client, queue, self._group, offset)
                self._persisted[queue] = offset
            except ClientError as error:
                logger.warning("offset %d of %s was not committed: %s", offset, queue, error)

    def remove(self, queue: MessageQueue) -> None:
        """Forget what was noted in memory."""
        self._offsets.pop(queue, None)
        self._persisted.pop(queue, None)


class LocalOffsetStore:
    """Offsets of a broadcasting consumer: each keeps its own, in a file if it is given one.

    The file is as Java's client writes it: `{"offsetTable":{{"brokerName":...}:5}}`.

    Args:
      path: of the file; None: the offsets last as long as the consumer.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._offsets: dict[MessageQueue, int] = {}
        self._kept: dict[MessageQueue, int] = {}
        if path is not None:
            self._kept = _read_offsets(path)

    def update(self, queue: MessageQueue, offset: int) -> None:
        """Note an offset in memory."""
        self._offsets[queue] = offset

    def known(self, queue: MessageQueue) -> int | None:
        """The offset noted in memory."""
        return self._offsets.get(queue)

    async def read(self, queue: MessageQueue) -> int | None:
        """The offset of the file."""
        return self._kept.get(queue)

    async def persist(self, queues: Iterable[MessageQueue]) -> None:
        """Write the file anew, by way of a temporary one."""
        changed = {q: self._offsets[q] for q in queues if q in self._offsets}
        if self._path is None or changed.items() <= self._kept.items():
            self._kept.update(changed)
            return
        self._kept.update(changed)
        temporary = self._path.with_name(f"{self._path.name}.tmp")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(fastjson.dumps({"offsetTable": self._kept}))
            temporary.replace(self._path)
        except OSError as error:
            logger.warning("offsets were not written to %s: %s", self._path, error)
            with contextlib.suppress(OSError):
                temporary.unlink()

    def remove(self, queue: MessageQueue) -> None:
        """Forget what was noted in memory."""
        self._offsets.pop(queue, None)


def _read_offsets(path: Path) -> dict[MessageQueue, int]:
    try:
        tree = fastjson.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, RemoteProtocolError) as error:
        raise ConfigurationError(f"{path} cannot be read as offsets: {error}") from error
    try:
        return offset_table(tree, "offsetTable")
    except RemoteProtocolError as error:
        raise ConfigurationError(f"{path}: {error}") from error


def offset_table(tree: object, member: str) -> dict[MessageQueue, int]:
    """A map from queues to offsets, as RocketMQ's JSON has it.

    Raises: RemoteProtocolError: it is none.
    """
    try:
        table = tree.get(member) if isinstance(tree, dict) else None
        return {
            msgspec.convert(dict(queue), MessageQueue, strict=False): int(offset)
            for queue, offset in (table or {}).items()
        }
    except (msgspec.ValidationError, TypeError, ValueError) as error:
        raise RemoteProtocolError(f"not a table of offsets: {error}") from error
