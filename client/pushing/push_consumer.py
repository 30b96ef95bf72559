"""The push consumer: a member of a group that receives messages of the queues assigned to it.

One task for each assigned queue pulls messages into a ProcessQueue. From there they are delivered
to iterations or handlers. When messages are settled, the offset of the group moves past them.

Java counterpart: DefaultMQPushConsumer, DefaultMQPushConsumerImpl, PullMessageService,
ConsumeMessageConcurrentlyService, ConsumeMessageOrderlyService.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from math import inf
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Never, NoReturn, Unpack, overload

import anyio.lowlevel

from ...common.topic_names import retry_topic
from ...remoting.bodies import (
    ConsumerData,
    ConsumeType,
    MessageModel,
    MessageQueue,
    SubscriptionData,
)
from ...remoting.codec import RemotingCommand
from ...remoting.message import MessageExt
from ...remoting.request_codes import RequestCode
from ..checks.call_check import refuse_names
from ..checks.misuse import explained, knows_elsewhere, wrong_for
from ..checks.other_names import PUSH_CONSUMER
from ..connection.client import Client
from ..connection.connection import Connection
from ..connection.connection_log import failure_level
from ..connection.members import GroupMember
from ..connection.options import split_options
from ..connection.participant import configured
from ..core.subscription import FilterClass, MessageSelector, check_subscriptions, read_subscription
from ..core.topics import check_consumer_group, check_topic
from ..errors import ClientError, ClosedError, ConfigurationError, RouteNotFoundError
from ..messages.body_types import ValueT
from ..messages.interceptor import Interceptor
from ..options.push_options import (
    CONCURRENCY,
    FIRST_HEARTBEAT_S,
    LEAVE_S,
    LEAVE_TIMEOUT_S,
    REBALANCE_RETRY_S,
    PushConsumerConfig,
    PushConsumerOptions,
    RetryLater,
    grpc_config,
)
from ..pulling.offsets import LocalOffsetStore, OffsetStore, RemoteOffsetStore
from ..pulling.sql_check import check_sql_subscriptions
from ..sending.tracing import consumer_trace
from ..tasks.loop_call import LoopCall
from ..tasks.task_group import together
from ..tasks.ticker import Ticker
from . import reports
from .consume_result_service import ConsumeResultService
from .filter_servers import FilterServers
from .handler_check import check_stop_timeout
from .handler_service import HandlerService
from .pop_mode import PopMode
from .pop_queue import PopQueue
from .push_rebalance import PushRebalance
from .pushed_message import AssignedQueue, MessageIterator, PushedMessage, PushedMessageFactory
from .queue_control import QueueControl
from .queue_puller import QueuePuller
from .ready_messages import ReadyMessages
from .reports import BatchHandler, Handler

__all__ = [
    "CONCURRENCY",
    "BatchHandler",
    "Handler",
    "PushConsumer",
    "PushConsumerOptions",
    "PushedMessage",
    "RetryLater",
]

logger = logging.getLogger(__name__)


@knows_elsewhere(PUSH_CONSUMER)
class PushConsumer(QueueControl, Generic[ValueT]):
    """Consumes messages as a member of a group.

    Use, under trio or asyncio::

        async with PushConsumer(url, group="g", subscriptions={"Topic": "*"}) as consumer:
            async for message in consumer:
                ...

    In such a loop, a message is acknowledged when the next one is requested; if the loop ends early
    (`break`, an exception), its last message is redelivered. With `messages(auto_ack=False)` the
    program calls `message.ack()` or `message.retry()` itself, and `run` calls a handler for several
    messages concurrently.

    Args:
      client: the URL of a cluster, or an open Client to share with other objects.
      group: the consumer group that it joins.
      subscriptions: the topics to consume, each with the messages to receive: "*" for all, tags
        ("A || B"), Tag, Sql or FilterClass.
      deserializer: converts the body of a message to its `value`, which has the type that it
        returns; None: `value` is the body.
      options: see PushConsumerOptions; those of ClientOptions are allowed only with a URL.

    Raises: ConfigurationError: the URL, a name, a selector or an option is invalid.
    """

    @overload
    def __init__(
        self: PushConsumer[bytes],
        client: str | Client,
        *,
        group: str,
        subscriptions: Mapping[str, MessageSelector | FilterClass],
        deserializer: None = None,
        **options: Unpack[PushConsumerOptions],
    ) -> None: ...
    @overload
    def __init__(
        self,
        client: str | Client,
        *,
        group: str,
        subscriptions: Mapping[str, MessageSelector | FilterClass],
        deserializer: Callable[[bytes], ValueT],
        **options: Unpack[PushConsumerOptions],
    ) -> None: ...
    @explained
    def __init__(
        self,
        client: str | Client,
        *,
        group: str,
        subscriptions: Mapping[str, MessageSelector | FilterClass],
        deserializer: Any = None,
        **options: Unpack[PushConsumerOptions],
    ) -> None:
        self._config, rest = split_options(PushConsumerConfig, options, deserializer=deserializer)
        super().__init__(client, rest, group, check_consumer_group)
        if self._client.grpc is not None:
            self._config = grpc_config(self._config, options)
        configured(check_subscriptions, subscriptions)
        self._subscriptions: dict[str, SubscriptionData] = {}
        self._filter_classes: dict[str, FilterClass] = {}
        self._subscribe_all(subscriptions)
        # Broadcasting has no retry topic: each member consumes all, and failures are not sent back.
        self._is_clustering = self._config.message_model is MessageModel.CLUSTERING
        self._retry_topic = retry_topic(self._group)
        if self._is_clustering and self._client.grpc is None:
            self._subscribe(self._retry_topic, "*")
        self._is_stopping = False
        self._started_ms = 0
        self._closing_ends_s = inf
        self._loop_call: LoopCall | None = None
        self._connect_parts(list(subscriptions))

    def _connect_parts(self, topics: Sequence[str]) -> None:
        """Make the parts, each from those before it.

        Messages go from the puller (or the pop mode) to `ready`, from there to the program, and
        back to `results`, which moves the offsets.

        Args:
          topics: the subscribed topics, as the program knows them.
        """
        client, group, config = self._client, self._group, self._config
        interceptors = self._all_interceptors()
        self._offsets = self._offset_store()
        self._ready = ReadyMessages(client, config.rate_limit, interceptors)
        self._pop_mode = self._made_pop_mode() if config.mode == "pop" else None
        # The results find that a lock is too old, and the rebalance renews it.
        locks_due = Ticker()
        self._results = ConsumeResultService(
            client,
            group,
            config,
            self._offsets,
            self._ready.put,
            interceptors,
            locks_due.tick_now,
        )
        if self.is_orderly:
            # A lock may have expired while a message waited for the program.
            self._ready.may_deliver = self._results.may_deliver
        self._pushed = PushedMessageFactory(
            client.without_namespace,
            self._results,
            self._pop_mode.pop_retry_topics if self._pop_mode else {},
        )
        self._filter_servers = FilterServers(client, group, self._filter_classes)
        puller = QueuePuller(
            client,
            group,
            config,
            offsets=self._offsets,
            ready=self._ready,
            results=self._results,
            filter_servers=self._filter_servers,
            pushed=self._pushed,
        )
        self._rebalance = PushRebalance(
            client,
            group,
            config,
            self._subscriptions,
            self._offsets,
            puller.pull_queue,
            self._pop_mode,
            take_back=self._ready.take_back,
            hand_out_next=self._results.hand_out_next,
            locks_due=locks_due,
        )
        self._handler_service = HandlerService(
            client, config, topics, self._ready, self._results, self.next_message
        )
        self._member = self._made_member()

    def _all_interceptors(self) -> Sequence[Interceptor]:
        trace = consumer_trace(self._client, self._group, self._config.trace)
        if trace is None:
            return self._client.interceptors
        self._traces = trace.dispatcher
        return (*self._client.interceptors, trace)

    def _offset_store(self) -> OffsetStore:
        if self._is_clustering:
            return RemoteOffsetStore(self._client, self._group)
        return LocalOffsetStore(self._config.offset_path)

    def _made_member(self) -> GroupMember:
        return GroupMember(
            self._group,
            self._describe,
            lambda: list(self._subscriptions),
            processors={
                RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._on_ids_changed,
                **reports.processors(
                    self,
                    self._rebalance.assigned,
                    self._pop_queues,
                    self._unassigned_message,
                    lambda: self._handler_service.direct_call,
                ),
            },
            on_routes_changed=self._on_routes_changed,
            on_heartbeat=self._filter_servers.upload_soon,
        )

    def _made_pop_mode(self) -> PopMode:
        if self._filter_classes:
            raise ConfigurationError(
                'a FilterClass does not go with mode="pop": use tags or Sql, or pull'
            )
        return PopMode(self._client, self._group, self._config, self._subscriptions, self._ready)

    def _describe(self) -> ConsumerData:
        return ConsumerData(
            group_name=self._group,
            consume_type=ConsumeType.CONSUME_PASSIVELY,
            message_model=self._config.message_model,
            consume_from_where=self._config.consume_from_where,
            subscription_data_set=self.subscriptions,
        )

    def _subscribe_all(self, subscriptions: Mapping[str, MessageSelector | FilterClass]) -> None:
        for topic, selector in subscriptions.items():
            configured(check_topic, topic)
            self._subscribe(self._client.with_namespace(topic), selector)

    def _subscribe(self, topic: str, selector: MessageSelector | FilterClass) -> None:
        try:
            subscription = read_subscription(topic, selector, self._client.wall_ms())
        except ValueError as error:
            raise ConfigurationError(str(error)) from None
        self._subscriptions[topic] = subscription
        if isinstance(selector, FilterClass):
            self._filter_classes[topic] = selector

    def _on_routes_changed(self) -> None:
        self._rebalance.rebalance_soon()
        # The route may have a new filter server, which does not have the classes.
        self._filter_servers.upload_soon()

    # Properties

    @property
    def subscriptions(self) -> list[SubscriptionData]:
        """The subscriptions as brokers know them: with namespace, and with the retry topic."""
        return list(self._subscriptions.values())

    @property
    def is_orderly(self) -> bool:
        """Whether the messages of each queue are consumed one at a time, in order."""
        return self._config.is_orderly

    @property
    def consume_timeout_s(self) -> float:
        """Time limit of a handler, in seconds."""
        return self._config.consume_timeout_s

    @property
    def started_ms(self) -> int:
        """Time of opening, in milliseconds since 1970; 0 before."""
        return self._started_ms

    @property
    def handler(self) -> Any:
        """The handler that was given to `run`; None while `run` is not running."""
        return self._handler_service.handler

    @property
    def positions(self) -> dict[MessageQueue, int]:
        """The offset of each queue at which consumption continues, where it is known."""
        known = {queue: self._offsets.known(queue) for queue in self._rebalance.assigned}
        return {queue: offset for queue, offset in known.items() if offset is not None}

    def _unassigned_message(self, ext: MessageExt, queue: MessageQueue) -> PushedMessage:
        # It did not arrive by a pull; settling it has no effect.
        assigned = AssignedQueue(queue, SubscriptionData(topic=queue.topic), self._config)
        assigned.drop()
        return self._pushed([ext], assigned)[0]

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that are assigned to this consumer, sorted.

        With mode="pop", a queue id of -1 means all queues of a broker.
        """
        return sorted([*self._rebalance.assigned, *self._pop_queues])

    @property
    def _all_queues(self) -> Iterable[AssignedQueue]:
        return (*self._rebalance.assigned.values(), *self._pop_queues.values())

    @property
    def _pop_queues(self) -> Mapping[MessageQueue, PopQueue]:
        return self._pop_mode.assigned if self._pop_mode else {}

    @property
    def ready_messages(self) -> ReadyMessages:
        """The pulled messages; used by the blocking consumer, not meant for programs."""
        return self._ready

    # Lifecycle

    async def _before_joining(self) -> None:
        self._started_ms = self._client.wall_ms()
        self._loop_call = LoopCall()
        self._ready.open()
        await together(partial(self._look_up, topic) for topic in self._subscriptions)
        await check_sql_subscriptions(self._client, self._group, self.subscriptions)

    async def _look_up(self, topic: str) -> None:
        try:
            await self._client.route(topic, wait_s=self._client.start_wait_s)
        except RouteNotFoundError:
            # The first heartbeat creates the retry topic. Others may be created later.
            if topic != self._retry_topic:
                logger.warning("no name server knows the topic %s (yet)", topic)

    async def _after_joining(self) -> None:
        # Brokers refuse pulls of groups of which they have received no heartbeat. One that hangs
        # gets its heartbeat again later.
        with anyio.move_on_after(FIRST_HEARTBEAT_S) as limit:
            await self._client.heartbeat()
        if limit.cancelled_caught:
            self._client.heartbeat_soon()
        if self._pop_mode is not None:
            await self._pop_mode.check_brokers()
        for work in (self._rebalance.run_once, self._persist):
            self._client.start_soon(self._until_stopped, work)
        if self._filter_classes:
            self._client.start_soon(self._until_stopped, self._filter_servers.run_once)
        if self._rebalance.has_locks:
            self._client.start_soon(self._until_stopped, self._rebalance.renew_locks)
        if self._pop_mode is not None and self._config.pop_extend:
            self._client.start_soon(self._pop_mode.extend)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._started_ms:
            self._closing_ends_s = self._client.now_s() + self._config.close_timeout_s
            self.stop()
            await self._handler_service.wait_ended()
        await super().__aexit__(kind, error, traceback)

    def stop(self, timeout_s: float | None = None) -> None:
        """Stop pulling: iterations end, and `run` returns once its handlers have returned.

        It does not wait, and any thread may call it. After `timeout_s` handlers are cut: async ones
        are cancelled, threads are left behind, the log names their messages, which are redelivered,
        and `run` returns. Another call can shorten the time.

        Args:
          timeout_s: seconds from now, >= 0; default: `close_timeout_s` less the time for leaving
            the group, which is 15 s if no option says otherwise.

        Raises: ConfigurationError: the time is no number from 0 on.
        """
        check_stop_timeout(timeout_s)
        if self._loop_call is not None and not self._loop_call.is_here:
            self._loop_call(self._stop, timeout_s)
        else:
            self._stop(timeout_s)

    def _stop(self, timeout_s: float | None) -> None:
        self._handler_service.stop(timeout_s)
        if self._is_stopping:
            return
        self._is_stopping = True
        self._rebalance.stop()
        if self._pop_mode is not None:
            self._pop_mode.stop()
        self._filter_servers.stop()
        self._ready.stop()

    async def _leave(self) -> None:
        # Shielded from cancellation: messages that were acknowledged must not be redelivered.
        left_s = max(self._closing_ends_s - self._client.now_s(), self._config.leave_timeout_s)
        limit_s = min(left_s, LEAVE_TIMEOUT_S)
        with anyio.move_on_after(limit_s, shield=True):
            # A broker that hangs must leave time for unregistering at the others.
            with anyio.move_on_after(max(limit_s - LEAVE_S, limit_s / 2)):
                await self._commit()
            steps = [self._rebalance.release, super()._leave]
            if self._pop_mode is not None:
                steps.append(self._pop_mode.release)
            await together(steps)

    async def _until_stopped(self, work: Callable[[], Awaitable[None]]) -> None:
        while not self._is_stopping:
            try:
                await work()
            except ClientError as error:
                logger.log(failure_level(error), "%s: %s", self._group, error)
                await anyio.sleep(REBALANCE_RETRY_S)

    async def _persist(self) -> None:
        await anyio.sleep(self._config.persist_offsets_s)
        if not self._is_stopping:
            await self._commit()

    async def _on_ids_changed(
        self, connection: Connection, command: RemotingCommand
    ) -> RemotingCommand | None:
        self._rebalance.rebalance_soon()
        return None

    # Messages

    if not TYPE_CHECKING:

        def __iter__(self) -> NoReturn:
            raise wrong_for(self, "async for")

    def __aiter__(self) -> AsyncIterator[PushedMessage[ValueT]]:
        return self.messages()

    def messages(self, *, auto_ack: bool = True) -> AsyncIterator[PushedMessage[ValueT]]:
        """Iterate over messages until `stop`; several tasks can iterate at the same time.

        Args:
          auto_ack: acknowledge each message when the next one is requested, unless it is settled
            already.

        Raises: ClosedError: at the first message, if the consumer was never opened.
        """
        return MessageIterator(
            self.receive, self._receive_ready, lambda: self._was_opened, auto_ack
        )

    async def receive(self, **unknown: Never) -> PushedMessage[ValueT]:
        """Wait for the next message, which the caller settles by `ack` or `retry`.

        Raises:
          ClosedError: the consumer is not open, or was stopped.
          ConfigurationError: `run` gives all messages to its handler.
          ForkedError: the consumer was opened in the parent of this process.
        """
        refuse_names("receive", unknown)
        self._check_receives()
        return await self.next_message()

    async def next_message(self) -> PushedMessage[ValueT]:
        """`receive` for `run` and the blocking consumer; not meant for programs."""
        while True:
            self._check_open()
            message = self._ready.take()
            if message is not None:
                return message
            if self._is_stopping:
                raise ClosedError("the consumer was stopped")
            await self._ready.wait()

    def _check_receives(self) -> None:
        self._check_open()
        if self._handler_service.handler is not None:
            raise ConfigurationError(
                "this consumer's messages go to the handler of `run`: use either `run` or `receive`"
            )

    def _receive_ready(self) -> PushedMessage[ValueT] | None:
        self._check_receives()
        return self._ready.take()

    def receive_nowait(self) -> PushedMessage[ValueT] | None:
        """The next message, which the caller settles; None if there is none at the moment."""
        return self._ready.take()

    @overload
    async def run(
        self,
        handler: Handler[ValueT] | Mapping[str, Handler[ValueT]],
        *,
        concurrency: int = CONCURRENCY,
        in_loop: bool = False,
    ) -> None: ...
    @overload
    async def run(
        self,
        handler: BatchHandler[ValueT] | Mapping[str, BatchHandler[ValueT]],
        *,
        concurrency: int = CONCURRENCY,
        in_loop: bool = False,
        batch: int,
        linger_s: float = 0.0,
    ) -> None: ...
    async def run(
        self,
        handler: Handler[ValueT]
        | BatchHandler[ValueT]
        | Mapping[str, Handler[ValueT]]
        | Mapping[str, BatchHandler[ValueT]],
        *,
        concurrency: int = CONCURRENCY,
        in_loop: bool = False,
        batch: int | None = None,
        linger_s: float = 0.0,
        **unknown: Never,
    ) -> None:
        """Call a handler with each message until `stop`.

        If the handler returns, the message is acknowledged, unless the handler has settled it. If
        it raises, the exception is logged and the message is redelivered; RetryLater sets the
        delay.

        A handler that takes longer than `consume_timeout_s` is logged, and its message is
        redelivered. An async one is cancelled. A thread cannot be interrupted: it goes on, what it
        does with the message has no effect, and it gets no other message until it returns.

        A handler that holds the event loop for long is logged, once.

        If `run` is cancelled, so are its handlers, and their messages come again.

        Args:
          handler: an async function; or a plain one, which is called in a thread and may block,
            with a copy of the context variables. It takes the message. Or a mapping of each
            subscribed topic to its handler.
          concurrency: largest number of handlers at a time, and of threads, 1 to 1,024.
          in_loop: call plain functions in the event loop, which saves the change of threads; they
            must not block.
          batch: call the handler with a list of messages, at most this number, 1 to 1,024: of one
            topic, if each topic has a handler; of one queue, in order, if the consumer is orderly.
            They are settled as the single message is; the handler can also settle each of them
            itself.
          linger_s: seconds, 0 to 60, to wait for a batch to fill from its first message on.

        Raises:
          ConfigurationError: a handler cannot be called with a message (it takes more arguments, is
            a class or a generator function, ...), a topic has no handler, another argument is out
            of range, or the consumer runs a handler already. No message was delivered.
          ClosedError: the consumer is not open.
          ForkedError: the consumer was opened in the parent of this process.
          BaseException: an exception of the handler that is not an Exception, such as SystemExit.
        """
        refuse_names("run", unknown)
        self._check_open()
        await self._handler_service.run(handler, concurrency, in_loop, batch, linger_s)
