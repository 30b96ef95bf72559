"""Consuming as a member of a group: queues are shared out, messages come by themselves.

Every queue that the member has is pulled by one task, into a ProcessQueue; what is there is
handed out to those that iterate, or to handlers; what is settled moves the group's offset on.

Java counterpart: DefaultMQPushConsumer, DefaultMQPushConsumerImpl, PullMessageService,
ConsumeMessageConcurrentlyService, ConsumeMessageOrderlyService.
"""

from __future__ import annotations

import inspect
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Unpack

import anyio
import anyio.lowlevel

from ..common import message_properties as names
from ..common.topic_names import retry_topic
from ..remoting.bodies import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    MessageModel,
    MessageQueue,
    SubscriptionData,
)
from ..remoting.codec import RemotingCommand
from ..remoting.message import MessageExt
from ..remoting.request_codes import RequestCode
from ..remoting.response_codes import ResponseCode
from . import clock, reports
from .client import Client
from .connection import Connection
from .consume_result_service import ConsumeResultService
from .consumer_options import PULL_TIMEOUT_S
from .core.process_queue import ProcessQueue
from .core.queue_requests import PullStatus
from .core.subscription import FilterClass, MessageSelector, build_subscription
from .core.topics import check_consumer_group, check_topic, is_retry_topic
from .errors import (
    ClientError,
    ClosedError,
    ConfigurationError,
    HandlerTimeoutError,
    RouteNotFoundError,
    ServerError,
)
from .filter_servers import FilterServers
from .interceptor import tell_handed_out
from .members import GroupMember
from .options import split_options
from .participant import Participant, configured
from .pulling import (
    LocalOffsetStore,
    OffsetStore,
    PullResult,
    PullTroubles,
    RemoteOffsetStore,
    max_offset,
    pull,
    search_offset,
)
from .push_options import (
    CONCURRENCY,
    PULL_RETRY_S,
    REBALANCE_RETRY_S,
    SUSPEND_S,
    PushConsumerConfig,
    PushConsumerOptions,
    RetryLater,
)
from .pushed_message import AssignedQueue, Messages, PushedMessage
from .rebalance import Rebalance
from .reports import Handler

__all__ = [
    "CONCURRENCY",
    "Handler",
    "PushConsumer",
    "PushConsumerOptions",
    "PushedMessage",
    "RetryLater",
]

logger = logging.getLogger(__name__)


class PushConsumer(Participant):
    """Consumes as a member of a group.

    Use, under trio or asyncio::

        async with PushConsumer(url, group="g", subscriptions={"Topic": "*"}) as consumer:
            async for message in consumer:
                ...

    A message is acknowledged when the next one is asked for; one that a loop broke off at comes
    again. `messages(auto_ack=False)` leaves it to `message.ack()` and `message.retry()`, and `run`
    calls a handler for many messages at a time.

    Args:
      client: a URL, or an open Client that is shared with others.
      group: its group.
      subscriptions: topics, with what is wanted of each: "*", tags ("A || B"), Tag, Sql, or
        FilterClass.
      options: see PushConsumerOptions; those of ClientOptions only with a URL.

    Raises: ConfigurationError: an argument cannot be right.
    """

    def __init__(
        self,
        client: str | Client,
        *,
        group: str,
        subscriptions: Mapping[str, MessageSelector | FilterClass],
        **options: Unpack[PushConsumerOptions],
    ) -> None:
        self._config, client_options = split_options(PushConsumerConfig, options)
        super().__init__(client, client_options, group, check_consumer_group)
        if not subscriptions:
            raise ConfigurationError("a consumer without subscriptions would never get a message")
        self._subscriptions: dict[str, SubscriptionData] = {}
        self._filter_classes: dict[str, FilterClass] = {}
        for topic, selector in subscriptions.items():
            configured(check_topic, topic)
            self._subscribe(self._client.with_namespace(topic), selector)
        self._is_clustering = self._config.message_model is MessageModel.CLUSTERING
        self._retry_topic = retry_topic(self._group)
        if self._is_clustering:
            self._subscribe(self._retry_topic, "*")
        self._offsets: OffsetStore = (
            RemoteOffsetStore(self._client, self._group)
            if self._is_clustering
            else LocalOffsetStore(self._config.offset_path)
        )
        self._ready: deque[PushedMessage] = deque()
        self._is_stopping = False
        self._started_ms = 0
        self._handler: Handler | None = None
        self._troubles = PullTroubles()
        self._rebalance = Rebalance(
            self._client,
            self._group,
            self._config,
            self._subscriptions,
            self._offsets,
            lambda assigned: self._client.start_soon(self._pull_queue, assigned),
        )
        self._filter_servers = FilterServers(self._client, self._group, self._filter_classes)
        self._results = ConsumeResultService(
            self._client, self._group, self._config, self._offsets, self._hand_out
        )
        self._member = GroupMember(
            self._group,
            self._describe,
            lambda: list(self._subscriptions),
            processors={
                RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._on_ids_changed,
                **reports.processors(self),
            },
            on_routes_changed=self._on_routes_changed,
            on_heartbeat=self._filter_servers.soon,
        )

    def _describe(self) -> ConsumerData:
        return ConsumerData(
            group_name=self._group,
            consume_type=ConsumeType.CONSUME_PASSIVELY,
            message_model=self._config.message_model,
            consume_from_where=self._config.consume_from_where,
            subscription_data_set=self.subscriptions,
        )

    def _subscribe(self, topic: str, selector: MessageSelector | FilterClass) -> None:
        try:
            subscription = build_subscription(topic, selector, sub_version=self._client.wall_ms())
        except ValueError as error:
            raise ConfigurationError(str(error)) from None
        self._subscriptions[topic] = subscription
        if isinstance(selector, FilterClass):
            self._filter_classes[topic] = selector

    def _on_routes_changed(self) -> None:
        self._rebalance.soon()
        # There may be a filter server that does not have our classes.
        self._filter_servers.soon()

    # What it is and has

    @property
    def subscriptions(self) -> list[SubscriptionData]:
        """The subscriptions as brokers have them: with namespace, and with the retry topic."""
        return list(self._subscriptions.values())

    @property
    def is_orderly(self) -> bool:
        """Whether each queue's messages come one after the other."""
        return self._config.is_orderly

    @property
    def consume_timeout_s(self) -> float:
        """Seconds that a handler may take."""
        return self._config.consume_timeout_s

    @property
    def started_ms(self) -> int:
        """When it was opened, ms since 1970; 0: it was not."""
        return self._started_ms

    @property
    def handler(self) -> Handler | None:
        """What `run` calls now."""
        return self._handler

    @property
    def process_queues(self) -> dict[MessageQueue, ProcessQueue[PushedMessage]]:
        """What is held of each queue."""
        return {
            queue: assigned.process_queue for queue, assigned in self._rebalance.assigned.items()
        }

    @property
    def positions(self) -> dict[MessageQueue, int]:
        """Where each queue's consumption is, in messages, as far as something was consumed."""
        known = {queue: self._offsets.known(queue) for queue in self._rebalance.assigned}
        return {queue: offset for queue, offset in known.items() if offset is not None}

    def unassigned_message(self, ext: MessageExt, queue: MessageQueue) -> PushedMessage:
        """A message that came another way than by a pull; settling it changes nothing."""
        assigned = AssignedQueue(queue, SubscriptionData(topic=queue.topic), self._config)
        assigned.drop()
        return self._pushed(ext, assigned)

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that this member has now, sorted."""
        return sorted(self._rebalance.assigned)

    # Lifecycle

    async def _before_joining(self) -> None:
        self._started_ms = self._client.wall_ms()
        self._arrival = anyio.Event()
        for topic in self._subscriptions:
            try:
                await self._client.route(topic)
            except RouteNotFoundError:
                # A retry topic is made by the first heartbeat; another may come yet.
                if topic != self._retry_topic:
                    logger.warning("no name server knows the topic %s (yet)", topic)

    async def _after_joining(self) -> None:
        # Brokers serve pulls of groups that they know.
        await self._client.heartbeat()
        for work in (self._rebalance.run_once, self._persist):
            self._client.start_soon(self._until_stopped, work)
        if self._filter_classes:
            self._client.start_soon(self._until_stopped, self._filter_servers.run_once)
        if self._rebalance.has_locks:
            self._client.start_soon(self._until_stopped, self._rebalance.renew_locks)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
        await super().__aexit__(kind, error, traceback)

    def stop(self) -> None:
        """Pull no more; iterations end, and `run` returns when its handlers have."""
        if self._is_stopping:
            return
        self._is_stopping = True
        self._rebalance.stop()
        self._filter_servers.stop()
        self._ready.clear()
        self._arrival.set()

    async def _leave(self) -> None:
        # Shielded: a program that cancels the consumer does not want its messages twice.
        with anyio.move_on_after(self._config.close_timeout_s, shield=True):
            await self.commit()
            await self._rebalance.release()
            await super()._leave()

    async def _until_stopped(self, work: Callable[[], Awaitable[None]]) -> None:
        while not self._is_stopping:
            try:
                await work()
            except ClientError as error:
                logger.warning("%s: %s", self._group, error)
                await anyio.sleep(REBALANCE_RETRY_S)

    async def _persist(self) -> None:
        await anyio.sleep(self._config.persist_offsets_s)
        if not self._is_stopping:
            await self.commit()

    async def _on_ids_changed(
        self, connection: Connection, command: RemotingCommand
    ) -> RemotingCommand | None:
        self._rebalance.soon()
        return None

    async def rebalance(self) -> bool:
        """Share the queues out now; False: not all topics could be.

        Runs by itself when members come or go, when routes change, and every 20 s.
        """
        return await self._rebalance.rebalance()

    async def commit(self) -> None:
        """Commit the offsets of all queues now; what fails is logged, and tried again later."""
        await self._offsets.persist(list(self._rebalance.assigned))

    async def reset(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Go on elsewhere in these queues, as far as this member has them."""
        await self._rebalance.reset(offsets)

    # Handing out

    def __aiter__(self) -> AsyncIterator[PushedMessage]:
        return self.messages()

    def messages(self, *, auto_ack: bool = True) -> AsyncIterator[PushedMessage]:
        """All messages that come; several tasks may iterate at the same time.

        Args:
          auto_ack: acknowledge each when the next one is asked for, unless it is settled already.
        """
        return Messages(self.receive, auto_ack)

    async def receive(self) -> PushedMessage:
        """The next message, to be settled by the caller.

        Raises: ClosedError: the consumer was stopped.
        """
        self._client.check_open()
        while True:
            message = self.receive_nowait()
            if message is not None:
                return message
            if self._is_stopping:
                raise ClosedError("the consumer was stopped")
            if self._arrival.is_set():
                self._arrival = anyio.Event()
            await self._arrival.wait()

    def receive_nowait(self) -> PushedMessage | None:
        """The next message if one is there already, to be settled by the caller."""
        while self._ready:
            message = self._ready.popleft()
            if not message.is_revoked:
                tell_handed_out(self._client.interceptors, message)
                return message
        return None

    async def run(self, handler: Handler, *, concurrency: int = CONCURRENCY) -> None:
        """Call a handler for each message until `stop`.

        An exception is logged, and the message comes again; RetryLater says when. A handler that
        takes longer than `consume_timeout_s` is cancelled, if it is async, and the message comes
        again. A plain function runs in the loop: it must not block.

        Args:
          concurrency: handlers at one time; 1 to 1,024.
        """
        if not 1 <= concurrency <= 1024:
            raise ConfigurationError(f"concurrency {concurrency} is not in 1..1024")

        async def work() -> None:
            while True:
                try:
                    message = await self.receive()
                except ClosedError:
                    return
                await self._handle(handler, message)

        with self.handling(handler):
            async with anyio.create_task_group() as group:
                for _ in range(concurrency):
                    group.start_soon(work)

    @contextmanager
    def handling(self, handler: Handler) -> Iterator[None]:
        """Have an administrator's messages handled by this function while the block runs.

        Raises: ConfigurationError: `run` has a handler already.
        """
        if self._handler is not None:
            raise ConfigurationError("this consumer runs a handler already")
        self._handler = handler
        try:
            yield
        finally:
            self._handler = None

    async def _handle(self, handler: Handler, message: PushedMessage) -> None:
        timeout_s = self._config.consume_timeout_s
        try:
            with anyio.move_on_after(timeout_s) as scope:
                outcome = handler(message)
                if inspect.isawaitable(outcome):
                    await outcome
        except RetryLater as wish:
            await message.retry(wish.delay_level)
        except Exception:
            logger.exception("the handler of %s failed; it comes again", message)
            await message.retry()
        else:
            if scope.cancelled_caught:
                late = HandlerTimeoutError(message.message_id, timeout_s)
                logger.error("%s; it comes again", late)
                await message.retry()
            else:
                message.ack()

    def _hand_out(self, messages: Sequence[PushedMessage]) -> None:
        # What is settled after `stop` brings no further message of its queue.
        if not self._is_stopping:
            self._ready.extend(messages)
            self._arrival.set()

    # Pulling

    async def _pull_queue(self, assigned: AssignedQueue) -> None:
        try:
            with assigned.scope:
                assigned.next_offset = await self._first_offset(assigned.queue)
                while not assigned.is_dropped:
                    await assigned.wait_for_room()
                    try:
                        await self._pull_once(assigned)
                    except ClientError as error:
                        await self._after_pull_failed(assigned, error)
        except ClientError as error:
            logger.warning("%s cannot be consumed yet: %s", assigned.queue, error)
            self._rebalance.give_up(assigned)

    async def _pull(self, assigned: AssignedQueue, filter_server: str | None = None) -> PullResult:
        config, queue = self._config, assigned.queue
        known = self._offsets.known(queue) if self._is_clustering else None
        return await pull(
            self._client,
            queue,
            assigned.subscription,
            self._group,
            assigned.next_offset,
            count=config.pull_batch_size,
            suspend_s=config.suspend_s,
            timeout_s=config.suspend_s + PULL_TIMEOUT_S - SUSPEND_S,
            commit_offset=known or 0,
            broker_id=assigned.broker_id,
            filter_server=filter_server,
        )

    async def _pull_once(self, assigned: AssignedQueue) -> None:
        queue = assigned.queue
        assigned.process_queue.last_pull_ms = clock.monotonic_ms()
        if assigned.subscription.class_filter_mode:
            result = await self._filter_servers.pull(queue, partial(self._pull, assigned))
        else:
            result = await self._pull(assigned)
        assigned.broker_id = result.suggest_which_broker_id
        if assigned.is_dropped or self._is_stopping:
            return
        if result.status is PullStatus.OFFSET_ILLEGAL:
            logger.warning(
                "%s: the offset %d is not there (any more); going on at %d",
                queue,
                assigned.next_offset,
                result.next_begin_offset,
            )
            assigned.process_queue.clear()
            self._offsets.update(queue, result.next_begin_offset)
            await self._offsets.persist([queue])
        assigned.next_offset = result.next_begin_offset
        self._take_in(result, assigned)

    def _take_in(self, result: PullResult, assigned: AssignedQueue) -> None:
        """Hold and hand out what a pull brought."""
        if result.messages:
            pushed = [self._pushed(ext, assigned) for ext in result.messages]
            assigned.process_queue.put(pushed, max_offset=result.max_offset)
            if self._config.is_orderly:
                self._results.hand_out_next(assigned)
            else:
                self._hand_out(pushed)
        elif assigned.process_queue.count == 0:
            # What was filtered out is done with.
            self._offsets.update(assigned.queue, result.next_begin_offset)

    def _pushed(self, ext: MessageExt, assigned: AssignedQueue) -> PushedMessage:
        topic = ext.topic
        if is_retry_topic(topic):
            topic = ext.find(names.PROPERTY_RETRY_TOPIC.encode()) or topic
        topic = self._client.without_namespace(topic)
        return PushedMessage(ext, topic, assigned, self._results, ext.reconsume_times)

    async def _first_offset(self, queue: MessageQueue) -> int:
        """Source: RebalancePushImpl.computePullFromWhereWithException."""
        kept = await self._offsets.read(queue)
        if kept is not None and kept >= 0:
            return kept
        where = self._config.consume_from_where
        if is_retry_topic(queue.topic) or where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET:
            return 0
        if where is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
            since_ms = self._config.consume_timestamp_ms
            if since_ms is None:
                since_ms = self._client.wall_ms() - 30 * 60 * 1000
            return await search_offset(self._client, queue, since_ms)
        return await max_offset(self._client, queue)

    async def _after_pull_failed(self, assigned: AssignedQueue, error: ClientError) -> None:
        # Whoever cancels the program ends the connections too: that is no news.
        await anyio.lowlevel.checkpoint_if_cancelled()
        code = error.code if isinstance(error, ServerError) else None
        if code in (
            ResponseCode.SUBSCRIPTION_NOT_EXIST,
            ResponseCode.SUBSCRIPTION_NOT_LATEST,
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        ):
            # A broker that was restarted knows no group.
            self._client.heartbeat_soon()
        else:
            self._client.refresh_soon()
        assigned.broker_id = 0
        self._troubles.tell(assigned.queue, error, PULL_RETRY_S)
        await anyio.sleep(PULL_RETRY_S)
