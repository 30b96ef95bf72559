"""How `send_soon` of many threads gets into the loop: by a deque and one wake-up for many messages.

A calling thread appends to the outbox and goes on. The loop is told only if it does not know yet
that there is something; one task then takes all that is there, in the order of the outbox.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from functools import partial
from typing import Final, NamedTuple

from ..client.delivery import Delivery as AsyncDelivery
from ..client.errors import ClientError, ClosedError
from ..client.message import MessageQueue, SendResult
from ..client.producer import Producer as AsyncProducer
from .delivery import Delivery, Window
from .door import Resident
from .quick_send import QuickSend, Spawn

CHUNK: Final = 64
"""Messages encoded in one go, before the loop writes and reads: so many share a system call."""


class Soon(NamedTuple):
    """A message of the outbox, and the caller's context variables if somebody may look at them."""

    delivery: Delivery
    queue: MessageQueue | None
    timeout_s: float | None
    context: contextvars.Context | None


class Pump:
    """Takes messages from the outbox to the async producer.

    Lifecycle: as its resident's; `put` from any thread, all else in the loop.

    Args:
      inner: open while there are messages.
      window: told when a message is confirmed or given up.
      is_quick: nobody looks at the messages on their way, see QuickSend.
    """

    def __init__(self, inner: AsyncProducer, window: Window, *, is_quick: bool) -> None:
        self._inner = inner
        self._is_quick = is_quick
        self._window = window
        self._outbox: deque[Soon] = deque()
        self._is_told = False
        self._is_running = False
        # Messages that a QuickSend has under way: the async producer does not know of them.
        self._quick_count = 0
        self._idle = asyncio.Event()
        self._spawn: Spawn

    def put(self, resident: Resident, soon: Soon) -> None:
        """Have a message sent; its Delivery is in the window."""
        self._outbox.append(soon)
        if not self._is_told:
            self._is_told = True
            resident.post(self._begin, resident)

    async def finish(self) -> None:
        """Wait until the outbox is empty, and what the async producer does not wait for is done."""
        while self._is_running or self._quick_count:
            self._idle.clear()
            await self._idle.wait()

    def _begin(self, resident: Resident) -> None:
        if not self._is_running:
            self._is_running = True
            self._spawn = resident.spawn
            resident.spawn(self._run())

    async def _run(self) -> None:
        outbox = self._outbox
        try:
            while outbox:
                for _ in range(min(len(outbox), CHUNK)):
                    await self._send(outbox.popleft())
                if not outbox:
                    # Whoever appends after this tells; who did before is seen here.
                    self._is_told = False
                else:
                    await asyncio.sleep(0)
        finally:
            self._is_running = False
            self._idle.set()

    async def _send(self, soon: Soon) -> None:
        delivery, queue, timeout_s, context = soon
        window = self._window
        try:
            if context is None and self._is_quick:
                on_end = partial(self._on_quick_end, delivery)
                quick = QuickSend(self._inner, queue, None, timeout_s, self._spawn, on_end)
                if quick.begin(delivery.message):
                    self._quick_count += 1
                    return
            sending = self._inner.send_soon(delivery.message, queue=queue, timeout_s=timeout_s)
            # Awaited here, not in a task of its own: what is behind it stays behind it.
            sent = await asyncio.get_running_loop().create_task(sending, context=context)
        except asyncio.CancelledError:
            window.leave(delivery, None, ClosedError("the producer was closed meanwhile"))
            raise
        except Exception as error:  # noqa: BLE001 - the delivery's
            window.leave(delivery, None, error)
            return
        # The window keeps what nobody looked at, not the async producer.
        sent._is_looked_at = True
        self._spawn(self._follow(delivery, sent))

    def _on_quick_end(
        self, delivery: Delivery, result: SendResult | None, error: Exception | None
    ) -> None:
        self._window.leave(delivery, result, error)
        self._quick_count -= 1
        if not self._quick_count:
            self._idle.set()

    async def _follow(self, delivery: Delivery, sent: AsyncDelivery) -> None:
        result: SendResult | None = None
        failure: Exception | None = ClosedError("the producer was closed before it was confirmed")
        try:
            result = await sent.wait()
            failure = None
        except ClientError as error:
            failure = error
        finally:
            self._window.leave(delivery, result, failure)
