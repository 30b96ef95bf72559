"""Transactions as `async with` blocks, and the values of transactional sends.

Java counterpart: LocalTransactionState, TransactionSendResult. Java has no such block.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Literal, NamedTuple, NoReturn, Self, TypeAlias

from ...remoting.sys_flag import (
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_NOT_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
)
from ..errors import ClosedError, ConfigurationError, server_error
from .message import Message, SendResult, SendStatus


class TransactionState(Enum):
    """The outcome of a local transaction."""

    COMMIT = TRANSACTION_COMMIT_TYPE
    """The transaction succeeded: the message is delivered."""
    ROLLBACK = TRANSACTION_ROLLBACK_TYPE
    """The transaction failed: the message is dropped."""
    UNKNOWN = TRANSACTION_NOT_TYPE
    """The outcome is not known yet: the broker will ask for it later."""


OutcomeName: TypeAlias = Literal["commit", "rollback", "unknown"]
"""The outcome of a local transaction: TransactionState.COMMIT and so on."""

Outcome: TypeAlias = TransactionState | OutcomeName
"""What a local transaction or a check returns."""


def read_outcome(outcome: object) -> TransactionState:
    """The state that a local transaction or a check returned, as the member or its name.

    Raises: ConfigurationError: it returned something else.
    """
    if isinstance(outcome, TransactionState):
        return outcome
    if isinstance(outcome, str) and outcome.upper() in TransactionState.__members__:
        return TransactionState[outcome.upper()]
    raise ConfigurationError(
        f"the local transaction or check returned {outcome!r}: return 'commit', 'rollback' or"
        " 'unknown', or TransactionState.COMMIT, .ROLLBACK or .UNKNOWN"
    )


class TransactionResult(NamedTuple):
    """The result of a transactional send.

    Attributes:
      result: the result of storing the message.
      state: the outcome that was sent to the broker.
    """

    result: SendResult
    state: TransactionState


class HalfMessage(NamedTuple):
    """A message that is stored, and invisible to consumers until its transaction ends.

    Attributes:
      message: the message, as interceptors changed it.
      topic: its topic, with namespace.
      result: the result of storing it.
    """

    message: Message
    topic: str
    result: SendResult


class Transaction:
    """The block of `TransactionProducer.transaction`; use each object for one block.

    The normal end reports COMMIT. An exception reports UNKNOWN, and the broker asks `check` later,
    as after an exception in `send_in_transaction`.
    """

    def __init__(
        self,
        send_half: Callable[[Message, float | None], Awaitable[HalfMessage]],
        end_half: Callable[[HalfMessage, TransactionState], Awaitable[None]],
        message: Message,
        timeout_s: float | None,
    ) -> None:
        self._send_half = send_half
        self._end_half = end_half
        self._message = message
        self._timeout_s = timeout_s
        self._half: HalfMessage | None = None
        self._state: TransactionState | None = None
        self._is_rollback_only = False

    @property
    def result(self) -> SendResult:
        """The result of storing the message.

        Raises: ClosedError: the block was not entered.
        """
        if self._half is None:
            raise ClosedError("the transaction has not begun: use `with`")
        return self._half.result

    @property
    def state(self) -> TransactionState | None:
        """The outcome that the broker was sent; None before the end of the block."""
        return self._state

    def rollback(self) -> None:
        """Roll back at the end of the block, whether or not it raises."""
        self._is_rollback_only = True

    if not TYPE_CHECKING:

        def __enter__(self) -> NoReturn:
            raise TypeError("write `async with producer.transaction(message):`")

        def __exit__(self, *exit_info: object) -> None:
            """Never called: `with` looks for both before it calls one."""

    async def __aenter__(self) -> Self:
        if self._half is not None:
            raise ClosedError("the transaction has begun already: make one for each block")
        half = self._half = await self._send_half(self._message, self._timeout_s)
        if half.result.status is not SendStatus.SEND_OK:
            await self._end(TransactionState.ROLLBACK)
            remark = "the message was not stored as safely as configured, and was rolled back"
            broker_name = half.result.queue.broker_name
            raise server_error(half.result.status, remark, broker_name, "SEND_MESSAGE_V2")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._is_rollback_only:
            state = TransactionState.ROLLBACK
        elif kind is None:
            state = TransactionState.COMMIT
        else:
            # A database's commit may have raised after it took effect: the check finds out.
            state = TransactionState.UNKNOWN
        await self._end(state)

    async def _end(self, state: TransactionState) -> None:
        assert self._half is not None  # stored at the entry
        self._state = state
        await self._end_half(self._half, state)
