"""Transactions as `with` blocks."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self

from ..client.messages.message import SendResult
from ..client.messages.transaction import Transaction as AsyncTransaction
from ..client.messages.transaction import TransactionState


class Transaction:
    """The block of `TransactionProducer.transaction`; use each object for one block.

    The blocking `trocket.client.Transaction`.

    Args:
      inner: the async transaction.
      call: runs an async function in the loop's thread and waits for its result.
    """

    def __init__(self, inner: AsyncTransaction, call: Callable[..., Any]) -> None:
        self._inner = inner
        self._call = call

    @property
    def result(self) -> SendResult:
        """The result of storing the message.

        Raises: ClosedError: the block was not entered.
        """
        return self._inner.result

    @property
    def state(self) -> TransactionState | None:
        """The outcome that the broker was sent; None before the end of the block."""
        return self._inner.state

    def rollback(self) -> None:
        """Roll back at the end of the block, whether or not it raises."""
        self._inner.rollback()

    if not TYPE_CHECKING:

        async def __aenter__(self) -> NoReturn:
            raise TypeError("write `with producer.transaction(message):`")

        async def __aexit__(self, *exit_info: object) -> None:
            """Never called: `async with` looks for both before it calls one."""

    def __enter__(self) -> Self:
        self._call(self._inner.__aenter__)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._call(self._inner.__aexit__, kind, error, traceback)
