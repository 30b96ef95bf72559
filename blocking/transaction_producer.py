"""Messages that become visible only if a local transaction succeeds, for programs with threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeAlias, Unpack

from ..client.errors import ConfigurationError
from ..client.message import Message, ReceivedMessage
from ..client.send_options import ProducerOptions
from ..client.transaction_producer import TransactionProducer as AsyncTransactionProducer
from ..client.transaction_producer import TransactionResult, TransactionState
from .client import Client
from .loop_thread import Waiter, in_thread
from .producer import Producer

CHECKS_MAX: Final = 20
"""Checks at one time, each in a thread. (RocketMQ: checkThreadPoolMaxSize 1.)"""

LocalTransaction: TypeAlias = Callable[[Message], TransactionState]
"""Does the local transaction; an exception means UNKNOWN, and is raised to the sender."""

Check: TypeAlias = Callable[[ReceivedMessage], TransactionState]
"""Says how the transaction of a message ended, when the broker asks; an exception means UNKNOWN."""


class TransactionProducer(Producer):
    """Sends messages in transactions, and answers the broker's questions about them.

    The blocking `trocket.client.TransactionProducer`.

    Args:
      client: a URL, or an open Client.
      group: of producers that can all answer for each other's transactions.
      check: says how a transaction ended; called when the broker did not hear of it, in a thread
        of its own. It may block.
      options: see ProducerOptions.

    Raises: ConfigurationError: an argument cannot be right.
    """

    def __init__(
        self,
        client: str | Client,
        *,
        group: str,
        check: Check,
        **options: Unpack[ProducerOptions],
    ) -> None:
        room = asyncio.Semaphore(CHECKS_MAX)

        async def check_in_thread(message: ReceivedMessage) -> TransactionState:
            async with room:
                return await in_thread("trocket-check", check, message)

        self._start(
            client,
            lambda inner: AsyncTransactionProducer(
                inner, group=group, check=check_in_thread, **options
            ),
        )

    def send_in_transaction(
        self, message: Message, local: LocalTransaction, *, timeout_s: float | None = None
    ) -> TransactionResult:
        """Store a message invisibly, do the local transaction, and commit or roll back.

        `local` is called in the calling thread, where database connections and the like belong. If
        the broker does not hear how it ended, it asks later, and `check` answers.

        Raises: as `send`, before `local` is called; whatever `local` raises, after the broker has
          got UNKNOWN. MessageRefusedError: the message is delayed.
        """
        loop_object = self._opened()
        inner = self._inner
        assert isinstance(inner, AsyncTransactionProducer)  # by __init__
        sending = _Sending()

        async def local_elsewhere(sent: Message) -> TransactionState:
            sending.outcome = asyncio.get_running_loop().create_future()
            sending.stored.set(sent)
            return await sending.outcome

        loop_object.begin(
            sending, inner.send_in_transaction, message, local_elsewhere, timeout_s=timeout_s
        )
        sent = loop_object.wait_for(sending.stored, sending)
        if sent is not None:
            try:
                state = local(sent)
                if not isinstance(state, TransactionState):
                    raise ConfigurationError(
                        f"a local transaction gave {state!r}; it gives a TransactionState"
                    )
            except BaseException:
                # Its error would be a stranger in the loop: it goes its way here.
                loop_object.thread.post(sending.settle, TransactionState.UNKNOWN)
                sending.wait()
                raise
            loop_object.thread.post(sending.settle, state)
        return loop_object.wait_for(sending, sending)


class _Sending(Waiter[TransactionResult]):
    """A message on its way through its transaction.

    Attributes:
      stored: first there is the message for `local`; None: it came to an end without.
      outcome: what `local` gave.
    """

    __slots__ = ("outcome", "stored")

    def __init__(self) -> None:
        super().__init__()
        self.stored: Waiter[Message | None] = Waiter()
        self.outcome: asyncio.Future[TransactionState] | None = None

    def set(self, result: TransactionResult) -> None:
        super().set(result)
        self.stored.set(None)

    def fail(self, error: BaseException) -> None:
        super().fail(error)
        self.stored.set(None)

    def settle(self, state: TransactionState) -> None:
        """Let the loop go on with what `local` gave."""
        if self.outcome is not None and not self.outcome.done():
            self.outcome.set_result(state)
