"""Sends, ends of transactions and recalls.

Source: ProducerImpl.java of rocketmq-clients 5.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from ...common.message_properties import (
    PROPERTY_TRANSACTION_PREPARED,
    properties_from_bytes,
    properties_from_string,
)
from ...grpc_protocol.enums import Code, TransactionResolution, TransactionSource
from ...grpc_protocol.fields import set_resource
from ...remoting.codec import RemotingCommand
from ...remoting.headers.base import decode
from ...remoting.headers.message import EndTransactionRequestHeader, RecallMessageRequestHeader
from ...remoting.message_batch import iter_batch
from ...remoting.number_fields import INT64, parse_integer
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode
from ...remoting.sys_flag import TRANSACTION_COMMIT_TYPE, TRANSACTION_ROLLBACK_TYPE
from .asks import Ask
from .client_profile import Profile
from .codes import Refused, answer_of, is_ok
from .messages import set_message

UNKNOWN_QUEUE: Final = "-1"
"""The queue id of a send's answer: servers choose the queue, and do not say which one."""

_STORED: Final = (
    Code.MASTER_PERSISTENCE_TIMEOUT,
    Code.SLAVE_PERSISTENCE_TIMEOUT,
    Code.HA_NOT_AVAILABLE,
)
_RESOLUTIONS: Final = {
    TRANSACTION_COMMIT_TYPE: TransactionResolution.COMMIT,
    TRANSACTION_ROLLBACK_TYPE: TransactionResolution.ROLLBACK,
}


def send_message(profile: Profile, address: str, command: RemotingCommand) -> Ask:
    """SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE become SendMessage."""
    fields = command.ext_fields  # by the letters of SEND_MESSAGE_V2_LETTERS
    topic, born_ms = fields["b"], _integer(fields, "g")
    member = profile.producer(fields["a"])
    member.publish(topic)
    request = profile.messages.SendMessageRequest()
    is_transaction = False
    if command.code == RequestCode.SEND_BATCH_MESSAGE:
        for _, body, encoded in iter_batch(command.body):
            properties = properties_from_bytes(encoded)
            set_message(request.messages.add(), topic, body, properties, 0, born_ms)
    else:
        properties = properties_from_string(fields.get("i", ""))
        sys_flag = _integer(fields, "f")
        set_message(request.messages.add(), topic, command.body, properties, sys_flag, born_ms)
        is_transaction = PROPERTY_TRANSACTION_PREPARED in properties
    read = partial(_read_send, command, is_transaction=is_transaction)
    return Ask("SendMessage", request, read, member)


def _integer(fields: Any, name: str) -> int:
    number = parse_integer(fields.get(name, "0"))
    if number is None or not INT64.has(number):
        raise Refused(ResponseCode.MESSAGE_ILLEGAL, f"the field {name} is no number")
    return number


def _read_send(
    command: RemotingCommand, answers: Sequence[Any], *, is_transaction: bool
) -> RemotingCommand:
    (answer,) = answers
    entries = answer.entries
    for status in (*(each.status for each in entries), answer.status):
        # Of MULTIPLE_RESULTS the first one counts that is no success.
        if not is_ok(status):
            refusal = answer_of(command, status)
            if status.code not in _STORED:
                return refusal
            # Stored, but not as safely as the server is to store it.
            return command.answer(refusal.code, refusal.remark, _stored_fields(-1))
    if not entries:
        return command.answer(ResponseCode.SYSTEM_ERROR, "the answer to the send has no entry")
    first = entries[0]
    fields = _stored_fields(first.offset)
    if is_transaction:
        fields["transactionId"] = first.transaction_id
    if first.recall_handle:
        fields["recallHandle"] = first.recall_handle
    return command.answer(ext_fields=fields)


def _stored_fields(offset: int) -> dict[str, str]:
    return {"msgId": "", "queueId": UNKNOWN_QUEUE, "queueOffset": str(offset)}


def end_transaction(profile: Profile, address: str, command: RemotingCommand) -> Ask:
    """END_TRANSACTION becomes EndTransaction."""
    header = decode(EndTransactionRequestHeader, command.ext_fields)
    resolution = _RESOLUTIONS.get(header.commit_or_rollback)
    if resolution is None:
        # It is not known yet: the server will ask again.
        raise Refused(ResponseCode.SUCCESS, "")
    from_check = header.from_transaction_check
    request = profile.messages.EndTransactionRequest(
        message_id=header.msg_id or "",
        transaction_id=header.transaction_id or "",
        resolution=resolution,
        source=(
            TransactionSource.SOURCE_SERVER_CHECK if from_check else TransactionSource.SOURCE_CLIENT
        ),
    )
    set_resource(request.topic, header.topic or "")
    member = profile.producer(header.producer_group)
    return Ask("EndTransaction", request, partial(read_status, command), member)


def recall_message(profile: Profile, address: str, command: RemotingCommand) -> Ask:
    """RECALL_MESSAGE becomes RecallMessage."""
    header = decode(RecallMessageRequestHeader, command.ext_fields)
    request = profile.messages.RecallMessageRequest(recall_handle=header.recall_handle)
    set_resource(request.topic, header.topic)
    member = None if header.producer_group is None else profile.producer(header.producer_group)

    def read(answers: Sequence[Any]) -> RemotingCommand:
        (answer,) = answers
        if not is_ok(answer.status):
            return answer_of(command, answer.status)
        return command.answer(ext_fields={"msgId": answer.message_id})

    return Ask("RecallMessage", request, read, member)


def read_status(command: RemotingCommand, answers: Sequence[Any]) -> RemotingCommand:
    """The answer to a request by a call whose answer is a status."""
    (answer,) = answers
    return answer_of(command, answer.status)
