"""The push consumer for programs with threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, Never, NoReturn, Unpack, overload

import anyio

from ..client.checks.call_check import refuse_names
from ..client.checks.misuse import explained, knows_elsewhere, wrong_for
from ..client.checks.other_names import PUSH_CONSUMER
from ..client.core.subscription import FilterClass, MessageSelector
from ..client.errors import ClientError, ClosedError, ConfigurationError
from ..client.messages.body_types import ValueT
from ..client.messages.message import MessageQueue
from ..client.options.push_options import CONCURRENCY, PushConsumerOptions
from ..client.pushing.batches import BatchCollector
from ..client.pushing.handler_check import Handlers, check_stop_timeout
from ..client.pushing.push_consumer import PushConsumer as AsyncPushConsumer
from ..client.pushing.pushed_message import PushedMessage as AsyncPushedMessage
from ..remoting.bodies import SubscriptionData
from .client import Client, TracedMember
from .forwarded import forwarded
from .handler_threads import DirectCall, HandlerThreads
from .loop_object import ExitInfo, LoopObject
from .message_buffer import FETCH_MAX, MessageBuffer
from .pushed_message import BatchHandler, Handler, PushedMessage


@knows_elsewhere(PUSH_CONSUMER)
class PushConsumer(TracedMember[AsyncPushConsumer[ValueT]], Generic[ValueT]):
    """Consumes as a member of a group; the blocking `trocket.client.PushConsumer`.

    Use::

        with PushConsumer(url, group="g", subscriptions={"Topic": "*"}) as consumer:
            for message in consumer:
                ...

    In such a loop, a message is acknowledged when the next one is requested; if the loop ends early
    (`break`, an exception), its last message is redelivered. With `messages(auto_ack=False)` the
    program calls `message.ack()` or `message.retry()` itself, and `run` calls a handler in several
    threads. Any number of threads can use one consumer.

    Args:
      client: the URL of a cluster, or an open Client to share with other objects.
      group: the consumer group that it joins.
      subscriptions: the topics to consume, each with the messages to receive: "*" for all, tags
        ("A || B"), Tag, Sql or FilterClass.
      deserializer: converts the body of a message to its `value`, which has the type that it
        returns; None: `value` is the body.
      options: see PushConsumerOptions; those of ClientOptions are allowed only with a URL. The
        listener and the interceptors are called in the loop's thread: they must not block.

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
        super().__init__(
            client,
            lambda inner: AsyncPushConsumer(
                inner,
                group=group,
                subscriptions=subscriptions,
                deserializer=deserializer,
                **options,
            ),
        )
        self._buffer: MessageBuffer[PushedMessage[ValueT]]
        self._fetcher: _Fetcher[ValueT]
        self._handler: Any = None
        self._threads: HandlerThreads[Any] | None = None

    def _enter(self, inner: AsyncPushConsumer[ValueT]) -> LoopObject:
        loop_object = super()._enter(inner)
        self._fetcher = _Fetcher(inner, loop_object)
        self._buffer = self._fetcher.buffer
        loop_object.on_over = self._buffer.close
        return loop_object

    def _leave(self, loop_object: LoopObject, exit_info: ExitInfo) -> None:
        threads = self._threads
        if threads is not None:  # `run` runs in another thread
            loop_object.post(self._inner.stop, None)
            self._stop_handlers(None)
            threads.wait_ended()
        self._buffer.close()
        loop_object.close(exit_info)

    # Properties

    @property
    def subscriptions(self) -> list[SubscriptionData]:
        """The subscriptions as brokers know them: with namespace, and with the retry topic."""
        return self._inner.subscriptions

    @property
    def is_orderly(self) -> bool:
        """Whether the messages of each queue are consumed one at a time, in order."""
        return self._inner.is_orderly

    @property
    def consume_timeout_s(self) -> float:
        """Time limit of a handler, in seconds."""
        return self._inner.consume_timeout_s

    @property
    def started_ms(self) -> int:
        """Time of opening, in milliseconds since 1970; 0 before."""
        return self._inner.started_ms

    @property
    def handler(self) -> Any:
        """The handler that was given to `run`; None while `run` is not running."""
        return self._handler

    @property
    def positions(self) -> dict[MessageQueue, int]:
        """The offset of each queue at which consumption continues, where it is known."""
        return self._call_plain(lambda: self._inner.positions)

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that are assigned to this consumer, sorted."""
        return self._call_plain(lambda: self._inner.queues)

    @property
    def paused(self) -> set[str | MessageQueue]:
        """The paused topics and queues."""
        return self._call_plain(lambda: self._inner.paused)

    # Messages

    if not TYPE_CHECKING:

        def __aiter__(self) -> NoReturn:
            raise wrong_for(self, "for")

    def __iter__(self) -> Iterator[PushedMessage[ValueT]]:
        return self.messages()

    def messages(self, *, auto_ack: bool = True) -> Iterator[PushedMessage[ValueT]]:
        """Iterate over messages until `stop`; several threads can iterate at the same time.

        Args:
          auto_ack: acknowledge each message when the next one is requested, unless it is settled
            already.

        Raises: ClosedError: at the first message, if the consumer was never opened.
        """
        return _Messages(self, lambda: self._was_opened, auto_ack)

    @overload
    def receive(self) -> PushedMessage[ValueT]: ...
    @overload
    def receive(self, *, timeout_s: float | None) -> PushedMessage[ValueT] | None: ...
    def receive(self, *, timeout_s: float | None = None) -> PushedMessage[ValueT] | None:
        """Wait for the next message, which the caller settles by `ack` or `retry`.

        Args:
          timeout_s: seconds to wait, >= 0; None waits without limit.

        Returns: the message; None if none arrived in time.
        Raises:
          ClosedError: the consumer is not open, or was stopped.
          ConfigurationError: `run` gives all messages to its handler.
          ForkedError: the consumer was opened in the parent of this process.
        """
        self._opened().check_thread()
        if self._handler is not None:
            raise ConfigurationError(
                "this consumer's messages go to the handler of `run`: use either `run` or `receive`"
            )
        return self._buffer.take(timeout_s)

    @overload
    def run(
        self,
        handler: Handler[ValueT] | Mapping[str, Handler[ValueT]],
        *,
        concurrency: int = CONCURRENCY,
    ) -> None: ...
    @overload
    def run(
        self,
        handler: BatchHandler[ValueT] | Mapping[str, BatchHandler[ValueT]],
        *,
        concurrency: int = CONCURRENCY,
        batch: int,
        linger_s: float = 0.0,
    ) -> None: ...
    def run(
        self,
        handler: Handler[ValueT]
        | BatchHandler[ValueT]
        | Mapping[str, Handler[ValueT]]
        | Mapping[str, BatchHandler[ValueT]],
        *,
        concurrency: int = CONCURRENCY,
        batch: int | None = None,
        linger_s: float = 0.0,
        **unknown: Never,
    ) -> None:
        """Call a handler with each message, in several threads, until `stop`.

        If the handler returns, the message is acknowledged, unless the handler has settled it. If
        it raises, the exception is logged and the message is redelivered; RetryLater sets the
        delay. A handler that takes longer than `consume_timeout_s` is logged and its message is
        redelivered, but a thread cannot be interrupted: it goes on, what it does with the message
        has no effect, and it takes no other message until the handler returns.

        `run` returns once all handlers have returned, except those that have exceeded their time,
        or the time of `stop`. Ctrl-C ends `run` at once: running handlers continue, and get no
        further messages.

        Args:
          handler: a plain function; it may block. It takes the message. Or a mapping of each
            subscribed topic to its handler. Its threads are daemon threads.
          concurrency: number of threads, 1 to 1,024.
          batch: call the handler with a list of messages, at most this number, 1 to 1,024: of one
            topic, if each topic has a handler; of one queue, in order, if the consumer is orderly.
            They are settled as the single message is; the handler can also settle each of them
            itself.
          linger_s: seconds, 0 to 60, to wait for a batch to fill from its first message on.

        Raises:
          ConfigurationError: a handler cannot be called with a message (it is async, takes more
            arguments, is a class or a generator function, ...), a topic has no handler, another
            argument is out of range, or the consumer runs a handler already. No message was
            delivered.
          ClosedError: the consumer is not open.
          ForkedError: the consumer was opened in the parent of this process.
          BaseException: an exception of the handler that is not an Exception, such as SystemExit.
        """
        refuse_names("run", unknown)
        loop_object = self._opened()
        loop_object.check_thread()
        service = self._inner._handler_service
        handlers = service.check(handler, concurrency, batch, linger_s)
        handlers.refuse_async()
        call = DirectCall(handlers, loop_object, is_batch=batch is not None)
        handling = service.handling(handler, call)
        loop_object.call_plain(handling.__enter__)
        self._handler = handler
        try:
            self._threads = self._made_threads(handlers, concurrency, batch, linger_s)
            self._threads.work()
        finally:
            self._threads = None
            self._handler = None
            loop_object.post(handling.__exit__, None, None, None)
            loop_object.post(self._fetcher.end_batches)

    def _made_threads(
        self, handlers: Handlers, concurrency: int, batch: int | None, linger_s: float
    ) -> HandlerThreads[Any]:
        limits = (concurrency, self.consume_timeout_s)
        if batch is None:
            buffer = self._buffer
            return HandlerThreads(buffer, _only, handlers, *limits, is_orderly=self.is_orderly)
        service = self._inner._handler_service
        collector = self._call_plain(service.batches, batch, linger_s, handlers)
        batches = self._fetcher.batch_buffer(collector)
        return HandlerThreads(batches, _same, handlers, *limits, is_orderly=self.is_orderly)

    def stop(self, timeout_s: float | None = None) -> None:
        """Stop pulling: iterations end, and `run` returns once its handlers have returned.

        It does not wait, and it can be called in a signal handler. After `timeout_s` handlers are
        cut: their threads are left behind, the log names their messages, which are redelivered, and
        `run` returns. Another call can shorten the time.

        Args:
          timeout_s: seconds from now, >= 0; default: `close_timeout_s` less the time for leaving
            the group, which is 15 s if no option says otherwise.

        Raises:
          ClosedError: the consumer is not open.
          ConfigurationError: the time is no number from 0 on.
          ForkedError: the consumer was opened in the parent of this process.
        """
        check_stop_timeout(timeout_s)
        self._opened().post(self._inner.stop, timeout_s)
        self._stop_handlers(timeout_s)

    def _stop_handlers(self, timeout_s: float | None) -> None:
        threads = self._threads
        if threads is not None:
            limit_s = self._inner._handler_service.handler_timeout_s
            threads.stop(limit_s if timeout_s is None else timeout_s)
        self._buffer.close()

    # Offsets

    rebalance: Final = forwarded(AsyncPushConsumer.rebalance)
    commit: Final = forwarded(AsyncPushConsumer.commit)
    reset: Final = forwarded(AsyncPushConsumer.reset)
    seek: Final = forwarded(AsyncPushConsumer.seek)

    def pause(self, paused: Iterable[str | MessageQueue]) -> None:
        """Deliver no messages of these topics or queues until `resume`.

        They stay paused when queues are reassigned, and are assigned to this consumer further on.
        Messages that the program has received already can be settled.

        Args:
          paused: topics (their redeliveries are paused, too), or single queues.

        Raises: ConfigurationError: a topic is not subscribed.
        """
        self._call_plain(self._pause, paused)

    def _pause(self, paused: Iterable[str | MessageQueue]) -> None:
        # Messages in the buffer were fetched for the program, which has not received them.
        self._inner.pause(paused)
        held = self._inner.ready_messages
        fetched = self._buffer.remove(lambda message: held.holds(message.inner))
        held.give_back([message.inner for message in fetched])

    resume: Final = forwarded(AsyncPushConsumer.resume)


class _Fetcher(Generic[ValueT]):
    """Moves messages from the async consumer to the buffer, on demand.

    It is an object apart from the consumer, which can be garbage-collected while this waits.
    """

    def __init__(self, inner: AsyncPushConsumer[ValueT], loop_object: LoopObject) -> None:
        self._inner = inner
        self._loop_object = loop_object
        # `before_consume` is called at the fetch: with interceptors, do not fetch ahead.
        self._count_max = 1 if inner.ready_messages.interceptors else FETCH_MAX
        self.buffer: MessageBuffer[PushedMessage[ValueT]] = MessageBuffer(
            self._fetch_soon, _is_wanted
        )
        self._collector: BatchCollector | None = None
        self._batches: MessageBuffer[list[PushedMessage[ValueT]]]
        self._collecting: anyio.CancelScope | None = None

    def batch_buffer(self, collector: BatchCollector) -> MessageBuffer[list[PushedMessage[ValueT]]]:
        """A buffer of batches in place of `buffer`, whose messages go back into the loop.

        `end_batches` ends it.
        """

        def fetch_soon() -> None:
            self._loop_object.post(self._loop_object.spawn, fetch)

        async def fetch() -> None:
            if self._collector is not collector:  # `run` has ended
                return
            batch: list[AsyncPushedMessage[ValueT]] = []
            try:
                with anyio.CancelScope() as self._collecting:
                    batch = await collector.next_batch()
            except BaseException as error:
                batches.close()
                if isinstance(error, ClientError):
                    return
                raise
            if batch:
                batches.put([[PushedMessage(message, self._loop_object) for message in batch]])

        def give_back() -> None:
            self._collector, self._batches = collector, batches
            fetched = self.buffer.remove(lambda message: True)
            self._inner.ready_messages.give_back([message.inner for message in fetched])

        batches = MessageBuffer[list[PushedMessage[ValueT]]](fetch_soon, _has_wanted)
        self._loop_object.call_plain(give_back)
        self.buffer.on_close(batches.close)
        return batches

    def end_batches(self) -> None:
        """Give back what `run` has collected and not handed out; to be called in the loop."""
        collector, self._collector = self._collector, None
        if collector is None:
            return
        if self._collecting is not None:
            self._collecting.cancel()
        fetched = self._batches.remove(lambda batch: True)
        collector.give_back(message.inner for batch in fetched for message in batch)

    def _fetch_soon(self) -> None:
        self._loop_object.post(self._begin)

    def _begin(self) -> None:
        self._loop_object.spawn(self._fetch)

    async def _fetch(self) -> None:
        try:
            first = await self._inner.next_message()
        except BaseException as error:
            self.buffer.close()
            if isinstance(error, ClientError):
                return
            raise
        if self._collector is not None:
            # `run` collects batches meanwhile.
            self._inner.ready_messages.give_back([first])
            self._inner.ready_messages.wake()
            self.buffer.put(())
            return
        fetched = []
        message: AsyncPushedMessage[ValueT] | None = first
        while message is not None:
            fetched.append(PushedMessage(message, self._loop_object))
            message = None
            if len(fetched) < self._count_max:
                message = self._inner.receive_nowait()
        self.buffer.put(fetched)


def _is_wanted(message: PushedMessage) -> bool:
    return not message.is_revoked


def _has_wanted(batch: list[PushedMessage[ValueT]]) -> bool:
    return not all(message.is_revoked for message in batch)


def _only(message: PushedMessage[ValueT]) -> tuple[PushedMessage[ValueT]]:
    return (message,)


def _same(batch: list[PushedMessage[ValueT]]) -> list[PushedMessage[ValueT]]:
    return batch


class _Messages(Iterator[PushedMessage[ValueT]]):
    """An iteration over a consumer's messages."""

    def __init__(
        self, consumer: PushConsumer[ValueT], was_opened: Callable[[], bool], auto_ack: bool
    ) -> None:
        self._consumer = consumer
        self._was_opened = was_opened
        self._auto_ack = auto_ack
        self._last: PushedMessage[ValueT] | None = None

    def __next__(self) -> PushedMessage[ValueT]:
        if self._last is not None:
            if not self._last.is_settled:
                self._last.ack()
            self._last = None
        try:
            message = self._consumer.receive()
        except ClosedError:
            if self._was_opened():
                raise StopIteration from None
            raise
        if self._auto_ack:
            self._last = message
        return message
