"""The pull consumer: the program asks for messages at its own pace, and decides what to commit.

It subscribes to topics, and shares their queues with the other members of its group, or it chooses
the queues itself.

Java counterpart: DefaultLitePullConsumer, DefaultMQPullConsumer. The defaults are the same.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Never, Unpack

import anyio
import anyio.lowlevel

from ...remoting.bodies import (
    ConsumerData,
    ConsumeType,
    MessageModel,
    MessageQueue,
    SubscriptionData,
)
from ...remoting.codec import RemotingCommand
from ...remoting.request_codes import RequestCode
from ..checks.misuse import explained, knows_elsewhere
from ..checks.other_names import PULL_CONSUMER
from ..checks.queue_check import (
    check_offset,
    check_offsets,
    check_place,
    check_queues,
    queues_of,
    refuse_queue,
    topics_of,
)
from ..connection.client import Client
from ..connection.connection import Connection
from ..connection.grpc import refuse_by
from ..connection.members import GroupMember
from ..connection.options import split_options
from ..connection.participant import Participant, configured, subscribed_to
from ..core.routes import subscribe_queues
from ..core.subscription import MessageSelector, check_subscriptions
from ..core.topics import check_consumer_group, check_topic
from ..errors import ClosedError, ConfigurationError
from ..messages.message import ReceivedMessage
from ..options.consumer_options import PULL_BATCH_SIZE
from ..options.pull_options import (
    POLL_TIMEOUT_S,
    PullConsumerConfig,
    PullConsumerOptions,
    Pulled,
    check_poll,
)
from ..options.push_options import LEAVE_S
from ..sending.tracing import consumer_trace
from .offsets import RemoteOffsetStore, committed_offset, max_offset, min_offset, search_offset
from .poll_puller import PolledQueue, PollPuller
from .pulls import pull
from .rebalance import PullRebalance, notify_listener

__all__ = ["PullConsumer", "PullConsumerOptions", "Pulled"]


@knows_elsewhere(PULL_CONSUMER)
class PullConsumer(Participant):
    """Consumes at the pace of the program, which asks for messages by `poll`.

    Use, under trio or asyncio::

        async with PullConsumer(url, group="g") as consumer:
            consumer.subscribe("Topic")
            while True:
                for message in await consumer.poll(32):
                    ...

    `subscribe` shares the queues of topics among the members of the group; with `assign` the
    program chooses its queues itself.

    The messages of a `poll` count as consumed when the next one begins; from then on they are
    committed, within `auto_commit_s`. At the normal end of the `async with` block the messages of
    the last `poll` are committed, too. If the block ends by an exception, or the program crashes,
    they come again. Programs whose tasks share one consumer turn `auto_commit` off, and call
    `commit`.

    Args:
      client: the URL of a cluster, or an open Client to share with other objects.
      group: the consumer group whose offsets it reads and commits.
      options: see PullConsumerOptions; those of ClientOptions are allowed only with a URL.

    Raises: ConfigurationError: the URL, the group's name or an option is invalid.
    """

    @explained
    def __init__(
        self, client: str | Client, *, group: str, **options: Unpack[PullConsumerOptions]
    ) -> None:
        self._config, client_options = split_options(PullConsumerConfig, options)
        super().__init__(client, client_options, group, check_consumer_group)
        refuse_by(self._client.grpc, "a PullConsumer", "use a SimpleConsumer or a PushConsumer")
        self._trace = consumer_trace(self._client, self._group, self._config.trace)
        self._traces = self._trace.dispatcher if self._trace else None
        self._offsets = RemoteOffsetStore(self._client, self._group)
        self._assigned: dict[MessageQueue, PolledQueue] = {}
        self._subscriptions: dict[str, SubscriptionData] = {}
        self._puller = PollPuller(
            self._client, self._group, self._config, self._subscriptions, self._on_arrival
        )
        self._rebalance = PullRebalance(
            self._client,
            self._group,
            self._config.strategy,
            self._config.rebalance_s,
            self._assign_topic,
        )
        self._has_chosen = False
        self._has_failed = False
        self._has_left = False
        # Queues that were given up, and how far they were consumed, until that is committed.
        self._revoked: dict[MessageQueue, int | None] = {}
        self._revoking = anyio.Lock()
        self._member = GroupMember(
            self._group,
            self._describe,
            lambda: list(self._subscriptions),
            processors={RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._on_ids_changed},
            on_routes_changed=self._rebalance.rebalance_soon,
        )

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
        self._scopes: list[anyio.CancelScope] = []

    async def _after_joining(self) -> None:
        self._client.start_soon(self._until_left, self._rebalance.run)
        if self._config.auto_commit:
            self._client.start_soon(self._until_left, self._auto_commit)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._has_failed = kind is not None
        await super().__aexit__(kind, error, traceback)

    async def _leave(self) -> None:
        self._has_left = True
        self._arrival.set()
        for scope in self._scopes:
            scope.cancel()
        for assigned in self._assigned.values():
            assigned.scope.cancel()
        # Shielded from cancellation: messages that were consumed must not come again.
        with anyio.CancelScope(shield=True):
            leave_s = self._client.timeout_s
            with anyio.move_on_after(self._client.timeout_s) as limit:
                await self._commit_revoked()
                if self._config.auto_commit:
                    await (self._commit_done() if self._has_failed else self.commit())
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
          ClosedError: the consumer is not open.
        """
        self._check_open()
        client = self._client
        full = client.with_namespace(topic)
        route = await client.route(full, wait_s=client.start_wait_s, is_missing_ok=True)
        return list(subscribe_queues(full, route))

    def subscribe(
        self,
        topics: str | Iterable[str] | Mapping[str, MessageSelector],
        selector: MessageSelector = "*",
    ) -> None:
        """Receive from topics from now on, as a member of the group.

        The queues of the topics are shared among the members, and assigned anew when members join
        or leave. Topics that are subscribed already stay so; they may get another selector.

        A queue that goes to another member is committed as far as it was consumed; messages of the
        last `poll` may be received by the other member, too.

        Args:
          topics: one topic, several, or a dict with a selector for each.
          selector: which messages of the topics to receive, unless `topics` says it: tags
            ("A || B"), Tag or Sql; "*" selects all.

        Raises:
          ConfigurationError: a topic or a selector is invalid, or the program assigned queues.
          ClosedError: the consumer is not open.
          ForkedError: the consumer was opened in the parent of this process.
        """
        self._check_open()
        if self._assigned and not self._rebalance.topics:
            raise ConfigurationError(
                "the program assigned queues to the consumer: use either `assign` or `subscribe`"
            )
        if not isinstance(topics, Mapping):
            topics = dict.fromkeys(topics_of(topics), selector)
        configured(check_subscriptions, topics)
        made = {}
        for topic, each in topics.items():
            configured(check_topic, topic)
            full = self._client.with_namespace(topic)
            made[full] = subscribed_to(full, each, self._client.wall_ms())
        self._subscriptions.update(made)
        self._has_chosen = True
        self._rebalance.add(made)
        self._client.heartbeat_soon()

    def unsubscribe(self, topic: str) -> None:
        """Receive no more messages of a topic; what was consumed of it is committed.

        Raises:
          ConfigurationError: it is not subscribed.
          ClosedError: the consumer is not open.
          ForkedError: the consumer was opened in the parent of this process.
        """
        self._check_open()
        full = self._client.with_namespace(topic)
        if not self._rebalance.remove(full):
            raise ConfigurationError(f"the consumer does not subscribe to the topic {topic}")
        lost = [queue for queue in self._assigned if queue.topic == full]
        self._drop(lost)
        self._client.start_soon(self._commit_revoked)
        del self._subscriptions[full]
        self._client.heartbeat_soon()

    async def _until_left(self, work: Callable[[], Awaitable[None]]) -> None:
        scope = anyio.CancelScope()
        self._scopes.append(scope)
        with scope:
            await work()

    async def _on_ids_changed(
        self, connection: Connection, command: RemotingCommand
    ) -> RemotingCommand | None:
        self._rebalance.rebalance_soon()
        return None

    async def _assign_topic(self, topic: str, mine: Sequence[MessageQueue]) -> None:
        """Take the queues of a topic that are this member's now, and give up the others."""
        wanted = set(mine)
        lost = [q for q in self._assigned if q.topic == topic and q not in wanted]
        self._drop(lost)
        await self._commit_revoked()
        gained = [q for q in mine if q not in self._assigned]
        if gained and topic in self._subscriptions:
            notify_listener(self._config.listener, "on_assign", gained)
            for queue in gained:
                self._start(queue, PolledQueue())

    def _drop(self, queues: Sequence[MessageQueue]) -> None:
        for queue in queues:
            assigned = self._assigned.pop(queue)
            assigned.scope.cancel()
            self._revoked[queue] = assigned.done

    async def _commit_revoked(self) -> None:
        """Commit how far the queues that were dropped were consumed."""
        async with self._revoking:
            revoked = dict(self._revoked)
            if revoked and self._config.auto_commit:
                await self._persist({q: done for q, done in revoked.items() if done is not None})
            for queue in revoked:
                del self._revoked[queue]
                self._offsets.remove(queue)
            if revoked:
                notify_listener(self._config.listener, "on_revoke", list(revoked))

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
        self._check_open()
        if self._rebalance.topics:
            raise ConfigurationError(
                "the consumer gets its queues by `subscribe`: use either `subscribe` or `assign`"
            )
        self._has_chosen = True
        wanted = dict.fromkeys(queues)
        check_queues(wanted)
        for queue in wanted:
            self._subscribe(queue.topic, selector)
        for queue, assigned in list(self._assigned.items()):
            if queue not in wanted or assigned.refusal is not None:
                self._assigned.pop(queue).scope.cancel()
        for queue in wanted:
            if queue not in self._assigned:
                self._start(queue, PolledQueue())
        self._client.heartbeat_soon()

    def _start(self, queue: MessageQueue, assigned: PolledQueue) -> None:
        self._assigned[queue] = assigned
        self._client.start_soon(self._puller.pull_queue, queue, assigned)

    def _subscribe(self, topic: str, selector: MessageSelector) -> None:
        known = self._subscriptions.get(topic)
        made = subscribed_to(topic, selector, self._client.wall_ms())
        if known is None or known.sub_string != made.sub_string:
            self._subscriptions[topic] = made

    @property
    def assignment(self) -> list[MessageQueue]:
        """The assigned queues, sorted."""
        return sorted(self._assigned)

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Stop returning messages of these queues from `poll`, until `resume`.

        Raises: ConfigurationError: a queue is not assigned.
        """
        for queue in queues_of(queues, "pause"):
            self._of(queue).is_paused = True

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Return messages of these queues from `poll` again.

        Raises: ConfigurationError: a queue is not assigned.
        """
        for queue in queues_of(queues, "resume"):
            assigned = self._of(queue)
            assigned.is_paused = False
            assigned.wake.set()
        self._arrival.set()

    def _of(self, queue: MessageQueue) -> PolledQueue:
        assigned = self._assigned.get(queue)
        if assigned is None:
            refuse_queue(queue, is_subscribed=bool(self._rebalance.topics))
        return assigned

    # Positions

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue at an offset; messages that were fetched ahead are dropped.

        Args:
          queue: an assigned queue.
          offset: offset of the next message, >= 0.

        Raises: ConfigurationError: the queue is not assigned, or the offset is negative.
          ClosedError: the consumer is not open.
        """
        self._check_open()
        check_offset(offset)
        old = self._of(queue)
        old.scope.cancel()
        self._start(queue, PolledQueue(offset, is_paused=old.is_paused))

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Continue at the first message that the queue still has.

        Raises: ClientError: the broker cannot be asked; and as `seek`.
        """
        self._check_open()
        self.seek(queue, await min_offset(self._client, queue))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Continue at the end of the queue, with the next message that is stored.

        Raises: ClientError: the broker cannot be asked; and as `seek`.
        """
        self._check_open()
        self.seek(queue, await max_offset(self._client, queue))

    async def seek_to_time(self, queue: MessageQueue, timestamp_ms: int) -> None:
        """Continue at the first message that was stored at a time or later.

        Args:
          queue: an assigned queue.
          timestamp_ms: the time, in milliseconds since 1970.

        Raises: ClientError: the broker cannot be asked; and as `seek`.
        """
        self._check_open()
        self.seek(queue, await search_offset(self._client, queue, timestamp_ms))

    async def seek_to_committed(self, queue: MessageQueue) -> None:
        """Continue at the committed offset of the group, or where a new group begins.

        Raises: ClientError: the broker cannot be asked; and as `seek`.
        """
        self._check_open()
        self.seek(queue, await self._puller.first_offset(queue))

    def position(self, queue: MessageQueue) -> int | None:
        """The offset of the next message that `poll` returns; None if it is not known yet.

        Raises: ConfigurationError: the queue is not assigned.
        """
        return self._of(queue).position

    async def committed(self, queue: MessageQueue) -> int | None:
        """The committed offset of the group; None if it has not committed one.

        Raises: ClientError: the broker cannot be asked. ClosedError: the consumer is not open.
        """
        self._check_open()
        return await committed_offset(self._client, queue, self._group)

    async def begin_offset(self, queue: MessageQueue) -> int:
        """The offset of the first message that the queue still has.

        Raises: ClientError: the broker cannot be asked. ClosedError: the consumer is not open.
        """
        self._check_open()
        return await min_offset(self._client, queue)

    async def end_offset(self, queue: MessageQueue) -> int:
        """The offset of the next message to be stored in the queue.

        Raises: ClientError: the broker cannot be asked. ClosedError: the consumer is not open.
        """
        self._check_open()
        return await max_offset(self._client, queue)

    async def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The offset of the first message that was stored at a time or later.

        Args:
          queue: the queue.
          timestamp_ms: the time, in milliseconds since 1970.

        Raises: ClientError: the broker cannot be asked. ClosedError: the consumer is not open.
        """
        self._check_open()
        return await search_offset(self._client, queue, timestamp_ms)

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Commit offsets of the group; a failure is logged, and the next commit tries it again.

        Args:
          offsets: for each queue the offset of the next message to consume; None: the positions of
            all assigned queues.

        Raises: ConfigurationError: no queues and offsets. ClosedError: the consumer is not open.
        """
        self._check_open()
        if offsets is None:
            offsets = {q: a.position for q, a in self._assigned.items() if a.position is not None}
        check_offsets(offsets)
        for queue, offset in offsets.items():
            if queue in self._assigned:
                # An automatic commit must not take it back.
                self._assigned[queue].done = offset
        await self._persist(offsets)

    async def _persist(self, offsets: Mapping[MessageQueue, int]) -> None:
        for queue, offset in offsets.items():
            self._offsets.update(queue, offset)
        await self._offsets.persist(offsets)

    async def _commit_done(self) -> None:
        await self._persist({q: a.done for q, a in self._assigned.items() if a.done is not None})

    async def _auto_commit(self) -> None:
        while True:
            await anyio.sleep(self._config.auto_commit_s)
            await self._commit_done()

    # Messages

    async def poll(
        self, /, max: int = PULL_BATCH_SIZE, *, timeout_s: float = POLL_TIMEOUT_S, **unknown: Never
    ) -> list[ReceivedMessage]:
        """Return messages of the assigned queues, and move the positions past them.

        The messages of each queue are in order. Those of the `poll` before count as consumed now.

        Args:
          max: largest number of messages, >= 1.
          timeout_s: seconds to wait for the first message, >= 0; `math.inf`: until there is one.

        Returns: the messages; an empty list if none arrived in time.
        Raises:
          ConfigurationError: an argument is out of range, the consumer neither subscribes to a
            topic nor has queues, or a broker refuses the SQL92 expression of an assigned queue.
          ClosedError: the consumer is not open.
          ForkedError: the consumer was opened in the parent of this process.
        """
        self._check_open()
        check_poll(max, timeout_s, unknown, has_queues=self._has_chosen)
        for assigned in self._assigned.values():
            assigned.done = assigned.position
        taken = self._take(max)
        with anyio.move_on_after(timeout_s):
            while not taken:
                if self._arrival.is_set():
                    self._arrival = anyio.Event()
                await self._arrival.wait()
                taken = self._take(max)
        if self._trace is not None:
            self._trace.on_polled(taken)
        return taken

    def _on_arrival(self) -> None:
        self._arrival.set()

    def _take(self, count_max: int) -> list[ReceivedMessage]:
        if self._has_left:
            raise ClosedError("the consumer is closed: create another one")
        taken: list[ReceivedMessage] = []
        for queue, assigned in list(self._assigned.items()):
            if assigned.refusal is not None:
                raise assigned.refusal
            waiting = assigned.messages
            while waiting and len(taken) < count_max and not assigned.is_paused:
                message = waiting.popleft()
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
          ClosedError: the consumer is not open.
        """
        self._check_open()
        check_place(queue, offset)
        subscription = subscribed_to(queue.topic, selector, self._client.wall_ms())
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
