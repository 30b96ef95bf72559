"""The calls of a push consumer's handlers, in the loop or in threads, and their consequences.

A call has a time limit, and its messages are settled by how it ends.

Java counterparts: ConsumeRequest of ConsumeMessageConcurrentlyService and
ConsumeMessageOrderlyService.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import anyio

from ..errors import ConfigurationError, HandlerTimeoutError
from ..messages.message import ReceivedMessage, for_log
from ..options.push_options import RetryLater
from ..tasks.loop_call import is_cancelled
from ..tasks.task_group import together
from .handler_check import Handlers, check_outcome, check_result
from .handler_thread import HandlerThread, ThreadSettling
from .loop_watch import LoopWatch, Watched
from .pushed_message import REDELIVERED, InHandler, PushedMessage

logger = logging.getLogger(__name__)


class Settleable(Protocol):
    """A message that a handler gets, of the async client or of the blocking one."""

    @property
    def is_settled(self) -> bool:
        """Whether it is settled."""
        ...

    @property
    def _settlement(self) -> str:
        """How it was settled; "" if it was not."""
        ...

    def ack(self) -> None:
        """Acknowledge it."""

    def _put_back(self) -> None:
        """Have it delivered again soon, and count no delivery."""


class Handling:
    """Calls the handlers of one `run`.

    Args:
      handlers: what to call.
      timeout_s: seconds that a handler may take; then its messages are redelivered.
      from_threads: settles the messages of plain handlers, which run in threads; None: they run in
        the loop.
      is_batch: handlers take lists of messages.
      is_orderly: the messages of a batch are of one queue, in order.
    """

    def __init__(
        self,
        handlers: Handlers,
        timeout_s: float,
        from_threads: ThreadSettling | None,
        *,
        is_batch: bool,
        is_orderly: bool,
    ) -> None:
        self._handlers = handlers
        self._timeout_s = timeout_s
        self._from_threads = from_threads
        self._is_batch = is_batch
        self._is_orderly = is_orderly
        self._watch = LoopWatch()

    async def handle(self, messages: Sequence[PushedMessage], thread: HandlerThread) -> None:
        """Call the handler: acknowledge the messages if it returns, else have them redelivered.

        Those that the handler settles itself are left as they are.

        Args:
          messages: of one handler: a batch, or one; not settled.
          thread: runs the handler if it is plain.
        """
        try:
            with anyio.move_on_after(self._timeout_s) as scope:
                await self.call(messages, thread)
        except RetryLater as retry:
            await retry_all(messages, retry.delay_level, None, in_order=self._is_orderly)
        except Exception as error:  # noqa: BLE001 - logged, and its messages are redelivered
            log_failure(messages, unsettled_count(messages), error)
            await retry_all(messages, 0, error, in_order=self._is_orderly)
        else:
            if scope.cancelled_caught:
                await self._give_up(messages)
            else:
                acknowledge(messages, is_orderly=self._is_orderly)

    async def call(self, messages: Sequence[PushedMessage], thread: HandlerThread) -> None:
        """Call the handler, and leave the messages as they are.

        Raises: the handler's exception; ConfigurationError: what it returned does not run.
        """
        handler = self._handlers.find(messages[0].topic)
        argument = messages if self._is_batch else messages[0]
        if handler.is_async:
            outcome = handler.function(argument)
        elif self._from_threads is None:
            outcome = self._watch.call(handler.name, handler.function, argument)
        else:
            for message in messages:
                message._settle_by(self._from_threads)
            function = partial(_call_with, messages, handler.function)
            outcome = await thread.call(function, argument)
        if inspect.isawaitable(outcome):
            try:
                with InHandler(messages):
                    outcome = await Watched(outcome, handler.name, self._watch)
            except anyio.get_cancelled_exc_class() as error:
                if is_cancelled():
                    raise
                # Of something that the handler waited for: the handler has failed.
                raise RuntimeError(f"{handler.name} raised {error!r}") from error
        check_outcome(outcome, handler.name)
        check_result(outcome)

    async def _give_up(self, messages: Sequence[PushedMessage]) -> None:
        """Have the messages of a handler redelivered that did not return in time."""
        calls = []
        for message in messages:
            if not message.is_settled:
                late = HandlerTimeoutError(message.message_id, self._timeout_s)
                logger.error("%s; the message will be redelivered", late)
                calls.append(partial(message._redeliver_late, late))
        await together(calls)


def _call_with(
    messages: Sequence[PushedMessage], function: Callable[[Any], object], argument: object
) -> object:
    with InHandler(messages):
        return function(argument)


def acknowledge(messages: Sequence[Settleable], *, is_orderly: bool) -> None:
    """Settle the messages of a handler that has returned: those that it has not settled itself.

    If they are of an orderly queue, those behind a message that comes again come again, too.
    """
    is_order_broken = False
    for message in messages:
        if message.is_settled:
            is_order_broken = is_order_broken or (is_orderly and message._settlement == REDELIVERED)
        elif is_order_broken:
            message._put_back()
        else:
            message.ack()


async def retry_all(
    messages: Sequence[PushedMessage], delay_level: int, cause: Exception | None, *, in_order: bool
) -> None:
    """Have messages redelivered that are not settled.

    Args:
      delay_level, cause: see `PushedMessage.retry`.
      in_order: one after the other; otherwise all at once, as each may be a request to a broker.
    """
    unsettled = [message for message in messages if not message.is_settled]
    if len(unsettled) <= 1 or in_order:
        for message in unsettled:
            await message.retry(delay_level, cause=cause)
        return
    await together(partial(message.retry, delay_level, cause=cause) for message in unsettled)


def unsettled_count(messages: Sequence[Settleable]) -> int:
    """Number of the messages that are not settled."""
    return sum(not message.is_settled for message in messages)


def log_failure(messages: Sequence[ReceivedMessage], unsettled: int, error: Exception) -> None:
    """Log the exception of a handler, and what becomes of its messages.

    Args:
      messages: those that it had.
      unsettled: number of those that it has not settled.
      error: the exception.
    """
    first = for_log(messages[0])
    what = first if len(messages) == 1 else f"{len(messages)} messages from {first}"
    if not unsettled:
        then = "it was settled before, and stays so"
    elif unsettled == 1:
        then = "it will be redelivered"
    else:
        then = f"{unsettled} of them will be redelivered"
    if isinstance(error, ConfigurationError):
        logger.error("the handler failed for %s; %s: %s", what, then, error)
    else:
        logger.error("the handler failed for %s; %s", what, then, exc_info=error)
