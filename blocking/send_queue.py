"""Queue of `send_soon`: messages of calling threads, taken by one task in the loop.

A calling thread appends to the queue and goes on. It wakes the loop only if the loop does not know
yet that there is something; one task then takes all that is there, in order.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from functools import partial
from typing import Final, NamedTuple

from ..client.core.sends import Send
from ..client.errors import ClosedError
from ..client.messages.message import MessageQueue, SendResult
from ..client.sending.producer import Producer as AsyncProducer
from ..client.sending.send_buffer import Delivery as AsyncDelivery
from .loop_object import LoopObject
from .send_buffer import Delivery, SendBuffer

CHUNK: Final = 64
"""Messages encoded before the loop writes and reads again: they share a system call."""


class QueuedSend(NamedTuple):
    """A message that waits for the loop.

    Attributes:
      begin_s: when it was put here, by the loop's clock.
      context: the caller's context variables; None: the producer has no interceptors to see them.
    """

    delivery: Delivery
    queue: MessageQueue | None
    timeout_s: float | None
    begin_s: float
    context: contextvars.Context | None


class SendQueue:
    """Takes messages from calling threads to the async producer.

    Lifecycle: as its producer's; `put` from any thread, all else in the loop.

    Args:
      inner: open while there are messages.
      buffer: settles a message that is confirmed or given up.
    """

    def __init__(self, inner: AsyncProducer, buffer: SendBuffer) -> None:
        self._inner = inner
        self._sender = inner.sender
        self._accumulator = inner.accumulator
        self._buffer = buffer
        self._queue: deque[QueuedSend] = deque()
        self._is_woken = False
        self._is_running = False
        self._is_flush_wanted = False
        # Messages that were sent without the async producer, so its `drain` does not count them.
        self._sending_count = 0
        self._idle = asyncio.Event()
        self._loop_object: LoopObject
        # Bound once: fewer objects for each unconfirmed message, and so fewer garbage collections.
        self._take_end = self._on_end

    def put(self, loop_object: LoopObject, queued: QueuedSend) -> None:
        """Have a message sent; its Delivery is in the buffer."""
        self._queue.append(queued)
        if not self._is_woken:
            self._is_woken = True
            loop_object.post(self._begin, loop_object)

    async def finish(self) -> None:
        """Wait until the queue is empty, and what the async producer does not wait for is done."""
        while self._is_running or self._sending_count:
            self.flush()
            self._idle.clear()
            await self._idle.wait()

    def _begin(self, loop_object: LoopObject) -> None:
        if not self._is_running:
            self._is_running = True
            self._loop_object = loop_object
            loop_object.spawn(self._run)

    async def _run(self) -> None:
        queue = self._queue
        try:
            while queue:
                for _ in range(min(len(queue), CHUNK)):
                    queued = queue.popleft()
                    if queued.context is not None or not self._begin_send(queued):
                        await self._send(queued)
                if not queue:
                    # A thread that appends after this wakes the loop; what came before is seen.
                    self._is_woken = False
                else:
                    await asyncio.sleep(0)
        finally:
            self._is_running = False
            if self._is_flush_wanted:
                self._is_flush_wanted = False
                self.flush()
            self._idle.set()

    def _begin_send(self, queued: QueuedSend) -> bool:
        """Begin a send without a task. False: the route or the connection has to be waited for."""
        try:
            on_end = partial(self._take_end, queued.delivery)
            batches, message = self._accumulator, queued.delivery.message
            if batches is not None and batches.take(
                message, queued.queue, queued.timeout_s, on_end
            ):
                self._sending_count += 1
                return True
            if not self._sender.begin(self._new_send(queued), self._loop_object.spawn, on_end):
                return False
            self._sending_count += 1
        except Exception as error:  # noqa: BLE001 - the delivery's
            self._buffer.leave(queued.delivery, None, error)
        return True

    def flush(self) -> None:
        """Send the messages that wait for a batch; after those that were put here before."""
        if self._accumulator is None:
            return
        if self._is_running or self._queue:
            self._is_flush_wanted = True
        else:
            self._accumulator.flush()

    def _new_send(self, queued: QueuedSend) -> Send:
        sender = self._sender
        prepared = sender.packer.message(queued.delivery.message)
        return sender.new_send(prepared, queued.queue, timeout_s=queued.timeout_s)

    async def _send(self, queued: QueuedSend) -> None:
        delivery = queued.delivery
        try:
            # Awaited here, not in a new task, so that later messages stay behind it.
            if queued.context is None:
                on_end = partial(self._take_end, delivery)
                send = self._new_send(queued)
                # It has waited behind earlier ones, perhaps for the same route.
                send.start_s = queued.begin_s
                await self._sender.begin_when_ready(send, self._loop_object.spawn, on_end)
                self._sending_count += 1
            else:
                await self._send_in_context(queued)
        except asyncio.CancelledError:
            self._buffer.leave(delivery, None, ClosedError("the producer was closed meanwhile"))
            raise
        except Exception as error:  # noqa: BLE001 - the delivery's
            self._buffer.leave(delivery, None, error)

    def _on_end(
        self, delivery: Delivery, result: SendResult | None, error: Exception | None
    ) -> None:
        self._buffer.leave(delivery, result, error)
        self._sending_count -= 1
        if not self._sending_count:
            self._idle.set()

    async def _send_in_context(self, queued: QueuedSend) -> None:
        """Send in the caller's context, whose variables interceptors read."""
        delivery = queued.delivery
        topic = self._inner.client.with_namespace(delivery.message.topic)
        if self._inner.client.known_publish_info(topic) is None:
            # It has waited behind earlier ones, perhaps for the same route.
            await self._sender.look_up(topic, queued.begin_s, queued.timeout_s)
        coroutine = self._inner.send_soon(
            delivery.message, queue=queued.queue, timeout_s=queued.timeout_s
        )
        sent = await asyncio.get_running_loop().create_task(coroutine, context=queued.context)
        # The blocking buffer reports failures that were not looked at; the async one must not.
        sent.look_at()
        self._loop_object.spawn(self._follow, delivery, sent)

    async def _follow(self, delivery: Delivery, sent: AsyncDelivery) -> None:
        result: SendResult | None = None
        failure: Exception | None = ClosedError("the producer was closed before it was confirmed")
        try:
            result = await sent.wait()
            failure = None
        except Exception as error:  # noqa: BLE001 - the delivery's
            failure = error
        finally:
            self._buffer.leave(delivery, result, failure)
