"""Consuming as a member of a group, for programs with threads."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Final, Unpack, overload

from ..client.core.subscription import FilterClass, MessageSelector
from ..client.errors import ClientError, ClosedError, ConfigurationError
from ..client.message import MessageQueue
from ..client.push_consumer import PushConsumer as AsyncPushConsumer
from ..client.push_options import CONCURRENCY, PushConsumerOptions
from ..client.pushed_message import PushedMessage as AsyncPushedMessage
from ..remoting.bodies import SubscriptionData
from .client import Client, Member
from .forwarded import forwarded
from .handler_threads import HandlerThreads
from .loop_object import ExitInfo, LoopObject
from .loop_thread import in_thread
from .message_buffer import FETCH_MAX, MessageBuffer
from .pushed_message import Handler, PushedMessage

CONCURRENCY_MAX: Final = 1024


class PushConsumer(Member[AsyncPushConsumer]):
    """Consumes as a member of a group; the blocking `trocket.client.PushConsumer`.

    Use::

        with PushConsumer(url, group="g", subscriptions={"Topic": "*"}) as consumer:
            for message in consumer:
                ...

    A message is acknowledged when the next one is asked for; one that a loop broke off at comes
    again. `messages(auto_ack=False)` leaves it to `message.ack()` and `message.retry()`, and `run`
    calls a handler in many threads. Any number of threads may use one consumer.

    Args:
      client: a URL, or an open Client that is shared with others.
      group: its group.
      subscriptions: topics, with what is wanted of each: "*", tags ("A || B"), Tag, Sql, or
        FilterClass.
      options: see PushConsumerOptions; those of ClientOptions only with a URL. The listener and
        the interceptors are called in the loop's thread: they must not block.

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
        super().__init__(
            client,
            lambda inner: AsyncPushConsumer(
                inner, group=group, subscriptions=subscriptions, **options
            ),
        )
        self._buffer: MessageBuffer[PushedMessage]
        self._handler: Handler | None = None

    def _enter(self, inner: AsyncPushConsumer) -> LoopObject:
        loop_object = super()._enter(inner)
        fetcher = _Fetcher(inner, loop_object)
        self._buffer = fetcher.buffer
        loop_object.on_over = self._buffer.end
        return loop_object

    def _leave(self, loop_object: LoopObject, exit_info: ExitInfo) -> None:
        self._buffer.end()
        loop_object.close(exit_info)

    # What it is

    @property
    def subscriptions(self) -> list[SubscriptionData]:
        """The subscriptions as brokers have them: with namespace, and with the retry topic."""
        return self._inner.subscriptions

    @property
    def is_orderly(self) -> bool:
        """Whether each queue's messages come one after the other."""
        return self._inner.is_orderly

    @property
    def consume_timeout_s(self) -> float:
        """Seconds that a handler may take."""
        return self._inner.consume_timeout_s

    @property
    def started_ms(self) -> int:
        """When it was opened, ms since 1970; 0: it was not."""
        return self._inner.started_ms

    @property
    def handler(self) -> Handler | None:
        """What `run` calls now."""
        return self._handler

    @property
    def positions(self) -> dict[MessageQueue, int]:
        """Where each queue's consumption is, in messages, as far as something was consumed."""
        return self._call_plain(lambda: self._inner.positions)

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that this member has now, sorted."""
        return self._call_plain(lambda: self._inner.queues)

    # Handing out

    def __iter__(self) -> Iterator[PushedMessage]:
        return self.messages()

    def messages(self, *, auto_ack: bool = True) -> Iterator[PushedMessage]:
        """All messages that come, until `stop`; several threads may iterate at the same time.

        Args:
          auto_ack: acknowledge each when the next one is asked for, unless it is settled already.
        """
        return _Messages(self, auto_ack)

    @overload
    def receive(self) -> PushedMessage: ...
    @overload
    def receive(self, *, timeout_s: float | None) -> PushedMessage | None: ...
    def receive(self, *, timeout_s: float | None = None) -> PushedMessage | None:
        """The next message, to be settled by the caller.

        Args:
          timeout_s: seconds to wait for it, >= 0; None: without end.

        Returns: the message; None: there was none in time.
        Raises: ClosedError: the consumer was stopped; ForkedError.
        """
        self._opened().check_thread()
        return self._buffer.take(timeout_s)

    def run(self, handler: Handler, *, concurrency: int = CONCURRENCY) -> None:
        """Call a handler for each message, in threads, until `stop`.

        An exception is logged, and the message comes again; RetryLater says when. A handler that
        takes longer than `consume_timeout_s` cannot be broken off: that is logged, and the message
        comes again; the thread takes no other one until it returns. Returns when all handlers
        have, but for those that are too late already. Ctrl-C ends it at once: handlers go on by
        themselves, and get no further messages.

        Args:
          handler: may block; its threads are daemons.
          concurrency: handlers at one time; 1 to 1,024.

        Raises: ConfigurationError; ClosedError; ForkedError; what a handler raises that is no
          Exception, such as SystemExit.
        """
        loop_object = self._opened()
        loop_object.check_thread()
        if not 1 <= concurrency <= CONCURRENCY_MAX:
            raise ConfigurationError(f"concurrency {concurrency} is not in 1..{CONCURRENCY_MAX}")
        if inspect.iscoroutinefunction(handler):
            raise ConfigurationError(
                "an async handler; a blocking consumer takes a plain function, and"
                " trocket.client.PushConsumer an async one"
            )

        async def consume_directly(message: AsyncPushedMessage) -> None:
            # For an administrator's `consumeMessageDirectly`.
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
        """Pull no more; iterations end, and `run` returns when its handlers have.

        Waits for nothing; signal handlers may call it.

        Raises: ClosedError: the consumer is not open; ForkedError.
        """
        self._opened().post(self._inner.stop)
        self._buffer.end()

    # Offsets

    rebalance: Final = forwarded(AsyncPushConsumer.rebalance)
    commit: Final = forwarded(AsyncPushConsumer.commit)
    reset: Final = forwarded(AsyncPushConsumer.reset)


class _Fetcher:
    """Brings messages from the async consumer to the buffer, when it is asked.

    Not part of the consumer, which may be forgotten while this waits for a message.
    """

    def __init__(self, inner: AsyncPushConsumer, loop_object: LoopObject) -> None:
        self._inner = inner
        self._loop_object = loop_object
        # Interceptors hear of a message when it is handed out: then it is brought alone.
        self._count_max = 1 if inner.client.interceptors else FETCH_MAX
        self.buffer: MessageBuffer[PushedMessage] = MessageBuffer(self._fetch_soon, _is_wanted)

    def _fetch_soon(self) -> None:
        self._loop_object.post(self._begin)

    def _begin(self) -> None:
        self._loop_object.spawn(self._fetch)

    async def _fetch(self) -> None:
        try:
            message: AsyncPushedMessage | None = await self._inner.receive()
        except BaseException as error:
            self.buffer.end()
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


class _Messages(Iterator[PushedMessage]):
    """An iteration over a consumer's messages."""

    def __init__(self, consumer: PushConsumer, auto_ack: bool) -> None:
        self._consumer = consumer
        self._auto_ack = auto_ack
        self._last: PushedMessage | None = None

    def __next__(self) -> PushedMessage:
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
