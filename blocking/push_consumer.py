"""The push consumer for programs with threads."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, Unpack, overload

from ..client.body_types import ValueT
from ..client.core.subscription import FilterClass, MessageSelector
from ..client.errors import ClientError, ClosedError, ConfigurationError
from ..client.message import MessageQueue
from ..client.misuse import explained, knows_elsewhere, wrong_for
from ..client.other_names import PUSH_CONSUMER
from ..client.push_consumer import PushConsumer as AsyncPushConsumer
from ..client.push_options import CONCURRENCY, PushConsumerOptions
from ..client.pushed_message import PushedMessage as AsyncPushedMessage
from ..remoting.bodies import SubscriptionData
from .client import Client, TracedMember
from .forwarded import forwarded
from .handler_threads import HandlerThreads
from .loop_object import ExitInfo, LoopObject
from .loop_thread import in_thread
from .message_buffer import FETCH_MAX, MessageBuffer
from .pushed_message import Handler, PushedMessage

CONCURRENCY_MAX: Final = 1024
"""Largest number of handler threads of one consumer."""


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
        self._handler: Handler | None = None

    def _enter(self, inner: AsyncPushConsumer[ValueT]) -> LoopObject:
        loop_object = super()._enter(inner)
        fetcher = _Fetcher(inner, loop_object)
        self._buffer = fetcher.buffer
        loop_object.on_over = self._buffer.close
        return loop_object

    def _leave(self, loop_object: LoopObject, exit_info: ExitInfo) -> None:
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
    def handler(self) -> Handler | None:
        """The handler that `run` calls; None while `run` is not running."""
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
        """
        return _Messages(self, auto_ack)

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

    def run(self, handler: Handler[ValueT], *, concurrency: int = CONCURRENCY) -> None:
        """Call a handler with each message, in several threads, until `stop`.

        If the handler returns, the message is acknowledged. If it raises, the exception is logged
        and the message is redelivered; RetryLater sets the delay. A handler that takes longer than
        `consume_timeout_s` is logged and its message is redelivered, but a thread cannot be
        interrupted: it takes no other message until the handler returns.

        `run` returns once all handlers have returned, except those that have exceeded their time.
        Ctrl-C ends `run` at once: running handlers continue, and get no further messages.

        Args:
          handler: a plain function; it may block. Its threads are daemon threads.
          concurrency: number of threads, 1 to 1,024.

        Raises:
          ConfigurationError: `concurrency` is out of range, the handler is async, or the consumer
            runs a handler already.
          ClosedError: the consumer is not open.
          ForkedError: the consumer was opened in the parent of this process.
          BaseException: an exception of the handler that is not an Exception, such as SystemExit.
        """
        loop_object = self._opened()
        loop_object.check_thread()
        if not 1 <= concurrency <= CONCURRENCY_MAX:
            raise ConfigurationError(f"concurrency {concurrency} is not in 1..{CONCURRENCY_MAX}")
        if inspect.iscoroutinefunction(handler):
            raise ConfigurationError(
                "the handler is async: pass a plain function, or use trocket.client.PushConsumer,"
                " which takes async handlers"
            )

        async def consume_directly(message: AsyncPushedMessage) -> None:
            # For messages that an administrator sends (CONSUME_MESSAGE_DIRECTLY).
            await in_thread("trocket-handler", handler, PushedMessage(message, loop_object))

        handling = self._inner.handling(consume_directly)
        loop_object.call_plain(handling.__enter__)
        self._handler = handler
        try:
            HandlerThreads(self._buffer, handler, concurrency, self.consume_timeout_s).work()
        finally:
            self._handler = None
            loop_object.post(handling.__exit__, None, None, None)

    def stop(self) -> None:
        """Stop pulling: iterations end, and `run` returns once its handlers have returned.

        It does not wait, and it can be called in a signal handler.

        Raises:
          ClosedError: the consumer is not open.
          ForkedError: the consumer was opened in the parent of this process.
        """
        self._opened().post(self._inner.stop)
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
        held = self._inner.delivery_queue
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
        self._count_max = 1 if inner.delivery_queue.interceptors else FETCH_MAX
        self.buffer: MessageBuffer[PushedMessage[ValueT]] = MessageBuffer(
            self._fetch_soon, _is_wanted
        )

    def _fetch_soon(self) -> None:
        self._loop_object.post(self._begin)

    def _begin(self) -> None:
        self._loop_object.spawn(self._fetch)

    async def _fetch(self) -> None:
        try:
            message: AsyncPushedMessage[ValueT] | None = await self._inner.next_message()
        except BaseException as error:
            self.buffer.close()
            if isinstance(error, ClientError):
                return
            raise
        fetched = []
        while message is not None:
            fetched.append(PushedMessage(message, self._loop_object))
            message = None
            if len(fetched) < self._count_max:
                message = self._inner.receive_nowait()
        self.buffer.put(fetched)


def _is_wanted(message: PushedMessage) -> bool:
    return not message.is_revoked


class _Messages(Iterator[PushedMessage[ValueT]]):
    """An iteration over a consumer's messages."""

    def __init__(self, consumer: PushConsumer[ValueT], auto_ack: bool) -> None:
        self._consumer = consumer
        self._auto_ack = auto_ack
        self._last: PushedMessage[ValueT] | None = None

    def __next__(self) -> PushedMessage[ValueT]:
        if self._last is not None:
            self._last.ack()
            self._last = None
        try:
            message = self._consumer.receive()
        except ClosedError:
            raise StopIteration from None
        if self._auto_ack:
            self._last = message
        return message
