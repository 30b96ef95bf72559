"""Producer for programs with threads."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Generic, Never, Unpack, overload

from ..client.checks.call_check import refuse_names
from ..client.checks.misuse import explained, knows_elsewhere
from ..client.checks.other_names import PRODUCER
from ..client.connection.client import Client as AsyncClient
from ..client.core.sends import Selector
from ..client.errors import ClientError, UndeliveredError
from ..client.messages.body_types import PlainBody, SentT
from ..client.messages.message import Message, MessageQueue, SendResult
from ..client.messages.sendable import check_sendable, wrong_arguments
from ..client.options.send_options import DEFAULT_GROUP, ProducerOptions
from ..client.sending.producer import Producer as AsyncProducer
from ..client.tasks.clock import monotonic_ms
from .client import Client, TracedMember
from .forwarded import forwarded
from .loop_object import ExitInfo, LoopObject
from .loop_thread import Waiter
from .send_buffer import Delivery, SendBuffer
from .send_queue import QueuedSend, SendQueue

logger = logging.getLogger(__name__)


@knows_elsewhere(PRODUCER)
class Producer(TracedMember[AsyncProducer[SentT]], Generic[SentT]):
    """Sends messages; the blocking `trocket.client.Producer`.

    Use: `with Producer("rocketmq://127.0.0.1:9876", group="g") as producer:`. Leaving the block
    waits for what `send_soon` took (`drain`). Any number of threads may use one producer.

    Args:
      client: a URL, or an open Client that is shared with others.
      group: of producers that stand in for one another.
      serializer: converts bodies that are neither bytes nor str to bytes or str; None: there are
        no such bodies.
      options: see ProducerOptions; those of ClientOptions only with a URL. Selectors, serializers
        and interceptors are called in the loop's thread: they must not block.

    Raises: ConfigurationError: an argument cannot be right.
    """

    @overload
    def __init__(
        self: Producer[PlainBody],
        client: str | Client,
        *,
        group: str = DEFAULT_GROUP,
        serializer: None = None,
        **options: Unpack[ProducerOptions],
    ) -> None: ...
    @overload
    def __init__(
        self,
        client: str | Client,
        *,
        group: str = DEFAULT_GROUP,
        serializer: Callable[[SentT], bytes | str],
        **options: Unpack[ProducerOptions],
    ) -> None: ...
    @explained
    def __init__(
        self,
        client: str | Client,
        *,
        group: str = DEFAULT_GROUP,
        serializer: Any = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        self._start(
            client,
            lambda inner: AsyncProducer(inner, group=group, serializer=serializer, **options),
        )

    def _start(
        self, client: str | Client, make: Callable[[str | AsyncClient], AsyncProducer[SentT]]
    ) -> None:
        super().__init__(client, make)
        # Made by _enter, when it is opened:
        self._buffer: SendBuffer
        self._queue: SendQueue
        self._has_interceptors = False

    def _enter(self, inner: AsyncProducer[SentT]) -> LoopObject:
        config = inner.sender.config
        self._buffer = SendBuffer(config.send_buffer_count_max, config.send_buffer_size_max)
        self._has_interceptors = bool(inner.client.interceptors)
        self._queue = SendQueue(inner, self._buffer)
        loop_object = LoopObject(inner, str(self), self._queue.finish)
        loop_object.on_over = self._buffer.give_up
        return loop_object

    def _leave(self, loop_object: LoopObject, exit_info: ExitInfo) -> None:
        kind, error, _ = exit_info
        self._buffer.close()
        try:
            if kind is None or issubclass(kind, Exception):
                self._flush_soon(loop_object)
                self._buffer.drain()
        except UndeliveredError:
            if error is None:
                raise
            logger.exception("messages were not delivered when the producer was closed")
        except BaseException as interrupt:
            # Ctrl-C during the wait: unconfirmed messages are given up.
            exit_info = type(interrupt), interrupt, interrupt.__traceback__
            raise
        finally:
            loop_object.close(exit_info)

    def close(self) -> None:
        """Wait until all messages of `send_soon` are confirmed or given up, and close the producer.

        The second time, and in a forked child, it does nothing.

        Raises: UndeliveredError: as `drain`; it is closed all the same.
        """
        super().close()

    # Sending

    def send(
        self,
        message: Message[SentT | str | bytes],
        *more: Never,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout_s: float | None = None,
        **unknown: Never,
    ) -> SendResult:
        """Send a message and wait until a broker has stored it.

        A failed try is repeated on another broker, `retry_times` times within the time, and while
        no broker can be reached, until the time is over; a message may then be stored twice. A
        message for a certain queue (given here, by a selector, or by its sharding key) is tried
        once: elsewhere it would be out of order.

        Args:
          queue: where to; None: a queue of the topic in turn.
          selector: chooses the queue.
          timeout_s: seconds for all tries; None: the producer's `send_timeout_s`.

        Raises:
          MessageRefusedError: no broker would take it.
          RouteNotFoundError: no name server knows the topic.
          SendError: all tries failed; the message may be stored nevertheless if one timed out.
          ServerError: the broker refused it, and would refuse it again.
          ClosedError; ForkedError; ConnectError: no name server answers.
        """
        if unknown:
            refuse_names("send", unknown)
        if more:
            raise wrong_arguments("send", message, more)
        if message.__class__ is not Message:
            check_sendable(message)
        if self._has_interceptors:
            return self._call(
                self._inner.send, message, queue=queue, selector=selector, timeout_s=timeout_s
            )
        loop_object = self._opened()
        loop_object.check_thread()
        waiter: Waiter[SendResult] = Waiter()
        loop_object.thread.post(
            self._send, loop_object, waiter, message, queue, selector, timeout_s, waiter=waiter
        )
        return loop_object.wait_for(waiter, waiter)

    def _send(
        self,
        loop_object: LoopObject,
        waiter: Waiter[SendResult],
        message: Message[SentT | str | bytes],
        queue: MessageQueue | None,
        selector: Selector | None,
        timeout_s: float | None,
    ) -> None:
        """`send` in the loop; it takes no task if only the answer has to be waited for."""
        sender, accumulator = self._inner.sender, self._inner.accumulator
        on_end = partial(_answer, loop_object, waiter)
        try:
            if (
                accumulator is not None
                and selector is None
                and accumulator.take(message, queue, timeout_s, on_end)
            ):
                loop_object.waiters.add(waiter)
                return
            prepared = sender.packer.message(message)
            send = sender.new_send(prepared, queue, selector, timeout_s)
            has_begun = sender.begin(send, loop_object.spawn, on_end, at_once=True)
        except Exception as error:  # noqa: BLE001 - raised in the calling thread
            waiter.fail(error)
            return
        if has_begun:
            loop_object.waiters.add(waiter)
        else:
            loop_object.run(waiter, None, sender.send, (send,), {})

    send_batch: Final = forwarded(AsyncProducer.send_batch)
    send_oneway: Final = forwarded(AsyncProducer.send_oneway)

    def send_soon(
        self,
        message: Message[SentT | str | bytes],
        *more: Never,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
    ) -> Delivery:
        """Send a message without waiting for its confirmation; wait for room in the buffer only.

        Waits while the buffer is full (`send_buffer_count_max`, `send_buffer_size_max`). Messages
        of one thread are sent in order; those to one queue may change places if one is tried
        again. A message whose topic has no known route yet holds up those behind it.

        Returns: a Delivery, to be asked for its result or left to `drain`.
        Raises: ClosedError; ForkedError; MessageRefusedError: it is no Message. Anything else is
          the Delivery's.
        """
        if more:
            raise wrong_arguments("send_soon", message, more)
        if message.__class__ is not Message:
            check_sendable(message, "send_soon")
        loop_object = self._opened()
        loop_object.check_thread()
        body = message.body
        # A serializer runs in the loop, so the size of other bodies is not known here.
        size = len(body) if isinstance(body, bytes | str | bytearray | memoryview) else 0
        delivery = Delivery(message, size, self._buffer)
        context = loop_object.thread.context_for() if self._has_interceptors else None
        self._buffer.enter(delivery)
        self._queue.put(
            loop_object, QueuedSend(delivery, queue, timeout_s, monotonic_ms() / 1000, context)
        )
        return delivery

    def drain(self) -> None:
        """Wait until all messages of `send_soon` are confirmed or given up.

        Raises: UndeliveredError: some were given up, and their Delivery was not looked at.
        """
        loop_object = self._opened()
        loop_object.check_thread()
        self._flush_soon(loop_object)
        self._buffer.drain()

    def _flush_soon(self, loop_object: LoopObject) -> None:
        if self._inner.accumulator is not None:
            loop_object.post(self._queue.flush)

    recall: Final = forwarded(AsyncProducer.recall)
    queues: Final = forwarded(AsyncProducer.queues)

    resend: Final = forwarded(AsyncProducer.resend)

    # Request and reply

    request: Final = forwarded(AsyncProducer.request)
    reply: Final = forwarded(AsyncProducer.reply)


def _answer(
    loop_object: LoopObject,
    waiter: Waiter[SendResult],
    result: SendResult | None,
    error: ClientError | None,
) -> None:
    """Give the outcome of a `send` to the thread that waits for it."""
    loop_object.waiters.discard(waiter)
    if result is not None:
        waiter.set(result)
    elif error is not None:
        waiter.fail(error)
