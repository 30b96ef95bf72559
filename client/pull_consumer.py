"""The pull consumer: the program chooses the queues, the positions and the pace.

Java counterpart: DefaultLitePullConsumer with `assign`, DefaultMQPullConsumer. The defaults are the
same.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final, Unpack

import anyio
import anyio.lowlevel
import msgspec

from ..remoting.bodies import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    MessageModel,
    MessageQueue,
    SubscriptionData,
)
from .client import Client
from .consumer_options import PULL_BATCH_SIZE, PULL_TIMEOUT_S, ConsumerConfig, ConsumerOptions
from .core.queue_requests import PullStatus
from .core.routes import subscribe_queues
from .core.subscription import FilterClass, MessageSelector, build_subscription
from .core.topics import check_consumer_group
from .errors import ClientError, ConfigurationError
from .members import GroupMember
from .message import ReceivedMessage
from .options import split_options
from .participant import Participant
from .pulling import (
    PullFailureLog,
    RemoteOffsetStore,
    committed_offset,
    max_offset,
    min_offset,
    pull,
    search_offset,
)
from .sql_check import sql_refusal
from .tracing import consumer_trace

logger = logging.getLogger(__name__)

POLL_TIMEOUT_S: Final = 5.0
"""RocketMQ: pollTimeoutMillis 5,000."""
SUSPEND_S: Final = 20.0
"""Time that a broker holds a pull. RocketMQ: brokerSuspendMaxTimeMillis 20,000."""
PULL_RETRY_S: Final = 1.0
"""Pause after a failed pull. RocketMQ: pullTimeDelayMillsWhenException 1,000."""
LEAVE_S: Final = 1.0
"""Time limit for leaving the group after last commits that took their whole time."""
AUTO_COMMIT_S: Final = 5.0
"""RocketMQ: autoCommitIntervalMillis 5,000."""


class PullConsumerOptions(ConsumerOptions, total=False):
    """Keyword arguments of a pull consumer, in addition to ConsumerOptions and ClientOptions.

    Keys:
      auto_commit: commit the positions of the queues periodically, and when the consumer is closed;
        default True.
      auto_commit_s: seconds between automatic commits; default 5.
    """

    auto_commit: bool
    auto_commit_s: float


class PullConsumerConfig(ConsumerConfig, frozen=True, kw_only=True):
    """The values of PullConsumerOptions without those of ClientOptions."""

    auto_commit: bool = True
    auto_commit_s: float = AUTO_COMMIT_S
    suspend_s: float = SUSPEND_S


class Pulled(msgspec.Struct, frozen=True):
    """The result of one `pull`.

    Attributes:
      status: FOUND, or the reason why there are no messages.
      messages: the messages that match the selector.
      next_offset: offset of the next pull.
      min_offset: offset of the first message in the queue.
      max_offset: offset of the next message to be stored in the queue.
    """

    status: PullStatus
    messages: list[ReceivedMessage]
    next_offset: int
    min_offset: int
    max_offset: int


class _Assigned:
    """The state of an assigned queue."""

    __slots__ = (
        "broker_id",
        "fetched",
        "is_paused",
        "next_offset",
        "position",
        "refusal",
        "scope",
        "wake",
    )

    def __init__(self) -> None:
        self.fetched: deque[ReceivedMessage] = deque()
        self.is_paused = False
        # Offset of the next message that `poll` returns; None until the first offset is known.
        self.position: int | None = None
        # Offset of the next message to fetch.
        self.next_offset: int | None = None
        # Id of the broker that the last pull suggested; 0: the master.
        self.broker_id = 0
        self.scope = anyio.CancelScope()
        self.wake = anyio.Event()
        # Why the broker refuses the subscription, so that there are no more pulls.
        self.refusal: ConfigurationError | None = None


class PullConsumer(Participant):
    """Consumes queues that the program chooses, at its own pace.

    Use, under trio or asyncio::

        async with PullConsumer(url, group="g") as consumer:
            consumer.assign(await consumer.queues("Topic"))
            messages = await consumer.poll()

    Args:
      client: the URL of a cluster, or an open Client to share with other objects.
      group: the consumer group whose offsets it reads and commits.
      options: see PullConsumerOptions; those of ClientOptions are allowed only with a URL.

    Raises: ConfigurationError: the URL, the group's name or an option is invalid.
    """

    def __init__(
        self, client: str | Client, *, group: str, **options: Unpack[PullConsumerOptions]
    ) -> None:
        self._config, client_options = split_options(PullConsumerConfig, options)
        super().__init__(client, client_options, group, check_consumer_group)
        self._trace = consumer_trace(self._client, self._group, self._config.trace)
        self._traces = self._trace.dispatcher if self._trace else None
        self._offsets = RemoteOffsetStore(self._client, self._group)
        self._assigned: dict[MessageQueue, _Assigned] = {}
        self._subscriptions: dict[str, SubscriptionData] = {}
        self._pull_failures = PullFailureLog()
        self._member = GroupMember(self._group, self._describe, lambda: list(self._subscriptions))

    def _describe(self) -> ConsumerData:
        return ConsumerData(
            group_name=self._group,
            consume_type=ConsumeType.CONSUME_ACTIVELY,
            message_model=MessageModel.CLUSTERING,
            consume_from_where=self._config.consume_from_where,
            subscription_data_set=list(self._subscriptions.values()),
        )

    async def _before_joining(self) -> None:
        self._arrival = anyio.Event()
        self._commits = anyio.CancelScope()

    async def _after_joining(self) -> None:
        if self._config.auto_commit:
            self._client.start_soon(self._auto_commit)

    async def _leave(self) -> None:
        self._commits.cancel()
        for assigned in self._assigned.values():
            assigned.scope.cancel()
        # Shielded from cancellation: messages that `poll` returned must not be consumed again.
        with anyio.CancelScope(shield=True):
            leave_s = self._client.timeout_s
            if self._config.auto_commit:
                with anyio.move_on_after(self._client.timeout_s) as limit:
                    await self.commit()
                if limit.cancelled_caught:
                    # A broker hangs; the others answer at once.
                    leave_s = min(leave_s, LEAVE_S)
            with anyio.move_on_after(leave_s):
                await super()._leave()

    # Queues

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues of a topic.

        Raises:
          RouteNotFoundError: no name server knows the topic.
          ConnectError: no name server answered.
        """
        full = self._client.with_namespace(topic)
        client = self._client
        route = await client.route(full, wait_s=client.start_wait_s, is_missing_ok=True)
        return list(subscribe_queues(full, route))

    def assign(self, queues: Iterable[MessageQueue], selector: MessageSelector = "*") -> None:
        """Fetch from these queues and from no others.

        Queues that were assigned before keep their positions.

        Args:
          queues: the queues; an empty iterable stops fetching.
          selector: which messages of their topics to receive: tags ("A || B"), Tag or Sql; "*"
            selects all.

        Raises:
          ConfigurationError: the selector is invalid.
          ClosedError: the consumer is not open.
          ForkedError: the consumer was opened in the parent of this process.
        """
        self._client.check_open()
        wanted = dict.fromkeys(queues)
        for queue in wanted:
            self._subscribe(queue.topic, selector)
        for queue, assigned in list(self._assigned.items()):
            if queue not in wanted or assigned.refusal is not None:
                self._assigned.pop(queue).scope.cancel()
        for queue in wanted:
            if queue not in self._assigned:
                self._start(queue, _Assigned())
        self._client.heartbeat_soon()

    def _start(self, queue: MessageQueue, assigned: _Assigned) -> None:
        self._assigned[queue] = assigned
        self._client.start_soon(self._fetch, queue, assigned)

    def _subscribe(self, topic: str, selector: MessageSelector) -> SubscriptionData:
        known = self._subscriptions.get(topic)
        made = self._subscribe_once(topic, selector)
        if known is not None and known.sub_string == made.sub_string:
            return known
        self._subscriptions[topic] = made
        return made

    @property
    def assignment(self) -> list[MessageQueue]:
        """The assigned queues, sorted."""
        return sorted(self._assigned)

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Stop returning messages of these queues from `poll`, until `resume`.

        Raises: ConfigurationError: a queue is not assigned.
        """
        for queue in queues:
            self._of(queue).is_paused = True

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Return messages of these queues from `poll` again.

        Raises: ConfigurationError: a queue is not assigned.
        """
        for queue in queues:
            assigned = self._of(queue)
            assigned.is_paused = False
            assigned.wake.set()
        self._arrival.set()

    def _of(self, queue: MessageQueue) -> _Assigned:
        assigned = self._assigned.get(queue)
        if assigned is None:
            raise ConfigurationError(f"{queue} is not assigned; call `assign` first")
        return assigned

    # Positions

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue at an offset; messages that were fetched ahead are dropped.

        Args:
          queue: an assigned queue.
          offset: offset of the next message, >= 0.

        Raises: ConfigurationError: the queue is not assigned, or the offset is negative.
        """
        if offset < 0:
            raise ConfigurationError(f"the offset {offset} is negative: give one from 0 on")
        old = self._of(queue)
        old.scope.cancel()
        new = _Assigned()
        new.is_paused = old.is_paused
        new.position = new.next_offset = offset
        self._start(queue, new)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Continue at the first message that the queue still has.

        Raises: ClientError: the broker cannot be asked; and as `seek`.
        """
        self.seek(queue, await min_offset(self._client, queue))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Continue at the end of the queue, with the next message that is stored.

        Raises: ClientError: the broker cannot be asked; and as `seek`.
        """
        self.seek(queue, await max_offset(self._client, queue))

    async def seek_to_time(self, queue: MessageQueue, timestamp_ms: int) -> None:
        """Continue at the first message that was stored at a time or later.

        Args:
          queue: an assigned queue.
          timestamp_ms: the time, in milliseconds since 1970.

        Raises: ClientError: the broker cannot be asked; and as `seek`.
        """
        self.seek(queue, await search_offset(self._client, queue, timestamp_ms))

    async def seek_to_committed(self, queue: MessageQueue) -> None:
        """Continue at the committed offset of the group, or where a new group begins.

        Raises: ClientError: the broker cannot be asked; and as `seek`.
        """
        self.seek(queue, await self._begin(queue))

    def position(self, queue: MessageQueue) -> int | None:
        """The offset of the next message that `poll` returns; None if it is not known yet.

        Raises: ConfigurationError: the queue is not assigned.
        """
        return self._of(queue).position

    async def committed(self, queue: MessageQueue) -> int | None:
        """The committed offset of the group; None if it has not committed one.

        Raises: ClientError: the broker cannot be asked.
        """
        return await committed_offset(self._client, queue, self._group)

    async def begin_offset(self, queue: MessageQueue) -> int:
        """The offset of the first message that the queue still has.

        Raises: ClientError: the broker cannot be asked.
        """
        return await min_offset(self._client, queue)

    async def end_offset(self, queue: MessageQueue) -> int:
        """The offset of the next message to be stored in the queue.

        Raises: ClientError: the broker cannot be asked.
        """
        return await max_offset(self._client, queue)

    async def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The offset of the first message that was stored at a time or later.

        Args:
          queue: the queue.
          timestamp_ms: the time, in milliseconds since 1970.

        Raises: ClientError: the broker cannot be asked.
        """
        return await search_offset(self._client, queue, timestamp_ms)

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Commit offsets of the group; a failure is logged, and the next commit tries it again.

        Args:
          offsets: for each queue the offset of the next message to consume; None: the positions of
            all assigned queues.
        """
        if offsets is None:
            offsets = {q: a.position for q, a in self._assigned.items() if a.position is not None}
        for queue, offset in offsets.items():
            self._offsets.update(queue, offset)
        await self._offsets.persist(offsets)

    async def _auto_commit(self) -> None:
        with self._commits:
            while True:
                await anyio.sleep(self._config.auto_commit_s)
                await self.commit()

    # Messages

    async def poll(
        self, *, count_max: int = PULL_BATCH_SIZE, timeout_s: float = POLL_TIMEOUT_S
    ) -> list[ReceivedMessage]:
        """Return messages of the assigned queues, and move the positions past them.

        The messages of each queue are in order.

        Args:
          count_max: largest number of messages, >= 1.
          timeout_s: seconds to wait for the first message, >= 0.

        Returns: the messages; an empty list if none arrived in time.
        Raises:
          ConfigurationError: a broker refuses the SQL92 expression of an assigned queue.
          ClosedError: the consumer is not open.
          ForkedError: the consumer was opened in the parent of this process.
        """
        self._client.check_open()
        taken = self._take(count_max)
        with anyio.move_on_after(timeout_s):
            while not taken:
                if self._arrival.is_set():
                    self._arrival = anyio.Event()
                await self._arrival.wait()
                taken = self._take(count_max)
        if self._trace is not None:
            self._trace.on_polled(taken)
        return taken

    def _take(self, count_max: int) -> list[ReceivedMessage]:
        taken: list[ReceivedMessage] = []
        for queue, assigned in list(self._assigned.items()):
            if assigned.refusal is not None:
                raise assigned.refusal
            fetched = assigned.fetched
            while fetched and len(taken) < count_max and not assigned.is_paused:
                message = fetched.popleft()
                assigned.position = message.queue_offset + 1
                taken.append(message)
                assigned.wake.set()
            if taken and taken[-1].queue == queue:
                # Move the queue to the end, so that the next poll begins with another one.
                self._assigned[queue] = self._assigned.pop(queue)
            if len(taken) >= count_max:
                break
        return taken

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        count: int = PULL_BATCH_SIZE,
        selector: MessageSelector = "*",
        timeout_s: float = 0.0,
    ) -> Pulled:
        """Pull once from any queue; this does not change assignment or positions.

        Args:
          queue: the queue; it need not be assigned.
          offset: offset of the first message.
          count: largest number of messages, >= 1.
          selector: which messages to receive: tags ("A || B"), Tag or Sql; "*" selects all.
          timeout_s: seconds that the broker may wait for a message; 0: do not wait.

        Raises:
          ConfigurationError: the selector is invalid.
          ClientError: the pull failed.
        """
        subscription = self._subscribe_once(queue.topic, selector)
        result = await pull(
            self._client,
            queue,
            subscription,
            self._group,
            offset,
            count=count,
            suspend_s=timeout_s,
            timeout_s=timeout_s + self._client.timeout_s,
            is_subscription_sent=True,
        )
        topic = self._client.without_namespace(queue.topic)
        return Pulled(
            result.status,
            [ReceivedMessage(ext, queue, topic) for ext in result.messages],
            result.next_begin_offset,
            result.min_offset,
            result.max_offset,
        )

    def _subscribe_once(self, topic: str, selector: MessageSelector) -> SubscriptionData:
        if isinstance(selector, FilterClass):
            raise ConfigurationError(
                "only push consumers support a FilterClass: use a PushConsumer, or tags or Sql"
            )
        try:
            return build_subscription(topic, selector, sub_version=self._client.wall_ms())
        except ValueError as error:
            raise ConfigurationError(str(error)) from None

    async def _begin(self, queue: MessageQueue) -> int:
        kept = await self.committed(queue)
        if kept is not None:
            return kept
        if self._config.consume_from_where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET:
            return await min_offset(self._client, queue)
        return await max_offset(self._client, queue)

    async def _fetch(self, queue: MessageQueue, assigned: _Assigned) -> None:
        with assigned.scope:
            while True:
                try:
                    await self._fetch_once(queue, assigned)
                except ClientError as error:
                    await anyio.lowlevel.checkpoint_if_cancelled()
                    assigned.refusal = sql_refusal(self._subscriptions[queue.topic], error)
                    if assigned.refusal is not None:
                        self._arrival.set()  # `poll` raises it
                        return
                    assigned.broker_id = 0
                    self._pull_failures.log(queue, error, PULL_RETRY_S)
                    self._client.refresh_soon()
                    await anyio.sleep(PULL_RETRY_S)

    async def _fetch_once(self, queue: MessageQueue, assigned: _Assigned) -> None:
        config = self._config
        if assigned.next_offset is None:
            assigned.position = assigned.next_offset = await self._begin(queue)
        while assigned.is_paused or len(assigned.fetched) >= config.pull_threshold_for_queue:
            assigned.wake = anyio.Event()
            await assigned.wake.wait()
        result = await pull(
            self._client,
            queue,
            self._subscriptions[queue.topic],
            self._group,
            assigned.next_offset,
            count=config.pull_batch_size,
            suspend_s=config.suspend_s,
            timeout_s=config.suspend_s + PULL_TIMEOUT_S - SUSPEND_S,
            broker_id=assigned.broker_id,
            is_subscription_sent=True,
        )
        assigned.broker_id = result.suggest_which_broker_id
        if result.status is PullStatus.OFFSET_ILLEGAL:
            logger.warning(
                "%s: the queue does not have the offset %d (any more); continuing at %d",
                queue,
                assigned.next_offset,
                result.next_begin_offset,
            )
            assigned.fetched.clear()
            assigned.position = result.next_begin_offset
        assigned.next_offset = result.next_begin_offset
        if result.messages:
            topic = self._client.without_namespace(queue.topic)
            assigned.fetched.extend(ReceivedMessage(m, queue, topic) for m in result.messages)
            self._arrival.set()
        elif not assigned.fetched:
            # All messages up to here were filtered out by the broker.
            assigned.position = result.next_begin_offset
