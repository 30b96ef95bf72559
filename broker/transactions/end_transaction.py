"""Ends of transactions: END_TRANSACTION 37; RESUME_CHECK_HALF_MESSAGE 323.

Java counterpart: broker/processor/EndTransactionProcessor.java and
AdminBrokerProcessor.resumeCheckHalfMessage of 5.3.3.
"""

from __future__ import annotations

import logging
from typing import Final

from ...common.message_properties import (
    PRODUCER_GROUP_NAME,
    PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS,
    REAL_TOPIC_NAME,
)
from ...common.topic_names import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC
from ...disk.errors import StoreError
from ...remoting.channel import Channel, Processor
from ...remoting.codec import NO_EXT_FIELDS, RemotingCommand
from ...remoting.errors import LocalProtocolError, RemoteProtocolError, RequestRefused
from ...remoting.headers import (
    EndTransactionRequestHeader,
    ResumeCheckHalfMessageRequestHeader,
    decode,
)
from ...remoting.message import MessageExt
from ...remoting.message_id import decode_offset_id
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import NOT_SET, ResponseCode
from ...remoting.sys_flag import (
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_NOT_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
)
from ...store.message_store import MessageStore
from ...store.offsets import PhysicalOffset, QueueOffset
from ..messages.half_messages import final_message, immunity_ms, renewed_half
from ..messages.request import stored_message
from ..settings.config import BrokerConfig
from .cached_ends import CachedEnds
from .send_half import HalfPuts

logger = logging.getLogger(__name__)

_KINDS: Final = {
    str(TRANSACTION_COMMIT_TYPE): TRANSACTION_COMMIT_TYPE,
    str(TRANSACTION_ROLLBACK_TYPE): TRANSACTION_ROLLBACK_TYPE,
}
_OFFSET_DIGITS: Final = 18
_NOT_FOUND: Final = "Find prepared transaction message failed"


class EndTransactionProcessor:
    """Commits and rolls back transactions, and resumes parked ones.

    Args:
      store: has the half messages.
      halves: has the open transactions; appends messages, and answers when they are written.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        halves: HalfPuts,
    ) -> None:
        self._config = config
        self._store = store
        self._halves = halves
        self._puts = halves.puts
        self._transactions = halves.transactions
        self._cache = halves.transactions.cache
        self._cached = CachedEnds(store, halves)
        self._ends = halves.transactions.ends
        self._turn = halves.puts.turn
        self.processors: dict[RequestCode, Processor] = {
            RequestCode.END_TRANSACTION: self.end_transaction,
            RequestCode.RESUME_CHECK_HALF_MESSAGE: self.resume_check,
        }

    def end_transaction(self, request: RemotingCommand, channel: Channel) -> None:
        """Commit or roll back; an unknown state gets no answer, as from Apache's broker.

        Raises: RequestRefused: SYSTEM_ERROR with Apache's remarks; also for a transaction that has
          ended already, which Apache would commit again. ILLEGAL_OPERATION: the request came later
          than the message's immunity time, and a check will follow.
        """
        if self._end_cached(request, channel):
            return
        header = decode(EndTransactionRequestHeader, request.ext_fields)
        kind = header.commit_or_rollback
        if kind not in (TRANSACTION_COMMIT_TYPE, TRANSACTION_ROLLBACK_TYPE):
            if kind != TRANSACTION_NOT_TYPE or header.from_transaction_check:
                logger.warning(
                    "%(peer)s: transaction %(msg_id)s: state %(outcome)d",
                    {"peer": channel, "msg_id": header.msg_id, "outcome": kind},
                )
            return
        half = self._half_message(header.commit_log_offset)
        # The offset may be written in a way that does not find it in the cache.
        self._cache.remove(header.commit_log_offset)
        self._check(half, header)
        self._refuse_forged(half)
        current = self._transactions.can_end(half.queue_offset)
        if current is None:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, f"{_NOT_FOUND}: the transaction has ended already"
            )
        if kind == TRANSACTION_COMMIT_TYPE:
            try:
                # Half messages of an older version, or of Apache's broker, may name a topic that
                # nothing may be delivered to.
                self._puts.kinds.real_place(half)
                message = final_message(half)
            except ValueError as error:
                raise RequestRefused(
                    ResponseCode.SYSTEM_ERROR, f"the half message is damaged: {error!r}"
                ) from error
            self._puts.put_and_answer(request, channel, message)
            latency_ms = self._store.wall_time_ms - message.born_timestamp_ms
            self._ends.commit(message.topic, latency_ms)
        else:
            self._puts.answer_with_turn(request, channel, NOT_SET)
            self._ends.roll_back(half.find(REAL_TOPIC_NAME) or half.topic)
        # After the final message is put: if that fails, the transaction stays open and is checked.
        self._transactions.end(current)

    def _end_cached(self, request: RemotingCommand, channel: Channel) -> bool:
        """The fast path of `end_transaction`: an end without a fault, of a cached half message.

        Returns: False: nothing was done.
        Raises: RequestRefused: the final message was not stored.
        """
        fields = request.ext_fields
        kind = _KINDS.get(fields.get("commitOrRollback", ""))
        half_offset = _offset(fields.get("commitLogOffset"))
        queue_offset = _offset(fields.get("tranStateTableOffset"))
        group = fields.get("producerGroup")
        if kind is None or half_offset is None or queue_offset is None or group is None:
            return False
        transaction_id = fields.get("transactionId") or ""
        half = self._cached.find(half_offset, queue_offset, group, transaction_id)
        if half is None:
            return False
        turn = self._turn
        turn.begin(channel)
        refusal = self._cached.end(half, kind)
        if refusal is not None:
            raise turn.refusal(refusal)
        is_commit = kind == TRANSACTION_COMMIT_TYPE
        waits = half.waits or not is_commit
        if request.flag & 2:  # as all known clients send it
            turn.accept_oneway(request, waits)
            self._transactions.counts.left += 1
        else:
            remark, more = (None, {}) if is_commit else (NOT_SET, NO_EXT_FIELDS)
            turn.answer(request, request.answer(ResponseCode.SUCCESS, remark, more), waits)
        return True

    def _check(self, half: MessageExt, header: EndTransactionRequestHeader) -> None:
        """Source: EndTransactionProcessor.checkPrepareMessage, rejectCommitOrRollback."""
        if not header.from_transaction_check and half.find(
            PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS.encode()
        ):
            own_ms = immunity_ms(half.properties_bytes, self._config.transaction_time_out)
            least_ms = max(own_ms, self._config.transaction_time_out)
            if self._transactions.age_ms(half) > least_ms:
                raise RequestRefused(
                    ResponseCode.ILLEGAL_OPERATION,
                    "the transaction ends later than its own check immunity time, a check will ask",
                )
        for is_right, what in (
            (half.topic == TRANS_HALF_TOPIC, _NOT_FOUND),
            # After a power cut under ASYNC_FLUSH another message may have its offset.
            (header.transaction_id in (None, "", half.unique_key), _NOT_FOUND),
            (half.find(PRODUCER_GROUP_NAME) == header.producer_group, "The producer group wrong"),
            (
                half.queue_offset == header.tran_state_table_offset,
                "The transaction state table offset wrong",
            ),
        ):
            if not is_right:
                raise RequestRefused(ResponseCode.SYSTEM_ERROR, what)

    def _refuse_forged(self, half: MessageExt) -> None:
        """Refuse bytes within a body that look like a half message, but are no record of the queue.

        Raises: RequestRefused: SYSTEM_ERROR, as for an unknown transaction.
        """
        try:
            is_there = self._store.is_in_queue(
                half.topic,
                half.queue_id,
                QueueOffset(half.queue_offset),
                PhysicalOffset(half.physical_offset),
            )
        except StoreError as error:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"{_NOT_FOUND}: {error}") from error
        if not is_there:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, _NOT_FOUND)

    def _half_message(self, physical_offset: int) -> MessageExt:
        return stored_message(
            self._store, physical_offset, failed=f"{_NOT_FOUND}: ", missing=_NOT_FOUND
        )

    def resume_check(self, request: RemotingCommand, channel: Channel) -> None:
        """Resume the checks of a parked transaction, with the count reset to 0.

        Raises: RequestRefused: SYSTEM_ERROR with Apache's remark and the reason.
        """
        header = decode(ResumeCheckHalfMessageRequestHeader, request.ext_fields)
        failed = "Exception was thrown when putting message back to RMQ_SYS_TRANS_HALF_TOPIC."
        try:
            parked = self._half_message(decode_offset_id(header.msg_id).physical_offset)
        except (LocalProtocolError, RemoteProtocolError, ValueError) as error:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"{failed} {error}") from error
        if parked.topic != TRANS_CHECK_MAX_TIME_TOPIC:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, f"{failed} The message lies in {parked.topic}."
            )
        self._refuse_forged(parked)
        try:
            self._puts.kinds.real_place(parked)
        except ValueError as error:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"{failed} {error}") from error
        self._halves.put_and_answer(request, channel, renewed_half(parked, 0))


def _offset(text: str | None) -> int | None:
    """The offset that a field's text gives in the usual way; None: it is written otherwise."""
    if text is None or not (text.isascii() and text.isdecimal()) or len(text) > _OFFSET_DIGITS:
        return None
    return int(text)
