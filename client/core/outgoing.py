"""Prepared messages and batches, and the results that are built from a broker's answers.

Java counterpart: DefaultMQProducerImpl.sendKernelImpl, MQClientAPIImpl.processSendResponse. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from ...remoting.bodies import MessageQueue
from ...remoting.codec import RemotingCommand
from ...remoting.errors import LocalProtocolError
from ...remoting.response_codes import ResponseCode
from ..errors import BadAnswerError, MessageRefusedError
from ..messages.message import Message, SendResult, SendStatus
from .send_header import SendPayload, SendTemplate

STORED: Final[Mapping[int, SendStatus]] = {
    ResponseCode.SUCCESS: SendStatus.SEND_OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
}
"""Response codes after which the message is in the master's log, and their SendStatus."""


class BatchEntry(NamedTuple):
    """A message that is prepared for a batch.

    Attributes:
      message: the message that the program gave.
      message_id: its unique key.
      size: size of the body, in bytes.
      encoded: the message as it stands in a batch's body.
    """

    message: Message
    message_id: str
    size: int
    encoded: bytes


class Outgoing(msgspec.Struct, gc=False):
    """A message or a batch, ready to be sent to any queue of its topic.

    Attributes:
      message: the message that the program gave; for a batch, the first one.
      topic: name of the topic, with namespace.
      message_id: its unique key; for a batch, all unique keys joined by commas.
      template: encodes the request.
      payload: the encoded message.
      entries: the messages of a batch of several.
    """

    message: Message
    topic: str
    message_id: str
    template: SendTemplate
    payload: SendPayload
    entries: Sequence[BatchEntry] = ()

    def encode(self, queue: MessageQueue, opaque: int, *, oneway: bool = False) -> bytes:
        """Encode the whole request.

        Raises: MessageRefusedError: the message or a field is too long.
        """
        try:
            return self.template.encode(
                self.payload, queue.queue_id, queue.broker_name, opaque, oneway=oneway
            )
        except LocalProtocolError as error:
            raise MessageRefusedError(str(error)) from error

    def result(self, answer: RemotingCommand, queue: MessageQueue) -> SendResult:
        """The result that an answer with a response code of STORED reports.

        Raises: BadAnswerError: a field is missing or invalid.
        """
        # Called for each message, so without a header object, which costs three times as much.
        find = answer.ext_fields.get
        try:
            queue_id = int(answer.ext_fields["queueId"])
            queue_offset = int(answer.ext_fields["queueOffset"])
            offset_message_id = answer.ext_fields["msgId"]
        except (KeyError, ValueError) as error:
            raise BadAnswerError(
                queue.broker_name, f"a field of the send's answer is missing or invalid: {error}"
            ) from error
        if queue_id != queue.queue_id:
            queue = MessageQueue(queue.topic, queue.broker_name, queue_id)
        message_id = self.message_id
        if self.payload.is_batch:
            message_id = find("batchUniqId") or message_id
        return SendResult(
            STORED[answer.code],
            message_id,
            queue,
            queue_offset,
            offset_message_id,
            find("transactionId"),
            find("recallHandle"),
            find("MSG_REGION"),
        )
