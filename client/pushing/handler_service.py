"""The handlers of a push consumer: their check, their batches, and their end.

Java counterparts: ConsumeMessageService, with MessageListenerConcurrently and
MessageListenerOrderly.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Iterator
from contextlib import contextmanager
from math import inf
from typing import Any

import anyio

from ..connection.client import Client
from ..core.batches import Batches
from ..errors import ClosedError, ConfigurationError
from ..options.push_options import PushConsumerConfig
from ..pulling.pushed_message import PushedMessage
from ..tasks.loop_call import LoopCall
from .consume_result_service import ConsumeResultService
from .delivery_queue import DeliveryQueue
from .handler_check import Handlers, check_run
from .handler_run import HandlerRun
from .handler_thread import HandlerThread, ThreadSettling
from .handling import Handling
from .reports import DirectCall


class HandlerService:
    """The handlers of one push consumer.

    Lifecycle: created with its consumer; `run` one after another; `stop` ends the one that runs.

    Args:
      client: the consumer's.
      config: configuration of the consumer.
      topics: the topics that it subscribes to, as the program knows them.
      ready: the messages that are ready for delivery.
      results: hands out the next messages of orderly queues.
      next_message: waits for the next message; raises ClosedError when the consumer is stopped.
    """

    def __init__(
        self,
        client: Client,
        config: PushConsumerConfig,
        topics: Collection[str],
        ready: DeliveryQueue,
        results: ConsumeResultService,
        next_message: Callable[[], Awaitable[PushedMessage]],
    ) -> None:
        self._client = client
        self._config = config
        self._topics = topics
        self._ready = ready
        self._results = results
        self._next_message = next_message
        self._handler: Any = None
        self._direct_call: DirectCall | None = None
        self._running: HandlerRun | None = None

    @property
    def handler(self) -> Any:
        """The argument of `run`; None while `run` is not running."""
        return self._handler

    @property
    def direct_call(self) -> DirectCall | None:
        """Calls the handler with a message that an administrator sends; None: it does not run."""
        return self._direct_call

    async def run(
        self, handler: object, concurrency: int, in_loop: bool, batch: int | None, linger_s: float
    ) -> None:
        """Call handlers until `stop`; see `PushConsumer.run`."""
        handlers = self.check(handler, concurrency, batch, linger_s)
        loop_call = LoopCall()
        handling = Handling(
            handlers,
            self._config.consume_timeout_s,
            None if in_loop else ThreadSettling(self._client, loop_call),
            is_batch=batch is not None,
            is_orderly=self._config.is_orderly,
        )
        batches = None if batch is None else self.batches(batch, linger_s, handlers)
        next_messages = self._next_one if batches is None else batches.next_batch

        async def call(message: PushedMessage) -> None:
            thread = HandlerThread("trocket-handler", loop_call)
            try:
                await handling.call([message], thread)
            finally:
                thread.end()

        with self.handling(handler, call):
            run = HandlerRun(self._client, handling, next_messages, concurrency, loop_call)
            self._running = run
            try:
                await run.work()
            finally:
                self._running = None
                if batches is not None:
                    batches.give_back()

    def batches(self, size_max: int, linger_s: float, handlers: Handlers) -> BatchCollector:
        """A collector of the batches of one `run`."""
        return BatchCollector(
            self._client,
            self._ready,
            self._results,
            Batches(size_max, linger_s),
            batch_key(handlers, self._config.is_orderly),
            is_orderly=self._config.is_orderly,
        )

    async def _next_one(self) -> list[PushedMessage]:
        return [await self._next_message()]

    def check(
        self, handler: object, concurrency: object, batch: object, linger_s: object
    ) -> Handlers:
        """Check the arguments of `run`.

        Raises: ConfigurationError: one is wrong.
        """
        check_run(concurrency, batch, linger_s)
        return Handlers(handler, self._topics, is_batch=batch is not None)

    @contextmanager
    def handling(self, handler: object, direct_call: DirectCall) -> Iterator[None]:
        """Give messages to this handler only, inside a `with` block.

        Args:
          handler: what was given to `run`.
          direct_call: calls it with a message that an administrator sends.

        Raises: ConfigurationError: the consumer runs a handler already.
        """
        if self._handler is not None:
            raise ConfigurationError("this consumer runs a handler already")
        self._handler, self._direct_call = handler, direct_call
        try:
            yield
        finally:
            self._handler = self._direct_call = None

    @property
    def handler_timeout_s(self) -> float:
        """Time that handlers have when the consumer is stopped, unless `stop` says another."""
        return self._config.close_timeout_s - self._config.leave_timeout_s

    def stop(self, timeout_s: float | None) -> None:
        """Cut the handlers that have not ended after this time; None: `handler_timeout_s`."""
        if self._running is not None:
            self._running.stop(self.handler_timeout_s if timeout_s is None else timeout_s)

    async def wait_ended(self) -> None:
        """Wait until no handler runs; in a handler, return at once."""
        if self._running is not None:
            await self._running.wait_ended()


class BatchCollector:
    """Collects the messages of a consumer into batches, each for one handler.

    One task collects at a time: otherwise each would wait with a part of the messages.

    Args:
      client: the consumer's.
      ready: the messages that are ready for delivery.
      results: hands out the next messages of orderly queues.
      batches: those that are filling up.
      key_of: messages with the same key go into the same batch.
      is_orderly: a batch has messages of one queue, in order.
    """

    def __init__(
        self,
        client: Client,
        ready: DeliveryQueue,
        results: ConsumeResultService,
        batches: Batches[PushedMessage],
        key_of: Callable[[PushedMessage], Hashable],
        *,
        is_orderly: bool,
    ) -> None:
        self._client = client
        self._ready = ready
        self._results = results
        self._batches = batches
        self._key_of = key_of
        self._is_orderly = is_orderly
        self._turn = anyio.Lock()

    async def next_batch(self) -> list[PushedMessage]:
        """Wait for the next batch: one to `size_max` messages of one key, not settled.

        Raises: ClosedError: the consumer is not open, or was stopped.
        """
        async with self._turn:
            while True:
                self._client.check_open()
                if self._ready.is_stopped:
                    self._batches.take_all()
                    raise ClosedError("the consumer was stopped")
                batch = self._collect()
                if batch is not None:
                    wanted = [message for message in batch if not message.is_revoked]
                    if wanted:
                        return wanted
                    continue
                due_s = self._batches.due_s
                wait_s = inf if due_s is None else due_s - self._client.now_s()
                with anyio.move_on_after(wait_s):
                    await self._ready.wait()

    def give_back(self, not_begun: Iterable[PushedMessage] = ()) -> None:
        """Give back the messages that no handler had: the consumer may go on after the `run`.

        Args:
          not_begun: those of batches that were handed out, and not given to a handler.
        """
        messages = [*not_begun, *self._batches.take_all()]
        if self._ready.is_stopped:  # they come again to others
            return
        if self._is_orderly:  # of each queue, one at a time is ready
            for message in messages:
                message._put_back()
        else:
            self._ready.give_back(messages)
        self._ready.wake()

    def _collect(self) -> list[PushedMessage] | None:
        """Add the messages that are there until a batch is full; returns it, or one that is due."""
        now_s = self._client.now_s()
        batches = self._batches
        due = batches.take_due(now_s)  # first, so that no other topic can delay it
        if due is not None:
            return due
        if self._is_orderly:
            for key, last in batches.last_items:
                full = self._fill(key, last, now_s)
                if full is not None:
                    return full
        while (message := self._ready.take()) is not None:
            key = self._key_of(message)
            full = batches.add(key, message, now_s)
            if full is None and self._is_orderly:
                full = self._fill(key, message, now_s)
            if full is not None:
                return full
        return batches.take_due(now_s)

    def _fill(self, key: Hashable, last: PushedMessage, now_s: float) -> list[PushedMessage] | None:
        """Add the messages behind the last one of an orderly queue; returns the full batch."""
        results = self._results
        while True:
            message = self._ready.take_from(lambda last=last: results.take_next(last))  # type: ignore[misc]
            if message is None:
                return None
            full = self._batches.add(key, message, now_s)
            if full is not None:
                return full
            last = message


def batch_key(handlers: Handlers, is_orderly: bool) -> Callable[[PushedMessage], Hashable]:
    """The key that the messages of a batch share: the queue, if orderly; the topic, if each topic
    has a handler."""
    if is_orderly:
        return lambda message: (message.queue, message.topic if handlers.is_by_topic else "")
    if handlers.is_by_topic:
        return lambda message: message.topic
    return lambda message: ""
