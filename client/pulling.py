"""One pull, and the offsets that say where a group goes on: what both kinds of consumer need.

Java counterparts: PullAPIWrapper, RemoteBrokerOffsetStore, LocalFileOffsetStore.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from ..remoting import fastjson
from ..remoting.bodies import MessageQueue, SubscriptionData
from ..remoting.errors import RemoteProtocolError
from ..remoting.message import MessageExt
from ..remoting.message_codec import decode_messages
from ..remoting.response_codes import ResponseCode
from .client import Client
from .core import queue_requests as requests
from .core.queue_requests import PullAnswer, PullStatus, QueueRequest
from .core.subscription import matches
from .errors import ClientError, ConfigurationError, ConnectError, ServerError, reading_answer

logger = logging.getLogger(__name__)

T = TypeVar("T")


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

    A slave while there is no master: what it hears then, its master may never hear.

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
      count: of messages, at most.
      suspend_s: seconds that the broker may hold the pull when there is nothing; 0: none.
      timeout_s: seconds to wait for the answer; more than `suspend_s`.
      commit_offset: the group's offset to note on the way; 0: none. A slave gets none.
      broker_id: 0: the master, or a slave while there is none; else what the last pull suggested,
        or any that is there.
      is_subscription_sent: send the subscription with the pull; else heartbeats have brought it.
      filter_server: `host:port` of a filter server to ask in place of the broker.

    Raises: ServerError; ConnectError; RequestTimeoutError; BadAnswerError; ConfigurationError: a
      body is compressed in a way that needs a package.
    """
    request = requests.pull(
        queue,
        subscription,
        group,
        offset,
        count=count,
        suspend_s=suspend_s,
        commit_offset=0 if broker_id else commit_offset,
        is_subscription_sent=is_subscription_sent,
        is_class_filtered=filter_server is not None,
    )
    address = filter_server
    if address is None:
        address = broker_of(client, queue, broker_id) if broker_id else reader_of(client, queue)
    answer = await client.request(
        address, request.code, request.header, timeout_s=timeout_s, ok=request.ok
    )
    with reading_answer(queue.broker_name):
        return _pull_result(request.read(answer), subscription)


def _pull_result(answer: PullAnswer, subscription: SubscriptionData) -> PullResult:
    messages: list[MessageExt] = []
    if answer.code == ResponseCode.SUCCESS:
        messages = decode_messages(answer.body)
    if messages:
        if subscription.tags_set:
            messages = [m for m in messages if matches(subscription, m.tags)]
        if answer.offset_delta:
            for message in messages:
                message.queue_offset += answer.offset_delta
    return PullResult(
        requests.PULL_STATUSES[answer.code],
        messages,
        answer.next_offset,
        answer.min_offset,
        answer.max_offset,
        answer.suggested_broker_id,
    )


class PullTroubles:
    """Says in the log why pulls of a consumer failed, and how it goes on.

    Messages that only a package can inflate say so once per topic: the pull is tried again until
    it is installed or they are gone, and the group's offset does not move past them.
    """

    def __init__(self) -> None:
        self._told: set[str] = set()

    def tell(self, queue: MessageQueue, error: ClientError, pause_s: float) -> None:
        """Log that a pull of this queue failed, and that the next one comes after `pause_s`."""
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
    return await _ask(client, queue, broker_of(client, queue), requests.max_offset(queue))


async def min_offset(client: Client, queue: MessageQueue) -> int:
    """Queue offset of the first message that is there. Raises: as `Client.request`."""
    return await _ask(client, queue, broker_of(client, queue), requests.min_offset(queue))


async def search_offset(client: Client, queue: MessageQueue, timestamp_ms: int) -> int:
    """Queue offset of the first message stored at a time or later, ms since 1970.

    Raises: as `Client.request`.
    """
    request = requests.search_offset(queue, timestamp_ms)
    return await _ask(client, queue, broker_of(client, queue), request)


async def committed_offset(client: Client, queue: MessageQueue, group: str) -> int | None:
    """Where a group goes on, by the master or a slave in its place; None: it never committed.

    Raises: as `Client.request`.
    """
    request = requests.committed_offset(queue, group)
    return await _ask(client, queue, reader_of(client, queue), request)


async def commit_offset(client: Client, queue: MessageQueue, group: str, offset: int) -> None:
    """Note where a group goes on.

    A broker that has not had our first heartbeat yet does not know the group: it gets one, and
    then the request once more.

    Raises: as `Client.request`.
    """
    request = requests.commit_offset(queue, group, offset)
    try:
        await _ask(client, queue, reader_of(client, queue), request)
    except ServerError as error:
        if error.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
            raise
        await client.heartbeat()
        await _ask(client, queue, reader_of(client, queue), request)


async def _ask(client: Client, queue: MessageQueue, address: str, request: QueueRequest[T]) -> T:
    answer = await client.request(address, request.code, request.header, ok=request.ok)
    with reading_answer(queue.broker_name):
        return request.read(answer)


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
