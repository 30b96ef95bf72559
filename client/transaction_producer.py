"""Messages that become visible only if a local transaction succeeds.

Java counterpart: TransactionMQProducer, TransactionListener.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import NamedTuple, TypeAlias, Unpack

import anyio

from ..common import message_properties as names
from ..remoting.codec import RemotingCommand, encode
from ..remoting.headers import EndTransactionRequestHeader
from ..remoting.message_codec import decode_record
from ..remoting.message_id import decode_offset_id
from ..remoting.request_codes import RequestCode
from ..remoting.sys_flag import (
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_NOT_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
)
from .client import Client
from .connection import Connection
from .errors import ClientError, ConfigurationError, MessageRefusedError
from .interceptor import tell_sent
from .message import Message, MessageQueue, ReceivedMessage, SendResult, SendStatus
from .producer import Producer
from .send_options import ProducerOptions

logger = logging.getLogger(__name__)


class TransactionState(Enum):
    """How a local transaction ended."""

    COMMIT = TRANSACTION_COMMIT_TYPE
    """It succeeded: the message becomes visible."""
    ROLLBACK = TRANSACTION_ROLLBACK_TYPE
    """It failed: the message is dropped."""
    UNKNOWN = TRANSACTION_NOT_TYPE
    """Not yet known: the broker asks again later."""


LocalTransaction: TypeAlias = Callable[[Message], TransactionState | Awaitable[TransactionState]]
"""Does the local transaction; an exception means UNKNOWN, and is raised to the sender."""

Check: TypeAlias = Callable[[ReceivedMessage], TransactionState | Awaitable[TransactionState]]
"""Says how the transaction of a message ended, when the broker asks; an exception means UNKNOWN."""


class TransactionResult(NamedTuple):
    """What became of a message that was sent in a transaction.

    Attributes:
      result: of sending it.
      state: as the broker has it.
    """

    result: SendResult
    state: TransactionState


class TransactionProducer(Producer):
    """Sends messages in transactions, and answers the broker's questions about them.

    Args:
      client: a URL, or an open Client.
      group: of producers that can all answer for each other's transactions.
      check: says how a transaction ended; called when the broker did not hear of it.
      options: see ProducerOptions.
    """

    def __init__(
        self,
        client: str | Client,
        *,
        group: str,
        check: Check,
        **options: Unpack[ProducerOptions],
    ) -> None:
        super().__init__(client, group=group, **options)
        self._check = check
        self._processors[RequestCode.CHECK_TRANSACTION_STATE] = self._on_check

    async def send_in_transaction(
        self, message: Message, local: LocalTransaction, *, timeout_s: float | None = None
    ) -> TransactionResult:
        """Store a message invisibly, do the local transaction, and commit or roll back.

        If the broker does not hear how it ended, it asks later, and `check` answers.

        Raises: as `send`, before `local` is called; whatever `local` raises, after the broker has
          got UNKNOWN. MessageRefusedError: the message is delayed.
        """
        if message.delay_level or message.delay_s is not None or message.deliver_at_ms is not None:
            raise MessageRefusedError("a message in a transaction cannot be delayed")
        more = {
            names.PROPERTY_TRANSACTION_PREPARED: "true",
            names.PROPERTY_PRODUCER_GROUP: self._group,
        }
        for interceptor in self._client.interceptors:
            message = interceptor.before_send(message)
        sender = self._sender
        outgoing = sender.packer.message(message, more)
        try:
            result = await sender.send(sender.sending(outgoing, timeout_s=timeout_s))
        except Exception as error:
            tell_sent(self._client.interceptors, message, None, error)
            raise
        state = TransactionState.ROLLBACK
        try:
            if result.status is SendStatus.SEND_OK:
                state = TransactionState.UNKNOWN
                state = await _outcome(local(message))
        finally:
            # Shielded: a cancelled sender leaves no more open transactions than it must.
            with anyio.CancelScope(shield=True):
                await self._end(result, outgoing.topic, state)
            tell_sent(self._client.interceptors, message, result, None)
        return TransactionResult(result, state)

    async def _end(self, result: SendResult, topic: str, state: TransactionState) -> None:
        """END_TRANSACTION, oneway: what gets lost the broker asks for."""
        offset_id = decode_offset_id(result.offset_message_id)
        header = EndTransactionRequestHeader(
            producer_group=self._group,
            tran_state_table_offset=result.queue_offset,
            commit_log_offset=offset_id.physical_offset,
            commit_or_rollback=state.value,
            msg_id=result.message_id,
            transaction_id=result.transaction_id,
            topic=topic,
            broker_name=result.queue.broker_name,
        )
        try:
            await self._client.send_oneway(
                self._client.master_address(result.queue.broker_name),
                RequestCode.END_TRANSACTION,
                header,
            )
        except ClientError as error:
            logger.warning(
                "the broker will ask how transaction %s ended: %s", result.message_id, error
            )

    async def _on_check(self, connection: Connection, command: RemotingCommand) -> None:
        """CHECK_TRANSACTION_STATE. Source: DefaultMQProducerImpl.checkTransactionState."""
        half = decode_record(command.body, inflate=True)
        if half.find(names.PROPERTY_PRODUCER_GROUP.encode()) != self._group:
            return
        fields = command.ext_fields
        topic = self._client.without_namespace(half.topic)
        queue = MessageQueue(half.topic, fields.get("bname", ""), half.queue_id)
        message = ReceivedMessage(half, queue, topic)
        try:
            state = await _outcome(self._check(message))
        except Exception:
            logger.exception(
                "the check of message %s failed; the broker asks again", message.message_id
            )
            state = TransactionState.UNKNOWN
        unique_key = half.unique_key or fields.get("msgId")
        header = EndTransactionRequestHeader(
            producer_group=self._group,
            tran_state_table_offset=int(fields["tranStateTableOffset"]),
            commit_log_offset=int(fields["commitLogOffset"]),
            commit_or_rollback=state.value,
            from_transaction_check=True,
            msg_id=unique_key,
            transaction_id=fields.get("transactionId"),
            topic=half.topic,
        )
        connection.send_oneway(
            encode(self._client.command(RequestCode.END_TRANSACTION, header, is_oneway=True))
        )


async def _outcome(given: TransactionState | Awaitable[TransactionState]) -> TransactionState:
    state = await given if inspect.isawaitable(given) else given
    if not isinstance(state, TransactionState):
        raise ConfigurationError(
            f"the local transaction or check returned {state!r}: return a TransactionState"
        )
    return state
