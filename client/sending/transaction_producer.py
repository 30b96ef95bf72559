"""The producer of transactional messages, which are delivered if a local transaction succeeds.

Java counterpart: TransactionMQProducer, TransactionListener.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, Unpack, overload

import anyio

from ...common import message_properties as names
from ...remoting.codec import RemotingCommand, encode
from ...remoting.headers import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
    decode,
)
from ...remoting.message_codec import decode_record
from ...remoting.message_id import decode_offset_id
from ...remoting.request_codes import RequestCode
from ..checks.misuse import explained
from ..connection.client import Client
from ..connection.connection import Connection
from ..errors import ClientError, MessageRefusedError
from ..messages.body_types import PlainBody, SentT
from ..messages.interceptor import call_after_send
from ..messages.message import Message, MessageQueue, ReceivedMessage, SendStatus, is_delayed
from ..messages.sendable import call_before_send, check_takes
from ..messages.transaction import (
    HalfMessage,
    Outcome,
    Transaction,
    TransactionResult,
    TransactionState,
    read_outcome,
)
from ..options.send_options import ProducerOptions
from .producer import Producer

__all__ = [
    "Check",
    "LocalTransaction",
    "TransactionProducer",
    "TransactionResult",
    "TransactionState",
]

logger = logging.getLogger(__name__)


LocalTransaction: TypeAlias = Callable[[Message], Outcome | Awaitable[Outcome]]
"""Executes the local transaction. An exception means UNKNOWN, and is raised to the sender."""

Check: TypeAlias = Callable[[ReceivedMessage], Outcome | Awaitable[Outcome]]
"""Returns the outcome of a message's transaction. An exception means UNKNOWN."""


class TransactionProducer(Producer[SentT]):
    """Sends transactional messages, and answers the broker's checks of unfinished transactions.

    Args:
      client: the URL of a cluster, or an open Client to share with other objects.
      group: the producer group. The broker may ask any of its producers about a transaction.
      check: returns the outcome of a transaction; called when the broker did not receive it.
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
        super().__init__(client, group=group, serializer=serializer, **options)
        check_takes("check", check, "check(message)")
        self._check = check
        self._processors[RequestCode.CHECK_TRANSACTION_STATE] = self._on_check

    async def send_in_transaction(
        self, message: Message, local: LocalTransaction, *, timeout_s: float | None = None
    ) -> TransactionResult:
        """Store a message that consumers do not see yet, call `local`, then commit or roll back.

        If the broker does not receive the outcome, it asks for it later, and `check` answers.

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
        half = await self._send_half(message, timeout_s)
        state = TransactionState.ROLLBACK
        try:
            if half.result.status is SendStatus.SEND_OK:
                state = TransactionState.UNKNOWN
                state = await _outcome(local(half.message))
        finally:
            await self._end_half(half, state)
        return TransactionResult(half.result, state)

    def transaction(
        self, message: Message[SentT | str | bytes], *, timeout_s: float | None = None
    ) -> Transaction:
        """A transaction that is an `async with` block.

        The message is stored when the block is entered, and consumers do not see it yet. The normal
        end of the block commits it; `rollback` of the transaction drops it. After an exception, or
        a cancellation, the broker is sent UNKNOWN, and the exception passes through: the database
        may have committed, and `check` finds out.

        If the broker does not receive the outcome, it asks for it later, and `check` answers.

        Args:
          message: the message; it must not be delayed.
          timeout_s: seconds for all attempts; None: the producer's `send_timeout_s`.

        Returns: the transaction; entering its block raises
          MessageRefusedError: the message is delayed, or no broker would accept it.
          ServerError: the message was stored less safely than configured, and was rolled back.
          the errors of `send`.
        """
        return Transaction(self._send_half, self._end_half, message, timeout_s)

    async def _send_half(
        self, message: Message[SentT | str | bytes], timeout_s: float | None
    ) -> HalfMessage:
        message = call_before_send(self._client.interceptors, message)
        if is_delayed(message):
            raise MessageRefusedError("a message in a transaction cannot be delayed")
        more = {
            names.PROPERTY_TRANSACTION_PREPARED: "true",
            names.PROPERTY_PRODUCER_GROUP: self._group,
        }
        sender = self._sender
        prepared = sender.packer.message(message, more)
        try:
            result = await sender.send(sender.new_send(prepared, timeout_s=timeout_s))
        except Exception as error:
            call_after_send(self._client.interceptors, message, None, error)
            raise
        return HalfMessage(message, prepared.topic, result)

    async def _end_half(self, half: HalfMessage, state: TransactionState) -> None:
        # Shielded from cancellation, so that no transaction stays open needlessly.
        with anyio.CancelScope(shield=True):
            await self._end(half, state)
        call_after_send(self._client.interceptors, half.message, half.result, None)

    async def _end(self, half: HalfMessage, state: TransactionState) -> None:
        """Send END_TRANSACTION. It is oneway: if it gets lost, the broker asks for the outcome."""
        result, topic = half.result, half.topic
        # By gRPC, the id of the transaction says it all.
        is_known = bool(result.offset_message_id)
        offset = decode_offset_id(result.offset_message_id).physical_offset if is_known else 0
        header = EndTransactionRequestHeader(
            producer_group=self._group,
            tran_state_table_offset=result.queue_offset,
            commit_log_offset=offset,
            commit_or_rollback=state.value,
            msg_id=result.message_id,
            transaction_id=result.transaction_id,
            topic=topic,
            broker_name=result.queue.broker_name,
        )
        try:
            address = self._client.master_of(result.queue)
            await self._client.send_oneway(address, RequestCode.END_TRANSACTION, header)
        except ClientError as error:
            logger.warning(
                "the outcome of transaction %s was not sent, so the broker will ask for it: %s",
                result.message_id,
                error,
            )
            return
        if self._trace is not None:
            self._trace.on_ended(half.message, result, address, state)

    async def _on_check(self, connection: Connection, command: RemotingCommand) -> None:
        """Process CHECK_TRANSACTION_STATE. Source: DefaultMQProducerImpl.checkTransactionState."""
        question = decode(CheckTransactionStateRequestHeader, command.ext_fields)
        half = decode_record(command.body, inflate=True)
        if half.find(names.PROPERTY_PRODUCER_GROUP.encode()) != self._group:
            return
        topic = self._client.without_namespace(half.topic)
        queue = MessageQueue(half.topic, question.broker_name or "", half.queue_id)
        message = ReceivedMessage(half, queue, topic)
        try:
            state = await _outcome(self._check(message))
        except Exception:
            logger.exception(
                "the check of message %s failed; the broker will ask again", message.message_id
            )
            state = TransactionState.UNKNOWN
        unique_key = half.unique_key or question.msg_id
        header = EndTransactionRequestHeader(
            producer_group=self._group,
            tran_state_table_offset=question.tran_state_table_offset,
            commit_log_offset=question.commit_log_offset,
            commit_or_rollback=state.value,
            from_transaction_check=True,
            msg_id=unique_key,
            transaction_id=question.transaction_id,
            topic=half.topic,
        )
        connection.send_oneway(
            encode(self._client.command(RequestCode.END_TRANSACTION, header, is_oneway=True))
        )
        if self._trace is not None:
            self._trace.on_checked(message, header.transaction_id, connection.address, state)


async def _outcome(given: Outcome | Awaitable[Outcome]) -> TransactionState:
    return read_outcome(await given if inspect.isawaitable(given) else given)
