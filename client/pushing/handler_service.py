"""The handlers of a push consumer: their check, their batches, and their end.

Java counterparts: ConsumeMessageService, with MessageListenerConcurrently and
MessageListenerOrderly.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

from ..connection.client import Client
from ..errors import ConfigurationError
from ..options.push_options import PushConsumerConfig
from ..tasks.loop_call import LoopCall
from .batches import BatchCollector, Batches, batch_key
from .consume_result_service import ConsumeResultService
from .handler_check import Handlers, check_run
from .handler_run import HandlerRun
from .handler_thread import HandlerThread, ThreadSettling
from .handling import Handling
from .pushed_message import PushedMessage
from .ready_messages import ReadyMessages
from .reports import DirectCall


class HandlerService:
    """The handlers of one push consumer.

    Lifecycle: created with its consumer; `run` one after another; `stop` ends the one that runs.

    Args:
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
        ready: ReadyMessages,
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
