"""Offsets of queues: their ends, what a group has committed, and the offset stores of consumers.

Java counterparts: MQAdminImpl, RemoteBrokerOffsetStore, LocalFileOffsetStore.
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
from ...remoting.bodies import ConsumeFromWhere, MessageQueue
from ...remoting.errors import RemoteProtocolError
from ...remoting.response_codes import ResponseCode
from ..checks.queue_check import check_queue, check_time
from ..connection.client import Client
from ..core import queue_requests as requests
from ..core.queue_requests import QueueRequest
from ..errors import ClientError, ConfigurationError, ServerError, reading_answer
from ..tasks.task_group import TaskGroup
from .pulls import broker_of, found, reader_of

logger = logging.getLogger(__name__)

COMMIT_S: Final = 3.0
"""Time limit of a round of commits at one broker. RocketMQ: mqClientApiTimeout, 3,000 ms, each."""

COMMITS_IN_FLIGHT: Final = 8
"""Commits that a broker gets at once: enough for 1,024 queues within a second over 5 ms."""

T = TypeVar("T")


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
    address = await found(client, queue, find)
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
        """Replace the file; a reader never sees a part of it."""
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
