"""The producer of transactional messages for programs with threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeAlias, Unpack, overload

from ..client.checks.misuse import explained
from ..client.messages.body_types import PlainBody, SentT
from ..client.messages.message import Message, ReceivedMessage
from ..client.messages.sendable import check_takes
from ..client.messages.transaction import TransactionResult, TransactionState, read_outcome
from ..client.options.send_options import ProducerOptions
from ..client.sending.transaction_producer import TransactionProducer as AsyncTransactionProducer
from .client import Client
from .loop_thread import Waiter, in_thread
from .producer import Producer
from .transaction import Transaction

CHECKS_MAX: Final = 20
"""Largest number of checks at a time, each in a thread. (RocketMQ: checkThreadPoolMaxSize 1.)"""

LocalTransaction: TypeAlias = Callable[[Message], TransactionState]
"""Executes the local transaction. An exception means UNKNOWN, and is raised to the sender."""

Check: TypeAlias = Callable[[ReceivedMessage], TransactionState]
"""Returns the outcome of a message's transaction. An exception means UNKNOWN."""


class TransactionProducer(Producer[SentT]):
    """Sends transactional messages, and answers the broker's checks of unfinished transactions.

    The blocking `trocket.client.TransactionProducer`.

    Args:
      client: the URL of a cluster, or an open Client to share with other objects.
      group: the producer group. The broker may ask any of its producers about a transaction.
      check: returns the outcome of a transaction; called when the broker did not receive it. It is
        called in a separate thread and may block.
      serializer: converts bodies that are neither bytes nor str to bytes or str; None: there are
        no such bodies.
      options: see ProducerOptions; those of ClientOptions are allowed only with a URL.

    Raises: ConfigurationError: the URL, the group's name or an option is invalid.
    """

    @overload
    def __init__(
        self: TransactionProducer[PlainBody],
        client: str | Client,
        *,
        group: str,
        check: Check,
        serializer: None = None,
        **options: Unpack[ProducerOptions],
    ) -> None: ...
    @overload
    def __init__(
        self,
        client: str | Client,
        *,
        group: str,
        check: Check,
        serializer: Callable[[SentT], bytes | str],
        **options: Unpack[ProducerOptions],
    ) -> None: ...
    @explained
    def __init__(
        self,
        client: str | Client,
        *,
        group: str,
        check: Check,
        serializer: Any = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        room = asyncio.Semaphore(CHECKS_MAX)

        check_takes("check", check, "check(message)")

        async def check_in_thread(message: ReceivedMessage) -> TransactionState:
            async with room:
                return await in_thread("trocket-check", check, message)

        self._start(
            client,
            lambda inner: AsyncTransactionProducer(
                inner, group=group, check=check_in_thread, serializer=serializer, **options
            ),
        )

    def send_in_transaction(
        self, message: Message, local: LocalTransaction, *, timeout_s: float | None = None
    ) -> TransactionResult:
        """Store a message that consumers do not see yet, call `local`, then commit or roll back.

        `local` is called in the calling thread, so it can use the thread's database connections. If
        the broker does not receive the outcome, it asks for it later, and `check` answers.

        Args:
          message: the message; it must not be delayed.
          local: executes the local transaction and returns its outcome.
          timeout_s: seconds for all attempts; None: the producer's `send_timeout_s`.

        Returns: the result of the send and the state that the broker was sent.
        Raises:
          MessageRefusedError: the message is delayed, or no broker would accept it.
          the errors of `send`, before `local` is called.
          any exception of `local`, after UNKNOWN was sent to the broker.
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
                state = read_outcome(local(sent))
            except BaseException:
                # The error belongs to this thread: the loop only learns that the state is unknown.
                loop_object.thread.post(sending.settle, TransactionState.UNKNOWN)
                sending.wait()
                raise
            loop_object.thread.post(sending.settle, state)
        return loop_object.wait_for(sending, sending)

    def transaction(
        self, message: Message[SentT | str | bytes], *, timeout_s: float | None = None
    ) -> Transaction:
        """A transaction that is a `with` block.

        The message is stored when the block is entered, and consumers do not see it yet. The normal
        end of the block commits it; `rollback` of the transaction drops it. After an exception the
        broker is sent UNKNOWN, and the exception passes through: the database may have committed,
        and `check` finds out.

        If the broker does not receive the outcome, it asks for it later, and `check` answers.

        Args:
          message: the message; it must not be delayed.
          timeout_s: seconds for all attempts; None: the producer's `send_timeout_s`.

        Returns: the transaction; entering its block raises
          MessageRefusedError: the message is delayed, or no broker would accept it.
          ServerError: the message was stored less safely than configured, and was rolled back.
          the errors of `send`.
        """
        inner = self._inner
        assert isinstance(inner, AsyncTransactionProducer)  # by __init__
        return Transaction(inner.transaction(message, timeout_s=timeout_s), self._call)


class _Sending(Waiter[TransactionResult]):
    """The result of one transactional send.

    Attributes:
      stored: gets the message for `local` once it is stored; None if the send ended before.
      outcome: gets the state that `local` returns.
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
        """Pass the state that `local` returned to the loop; to be called there."""
        if self.outcome is not None and not self.outcome.done():
            self.outcome.set_result(state)
