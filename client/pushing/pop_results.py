"""Consume results of popped messages: acknowledged, delivered again later, or dead letters.

Java counterpart: ConsumeMessagePopConcurrentlyService.processConsumeResult.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

import anyio

from ...common.delay_levels import MESSAGE_DELAY_LEVEL, delay_levels_ms
from ...remoting.message import MessageExt
from ...remoting.pop_requests import Settled
from ..connection.client import Client
from ..connection.connection_log import failure_level
from ..connection.patience import wait_a_little
from ..core.retry_policy import RetryPolicy
from ..errors import ClientError, ClosedError
from ..messages.interceptor import Interceptor, call_after_consume
from ..messages.message import for_log
from ..options.push_options import MAX_RECONSUME_TIMES, PushConsumerConfig, RetryLater
from ..popping.popper import IN_FLIGHT_MAX, Popper
from ..tasks.task_group import TaskGroup
from .pop_queue import PopModeMessage, PopQueue
from .pushed_message import AssignedQueue, PushedMessage

logger = logging.getLogger(__name__)

DELAY_LEVELS_S: Final[tuple[int, ...]] = tuple(
    ms // 1000 for ms in delay_levels_ms(MESSAGE_DELAY_LEVEL)
)
"""The delay of each level, from 1 on, in seconds. Those from level 3 on are also popDelayLevel of
Java's push consumer, which grow with each try."""

FIRST_RETRY_LEVEL: Final = 3
"""The level of the first redelivery."""

GIVE_BACK_S: Final = 1.0
"""The invisible time of messages that a consumer gives back when it is closed."""


def retry_delay_s(delay_level: int, reconsume_times: int) -> float:
    """Seconds until a message is delivered again.

    Args:
      delay_level: a level from 1 on; 0: by the number of tries.
      reconsume_times: number of earlier deliveries.
    """
    level = delay_level or FIRST_RETRY_LEVEL + reconsume_times
    return DELAY_LEVELS_S[min(level, len(DELAY_LEVELS_S)) - 1]


class PopResults:
    """Settles the popped messages of one consumer.

    Acknowledgements are sent in the background: one request for those that are made together, and
    one at a time for each broker.

    Args:
      client: an open client.
      group: name of the group, with namespace.
      config: configuration of the consumer.
      interceptors: they see each message that is settled.
    """

    def __init__(
        self,
        client: Client,
        group: str,
        config: PushConsumerConfig,
        popper: Popper,
        interceptors: Sequence[Interceptor],
    ) -> None:
        self._client = client
        self._group = group
        self._config = config
        self._popper = popper
        self._interceptors = interceptors
        self._pending: dict[str, list[Settled]] = {}
        self._sending: set[str] = set()
        self._changing = 0  # changes of invisible times that are not answered
        self._idle: anyio.Event | None = None

    @property
    def deserializer(self) -> Callable[[bytes], Any] | None:
        """Converts the body of a message to its `value`."""
        return self._config.deserializer

    @property
    def max_reconsume_times(self) -> int:
        """Number of redeliveries before a message becomes a dead letter."""
        most = self._config.max_reconsume_times
        if most is not None and most >= 0:
            return most
        policy = self._policy
        return MAX_RECONSUME_TIMES if policy is None else policy.attempts_max - 1

    @property
    def _policy(self) -> RetryPolicy | None:
        """How the server wants messages to be delivered again; None: it says nothing of it."""
        grpc = self._client.grpc
        return None if grpc is None else grpc.retry_policy(self._group)

    # ConsumeResults

    def ack(self, message: PushedMessage, assigned: AssignedQueue) -> None:
        """Acknowledge a message, in the background.

        One whose time is over is acknowledged, too: the broker may not have noticed yet.
        """
        message, queue = _popped(message, assigned)
        call_after_consume(self._interceptors, message, None)
        queue.remove(message)
        if message.change is None:  # otherwise `extend` does it, by the new receipt
            self.ack_soon(message.settled)
        else:
            message.is_acknowledged = True

    async def retry(
        self,
        message: PushedMessage,
        ext: MessageExt,
        assigned: AssignedQueue,
        delay_level: int,
        cause: Exception | None,
    ) -> None:
        """Have a message delivered again, after a delay; or make it a dead letter.

        Args:
          message: the message as it was delivered.
          ext: the decoded record of the message.
          assigned: what it was popped from.
          delay_level, cause: see `PushedMessage.retry`.
        """
        message, queue = _popped(message, assigned)
        call_after_consume(self._interceptors, message, cause or RetryLater(delay_level))
        queue.remove(message)
        # A broker that hangs must not hold up the handlers of messages of others.
        await wait_a_little(self._client, self._redeliver, message, ext, delay_level)

    async def _redeliver(self, message: PopModeMessage, ext: MessageExt, delay_level: int) -> None:
        self._changing += 1
        try:
            await self._change_or_bury(message, ext, delay_level)
        finally:
            self._changing -= 1
            self._wake_if_idle()

    async def _change_or_bury(
        self, message: PopModeMessage, ext: MessageExt, delay_level: int
    ) -> None:
        if message.change is not None:
            await message.change.wait()
        if message.is_revoked:
            logger.warning(
                "%s failed after its invisible time: it is delivered again", for_log(message)
            )
            return
        is_over = delay_level < 0 or message.reconsume_times >= self.max_reconsume_times
        if is_over and await self.bury(message.settled, ext):
            return
        policy = self._policy
        if policy is not None and delay_level <= 0:
            delay_s = policy.delay_s(message.reconsume_times)
        else:
            delay_s = retry_delay_s(max(delay_level, 0), message.reconsume_times)
        try:
            await self._popper.change_invisible(message.settled, delay_s)
        except ClientError as error:
            logger.log(
                failure_level(error),
                "%s is delivered again after its invisible time, not after %g s: %s",
                message,
                delay_s,
                error,
            )

    def put_back(self, message: PushedMessage, assigned: AssignedQueue) -> None:
        """Have a message delivered again soon, to any member, and count no delivery."""
        message, queue = _popped(message, assigned)
        call_after_consume(self._interceptors, message, RetryLater())
        queue.remove(message)
        self._start(self.give_back, [message])

    # Dead letters

    async def bury(self, settled: Settled, ext: MessageExt) -> bool:
        """Have the broker copy a message to the group's dead-letter queue, and acknowledge it.

        Returns: whether the broker has copied it; otherwise it stays as it is.
        RocketMQ's proxy does the same. Java's push consumer acknowledges the message without a
        copy, once it is four hours old.
        """
        try:
            await self._popper.bury(settled, ext, self.max_reconsume_times)
        except ClientError as error:
            logger.warning(
                "the broker did not take %s as a dead letter, so it is delivered again: %s",
                ext.offset_message_id,
                error,
            )
            return False
        self.ack_soon(settled)
        return True

    # Acknowledgements

    def ack_soon(self, settled: Settled) -> None:
        """Acknowledge a message in the background; a failure is logged."""
        name = settled.receipt.broker_name
        self._pending.setdefault(name, []).append(settled)
        if name not in self._sending:
            self._sending.add(name)
            self._start(self._send, name)

    async def _send(self, broker_name: str) -> None:
        try:
            while settled := self._pending.pop(broker_name, None):
                for each, error in await self._popper.ack_all(settled):
                    text = "%s, offset %d, was not acknowledged and is delivered again: %s"
                    logger.warning(text, each.topic, each.receipt.offset, error)
        finally:
            self._sending.discard(broker_name)
            self._wake_if_idle()

    def _wake_if_idle(self) -> None:
        if not self._sending and not self._changing and self._idle is not None:
            self._idle.set()

    async def drain(self) -> None:
        """Wait until all acknowledgements and changes of invisible times have been answered."""
        while self._sending or self._changing:
            self._idle = anyio.Event()
            await self._idle.wait()

    def _start(self, function: Callable[..., Any], argument: object) -> None:
        # If the client is closed, the messages are delivered again.
        with contextlib.suppress(ClosedError):
            self._client.start_soon(function, argument)

    # Invisible times

    async def extend(self, message: PopModeMessage, queue: PopQueue) -> None:
        """Give a message that is still handled the full invisible time again."""
        if message.is_settled:
            return
        seconds = self._config.pop_invisible_s
        message.change = anyio.Event()
        self._changing += 1
        try:
            receipt = await self._popper.change_invisible(message.settled, seconds, suspend=True)
            queue.on_changed(message, receipt, self._client.now_s() + seconds)
        except ClientError as error:
            logger.log(
                failure_level(error), "%s keeps its invisible time: %s", for_log(message), error
            )
        finally:
            message.change.set()
            message.change = None
            self._changing -= 1
            if message.is_acknowledged:
                self.ack_soon(message.settled)
            self._wake_if_idle()

    async def give_back(self, messages: Sequence[PopModeMessage]) -> None:
        """Have messages that are not settled delivered to others soon; no try is counted."""
        # Of each broker, so that one that hangs leaves the others their turns.
        limits: dict[str, anyio.CapacityLimiter] = {}

        async def give(message: PopModeMessage) -> None:
            name = message.settled.receipt.broker_name
            async with limits.setdefault(name, anyio.CapacityLimiter(IN_FLIGHT_MAX)):
                if message.change is not None:  # the receipt is about to be replaced
                    await message.change.wait()
                with contextlib.suppress(ClientError):
                    await self._popper.change_invisible(message.settled, GIVE_BACK_S, suspend=True)

        self._changing += 1
        try:
            async with TaskGroup() as group:
                for message in messages:
                    group.start_soon(give, message)
        finally:
            self._changing -= 1
            self._wake_if_idle()


def _popped(message: PushedMessage, assigned: AssignedQueue) -> tuple[PopModeMessage, PopQueue]:
    """The same, by their types: the consumer makes no others for these results."""
    assert isinstance(message, PopModeMessage)
    assert isinstance(assigned, PopQueue)
    return message, assigned
