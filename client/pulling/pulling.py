"""Pulls and offset stores, which push and pull consumers have in common.

Java counterparts: PullAPIWrapper, RemoteBrokerOffsetStore, LocalFileOffsetStore.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, Protocol, TypeVar

import anyio
import msgspec

from ...common.whole_file import replacing
from ...remoting import fastjson
from ...remoting.bodies import ConsumeFromWhere, MessageQueue, SubscriptionData
from ...remoting.errors import RemoteProtocolError
from ...remoting.message import MessageExt
from ...remoting.message_codec import decode_messages
from ...remoting.response_codes import ResponseCode
from ..checks.queue_check import check_queue, check_time
from ..connection.client import Client
from ..connection.connection_log import failure_level
from ..core import queue_requests as requests
from ..core.queue_requests import PullAnswer, PullStatus, QueueRequest
from ..core.subscription import matches
from ..errors import ClientError, ConfigurationError, ConnectError, ServerError, reading_answer
from ..tasks.task_group import TaskGroup

logger = logging.getLogger(__name__)

COMMIT_S: Final = 3.0
"""Time limit of a round of commits at one broker. RocketMQ: mqClientApiTimeout, 3,000 ms, each."""

COMMITS_IN_FLIGHT: Final = 8
"""Commits that a broker gets at once: enough for 1,024 queues within a second over 5 ms."""

T = TypeVar("T")


class PullResult(msgspec.Struct, frozen=True, gc=False):
    """The result of a pull.

    Attributes:
      status: FOUND, or the reason why there are no messages.
      messages: the messages that match the subscription, with decompressed bodies.
      next_begin_offset: offset of the next pull.
      min_offset: offset of the first message in the queue.
      max_offset: offset of the next message to be stored in the queue.
      suggest_which_broker_id: id of the broker to pull from next; 0: the master.
    """

    status: PullStatus
    messages: list[MessageExt]
    next_begin_offset: int
    min_offset: int
    max_offset: int
    suggest_which_broker_id: int


def broker_of(client: Client, queue: MessageQueue, broker_id: int = 0) -> str:
    """The address of a queue's broker, `host:port`.

    Raises: ConnectError: no route names the broker.
    """
    return _known(client.broker_address(client.owner(queue), broker_id), queue)


def reader_of(client: Client, queue: MessageQueue) -> str:
    """The address, `host:port`, to read a queue from and to commit its offsets to.

    It is a slave's while there is no master. Offsets that are committed to a slave may never reach
    the master.

    Raises: ConnectError: no route names the broker.
    """
    return _known(client.reading_address(client.owner(queue)), queue)


async def _found(
    client: Client, queue: MessageQueue, find: Callable[[Client, MessageQueue], str]
) -> str:
    """What `find` finds, after a look-up of the topic's route if no route names the broker yet.

    Raises: as `find` and `Client.route`.
    """
    try:
        return find(client, queue)
    except ConnectError:
        await client.route(queue.topic)
        return find(client, queue)


def _known(address: str | None, queue: MessageQueue) -> str:
    if address is None:
        raise ConnectError(queue.broker_name, "no route of the name servers names this broker")
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
      client: an open client.
      queue: the queue; its topic has the namespace.
      subscription: which messages to receive.
      group: name of the group, with namespace.
      offset: offset of the first message.
      count: largest number of messages.
      suspend_s: seconds that the broker may hold the pull while there are no messages; 0: none.
      timeout_s: seconds to wait for the answer; more than `suspend_s`.
      commit_offset: the group's offset, to be committed with the pull; 0: none. It is not sent to
        slaves.
      broker_id: 0 for the master, or a slave while there is no master; otherwise the id that the
        last pull suggested, or any other of this broker name.
      is_subscription_sent: send the subscription with the pull; otherwise the broker uses that of
        the heartbeats.
      filter_server: address of a filter server to pull from instead of the broker, `host:port`.

    Raises:
      ServerError: the broker refused the pull.
      ConnectError: the broker cannot be reached, or the connection was lost.
      RequestTimeoutError: no answer arrived in time.
      BadAnswerError: the answer cannot be decoded.
      ConfigurationError: a body is compressed in a way that needs a package.
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
        if broker_id:
            address = broker_of(client, queue, broker_id)
        else:
            address = await _found(client, queue, reader_of)
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


class PullFailureLog:
    """Logs the failed pulls of one consumer.

    That a body cannot be decompressed without a package is logged once per topic. The pull is
    retried until the package is installed or the messages have expired; the group's offset does not
    move past them.

    Args:
      what: what failed, for the log.
    """

    def __init__(self, what: str = "a pull") -> None:
        self._what = what
        self._logged: set[str] = set()

    def log(self, queue: MessageQueue, error: ClientError, pause_s: float) -> None:
        """Log that a pull of this queue failed, and that the next one follows after `pause_s`."""
        if not isinstance(error, ConfigurationError):
            level = failure_level(error)
            text = "%s of %s failed, retrying in %g s: %s"
            logger.log(level, text, self._what, queue, pause_s, error)
        elif queue.topic not in self._logged:
            self._logged.add(queue.topic)
            logger.error(
                "messages of the topic %s cannot be read here, and wait at the broker: %s",
                queue.topic,
                error,
            )


async def max_offset(client: Client, queue: MessageQueue) -> int:
    """The offset of the next message to be stored in a queue. Raises: as `Client.request`."""
    check_queue(queue)
    return await _ask(client, queue, broker_of, requests.max_offset(queue))


async def min_offset(client: Client, queue: MessageQueue) -> int:
    """The offset of the first message that a queue still has. Raises: as `Client.request`."""
    check_queue(queue)
    return await _ask(client, queue, broker_of, requests.min_offset(queue))


async def search_offset(client: Client, queue: MessageQueue, timestamp_ms: int) -> int:
    """The offset of the first message stored at `timestamp_ms` (ms since 1970) or later.

    Raises: as `Client.request`.
    """
    check_queue(queue)
    check_time("timestamp_ms", timestamp_ms)
    request = requests.search_offset(queue, timestamp_ms)
    return await _ask(client, queue, broker_of, request)


async def initial_offset(
    client: Client, queue: MessageQueue, where: ConsumeFromWhere, since_ms: int | None
) -> int:
    """The offset at which a group without a committed one begins.

    Args:
      since_ms: of CONSUME_FROM_TIMESTAMP; None: half an hour ago.
    Raises: as `Client.request`.

    Source: RebalancePushImpl.computePullFromWhereWithException.
    """
    if where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET:
        return 0
    if where is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
        ago_ms = client.wall_ms() - 30 * 60 * 1000
        return await search_offset(client, queue, ago_ms if since_ms is None else since_ms)
    return await max_offset(client, queue)


async def committed_offset(client: Client, queue: MessageQueue, group: str) -> int | None:
    """The committed offset of a group, from the master or a slave in its place; None if none is.

    Raises: as `Client.request`.
    """
    check_queue(queue)
    request = requests.committed_offset(queue, group)
    return await _ask(client, queue, reader_of, request)


async def offset_at_master(client: Client, queue: MessageQueue, group: str) -> int | None:
    """The committed offset of a group, from the master only; None if none is.

    The broker does not answer 0 for a group that it does not know.

    Raises: as `Client.request`.
    """
    request = requests.committed_offset(queue, group, set_zero_if_not_found=False)
    return await _ask(client, queue, broker_of, request)


async def commit_offset(client: Client, queue: MessageQueue, group: str, offset: int) -> None:
    """Commit an offset of a group.

    A broker that has not received the first heartbeat does not know the group. Then a heartbeat is
    sent, and the request is repeated.

    Raises: as `Client.request`.
    """
    request = requests.commit_offset(queue, group, offset)
    try:
        await _ask(client, queue, reader_of, request)
    except ServerError as error:
        if error.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
            raise
        await client.heartbeat(error.address)
        await _ask(client, queue, reader_of, request)


async def _ask(
    client: Client,
    queue: MessageQueue,
    find: Callable[[Client, MessageQueue], str],
    request: QueueRequest[T],
) -> T:
    address = await _found(client, queue, find)
    answer = await client.request(address, request.code, request.header, ok=request.ok)
    with reading_answer(queue.broker_name):
        return request.read(answer)


class OffsetStore(Protocol):
    """The offsets of a consumer: in memory, and persisted."""

    def update(self, queue: MessageQueue, offset: int) -> None:
        """Set an offset in memory."""

    def known(self, queue: MessageQueue) -> int | None:
        """The offset in memory; None if there is none."""
        ...

    async def read(self, queue: MessageQueue) -> int | None:
        """The persisted offset; None if there is none. Raises: ClientError: it cannot be read."""
        ...

    async def persist(self, queues: Iterable[MessageQueue]) -> None:
        """Persist the offsets of these queues; a failure is logged, and the next call retries."""

    def remove(self, queue: MessageQueue) -> None:
        """Remove an offset from memory."""


class RemoteOffsetStore:
    """The offsets of a group, persisted by the brokers.

    Args:
      client: an open client.
      group: name of the group, with namespace.
    """

    def __init__(self, client: Client, group: str) -> None:
        self._client = client
        self._group = group
        self._offsets: dict[MessageQueue, int] = {}
        self._persisted: dict[MessageQueue, int] = {}

    def update(self, queue: MessageQueue, offset: int) -> None:
        """Set an offset in memory."""
        self._offsets[queue] = offset

    def known(self, queue: MessageQueue) -> int | None:
        """The offset in memory; None if there is none."""
        return self._offsets.get(queue)

    async def read(self, queue: MessageQueue) -> int | None:
        """The offset that the broker has."""
        return await committed_offset(self._client, queue, self._group)

    async def persist(self, queues: Iterable[MessageQueue]) -> None:
        """Commit the offsets that have changed, at all brokers at once, within COMMIT_S."""
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            offset = self._offsets.get(queue)
            if offset is not None and offset != self._persisted.get(queue):
                by_broker.setdefault(self._client.owner(queue), []).append(queue)
        async with TaskGroup() as group:
            for of_broker in by_broker.values():
                group.start_soon(self._commit_at_one_broker, of_broker)

    async def _commit_at_one_broker(self, queues: Sequence[MessageQueue]) -> None:
        """Commit some queues of one broker, a few at a time; failures are logged together."""
        failures: list[tuple[MessageQueue, str]] = []
        waiting = iter(queues)

        async def commit_some() -> None:
            for queue in waiting:
                # It may be removed, or move on, while others are committed.
                offset = self._offsets.get(queue)
                if offset is None:
                    continue
                try:
                    await commit_offset(self._client, queue, self._group, offset)
                    self._persisted[queue] = offset
                except ClientError as error:
                    failures.append((queue, str(error)))

        with anyio.move_on_after(COMMIT_S) as limit:
            async with TaskGroup() as group:
                for _ in range(min(COMMITS_IN_FLIGHT, len(queues))):
                    group.start_soon(commit_some)
        if limit.cancelled_caught:
            failures.append((queues[0], f"no answer of its broker within {COMMIT_S:g} s"))
        if failures:
            queue, reason = failures[0]
            logger.warning(
                "the offsets of %d queues of %s were not committed, and are committed again later:"
                " %s: %s",
                sum(self._persisted.get(each) != self._offsets.get(each) for each in queues),
                queue.broker_name,
                queue,
                reason,
            )

    def remove(self, queue: MessageQueue) -> None:
        """Remove an offset from memory."""
        self._offsets.pop(queue, None)
        self._persisted.pop(queue, None)


class LocalOffsetStore:
    """The offsets of a broadcasting consumer, which does not share them with its group.

    The file has the format of the Java client: `{"offsetTable":{{"brokerName":...}:5}}`.

    Args:
      path: path of the file; None: the offsets are kept in memory only.

    Raises: ConfigurationError: the file cannot be read as offsets.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._offsets: dict[MessageQueue, int] = {}
        self._kept: dict[MessageQueue, int] = {}
        if path is not None:
            self._kept = _read_offsets(path)

    def update(self, queue: MessageQueue, offset: int) -> None:
        """Set an offset in memory."""
        self._offsets[queue] = offset

    def known(self, queue: MessageQueue) -> int | None:
        """The offset in memory; None if there is none."""
        return self._offsets.get(queue)

    async def read(self, queue: MessageQueue) -> int | None:
        """The offset in the file."""
        return self._kept.get(queue)

    async def persist(self, queues: Iterable[MessageQueue]) -> None:
        """Replace the file; a reader never sees a half."""
        changed = {q: self._offsets[q] for q in queues if q in self._offsets}
        if self._path is None or changed.items() <= self._kept.items():
            self._kept.update(changed)
            return
        self._kept.update(changed)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(self._path, syncs=False) as file:
                file.write(fastjson.dumps({"offsetTable": self._kept}))
        except OSError as error:
            logger.warning("offsets were not written to %s: %s", self._path, error)

    def remove(self, queue: MessageQueue) -> None:
        """Remove an offset from memory."""
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
    """The map from queues to offsets in a JSON tree of RocketMQ.

    Args:
      tree: the decoded JSON.
      member: name of the map's member.

    Raises: RemoteProtocolError: the member is not such a map.
    """
    try:
        table = tree.get(member) if isinstance(tree, dict) else None
        return {
            msgspec.convert(dict(queue), MessageQueue, strict=False): int(offset)
            for queue, offset in (table or {}).items()
        }
    except (msgspec.ValidationError, TypeError, ValueError) as error:
        raise RemoteProtocolError(f"not a table of offsets: {error}") from error
