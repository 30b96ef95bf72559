"""Receives the messages of one subscriber, and keeps them invisible to others meanwhile."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any, Final

from ...client.errors import ClientError, ClosedError, RouteNotFoundError
from ...client.popping.popped_message import PoppedMessage
from ...client.popping.simple_consumer import SimpleConsumer
from ...client.pushing.pop_results import retry_delay_s
from ...remoting.receipt import POP_COUNT_MAX
from .configs import RocketSubscriberConfig
from .message import Delivery

logger = logging.getLogger(__name__)

RETRY_S: Final = 1.0
"""Pause after an error, in seconds."""

MISSING_PAUSE_S: Final = 0.25
"""Pause before a topic that is not there (yet) is looked up again, in seconds. A request that waits
for it would have those who send to it wait, too: a client looks a route up once at a time."""

RENEW_SHARE: Final = 0.5
"""The share of the invisible time after which it is renewed: if that fails, there is time for
another try."""

LOOKS: Final = 8
"""How often messages are looked through for one to renew, within their invisible time."""


class HeldMessage(Delivery):
    """A message that a subscriber holds until it is settled, once.

    Args:
      consumer: received it.
      popped: as received.
      config: has the times of its subscriber.
    """

    __slots__ = ("_config", "_consumer", "_lock", "_popped", "_renew_at_s", "is_settled")

    def __init__(
        self, consumer: SimpleConsumer, popped: PoppedMessage, config: RocketSubscriberConfig
    ) -> None:
        super().__init__(popped)
        self._consumer = consumer
        self._popped = popped
        self._config = config
        # Each renewal replaces the receipt by which the message is settled.
        self._lock = asyncio.Lock()
        self._renew_at_s = monotonic() + config.invisible_s * RENEW_SHARE
        self.is_settled = False

    async def _settle(self, settle: Callable[[], Awaitable[None]]) -> None:
        async with self._lock:
            if not self.is_settled:
                await settle()
                self.is_settled = True

    async def ack(self) -> None:
        """Acknowledge it. Raises: ClientError."""
        await self._settle(lambda: self._consumer.ack(self._popped))

    async def nack(self, delay_s: float | None = None) -> None:
        """Have it delivered again, or give it up after its last try. Raises: ClientError."""
        if self._popped.delivery_attempt > self._config.max_retries:
            await self.reject()
            return
        if delay_s is None:
            delay_s = self._config.nack_delay_s
        if delay_s is None:
            delay_s = retry_delay_s(0, self._popped.reconsume_times)
        await self.give_back(delay_s)

    async def reject(self) -> None:
        """Give it up. Raises: ClientError."""
        await self._settle(lambda: self._consumer.dead_letter(self._popped))

    async def give_back(self, delay_s: float = 0.0) -> None:
        """Have it delivered again after some seconds. Raises: ClientError."""
        await self._settle(lambda: self._consumer.change_invisible(self._popped, delay_s))

    async def renew_if_due(self) -> None:
        """Keep it invisible to others, if half of its time is over; failures are logged."""
        if monotonic() < self._renew_at_s:
            return
        invisible_s = self._config.invisible_s
        async with self._lock:
            if self.is_settled:
                return
            try:
                await self._consumer.change_invisible(self._popped, invisible_s)
            except ClientError as error:
                logger.warning("%r may be delivered twice: not renewed: %s", self, error)
                return
            self._renew_at_s = monotonic() + invisible_s * RENEW_SHARE


class TopicReader:
    """Receives messages of a topic that may not be there yet.

    Args:
      consumer: open.
      config: has the topic and the invisible time.
    """

    def __init__(self, consumer: SimpleConsumer, config: RocketSubscriberConfig) -> None:
        self._consumer = consumer
        self._config = config
        self._is_found = False

    async def receive(self, count: int, wait_s: float) -> list[HeldMessage] | None:
        """Receive messages; None: the topic is not there, which is not waited for.

        Raises: ClientError: see `SimpleConsumer.receive`.
        """
        try:
            messages = await self._consumer.receive(
                count,
                invisible_s=self._config.invisible_s,
                wait_s=wait_s if self._is_found else 0.0,
            )
        except RouteNotFoundError as error:
            self._is_found = False
            logger.debug("waiting for %s: %s", self._config.topic, error)
            return None
        self._is_found = True
        return [HeldMessage(self._consumer, each, self._config) for each in messages]


class Receiver:
    """Receives messages while workers are free, and hands each to one.

    Lifecycle: `start` and `stop`, once each.

    Args:
      consumer: open; the receiver closes it at its end.
      consume: FastStream's way from a raw message to the handler; it settles the message.
      is_running: false from the time on when `consume` takes no more messages.
      config: has the limits of its subscriber.
    """

    def __init__(
        self,
        consumer: SimpleConsumer,
        consume: Callable[[Delivery], Awaitable[Any]],
        is_running: Callable[[], bool],
        config: RocketSubscriberConfig,
    ) -> None:
        self._consumer = consumer
        self._reader = TopicReader(consumer, config)
        self._consume = consume
        self._is_running = is_running
        self._config = config
        self._workers: set[asyncio.Task[None]] = set()
        self._held: set[HeldMessage] = set()
        self._has_room = asyncio.Event()
        self._is_stopping = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to receive."""
        name = f"faststream-{self._config.topic}"
        self._task = asyncio.get_running_loop().create_task(self._run(), name=name)

    async def stop(self) -> None:
        """Receive no more, cancel what still runs, and wait for the end.

        Called by a handler, it does not wait: the end comes after that handler's.
        """
        self._is_stopping = True
        self._has_room.set()
        if asyncio.current_task() in self._workers:
            return
        for worker in self._workers:
            worker.cancel()
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        keeper = asyncio.get_running_loop().create_task(self._keep())
        try:
            while not self._is_stopping:
                await self._receive()
            if self._workers:
                await asyncio.wait(self._workers)
        finally:
            keeper.cancel()
            for held in list(self._held):
                await give_back(held)
            await self._close()

    async def _close(self) -> None:
        try:
            await self._consumer.close()
        except ClientError as error:
            logger.warning("closing the consumer of %s: %s", self._config.topic, error)

    async def _receive(self) -> None:
        room = self._config.max_workers - len(self._workers)
        if room <= 0:
            self._has_room.clear()
            await self._has_room.wait()
            return
        try:
            messages = await self._reader.receive(min(room, POP_COUNT_MAX), self._config.wait_s)
        except ClosedError:
            self._is_stopping = True
        except ClientError as error:
            logger.warning("receiving from %s: %s", self._config.topic, error)
            await asyncio.sleep(RETRY_S)
        else:
            if messages is None:
                await asyncio.sleep(MISSING_PAUSE_S)
            for held in messages or ():
                self._hand_out(held)

    def _hand_out(self, held: HeldMessage) -> None:
        self._held.add(held)
        worker = asyncio.get_running_loop().create_task(self._work(held))
        self._workers.add(worker)
        worker.add_done_callback(self._on_done)

    def _on_done(self, worker: asyncio.Task[None]) -> None:
        self._workers.discard(worker)
        self._has_room.set()

    async def _work(self, held: HeldMessage) -> None:
        if self._is_stopping or not self._is_running():
            return  # it is given back at the end
        await self._consume(held)
        # What a handler has not settled when it ends comes again when its time is over.
        self._held.discard(held)

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(self._config.invisible_s / LOOKS)
            await asyncio.gather(*(each.renew_if_due() for each in list(self._held)))


async def give_back(held: HeldMessage) -> None:
    """Have a message that no handler took delivered again at once; failures are logged."""
    try:
        await held.give_back()
    except ClientError as error:
        logger.warning("%r comes again only later: %s", held, error)
