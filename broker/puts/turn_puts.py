"""TurnPuts: appends messages within a turn, for all processors that store messages.

Sends, messages sent back, ends of transactions and recalls store a message and are answered when
the turn is written; their processors share this part.

Java counterpart: the common half of broker/processor/AbstractSendMessageProcessor.java of 5.3.3.
"""

from __future__ import annotations

from typing import NamedTuple

from ...common.message_properties import WAIT_OFF
from ...remoting.channel import Channel
from ...remoting.codec import RemotingCommand
from ...remoting.errors import RequestRefused
from ...remoting.response_codes import ResponseCode
from ...store.message_store import MessageStore
from ...store.offsets import PhysicalOffset, QueueOffset
from ...store.status import PutMessageStatus, PutRefusal
from ..messages.inner_message import InnerMessage, InnerPuts, WaitingRefused
from .send_turn import SendTurn


class Place(NamedTuple):
    """The offsets at which a message was appended."""

    physical_offset: PhysicalOffset
    queue_offset: QueueOffset


class TurnPuts:
    """Appends messages within a turn, and refuses those that cannot be stored.

    Args:
      store: already loaded.
      inner: appends messages of any kind.

    Attributes:
      turn, inner: see the arguments.
      kinds: the kinds of the broker's topics.
    """

    def __init__(self, store: MessageStore, inner: InnerPuts, turn: SendTurn) -> None:
        self.turn = turn
        self.inner = inner
        self.kinds = inner.kinds
        self._config = store.config

    def waiting(self, message: InnerMessage) -> InnerMessage:
        """See `InnerPuts.waiting`.

        Raises: RequestRefused: it must not be stored.
        """
        try:
            return self.inner.waiting(message)
        except ValueError as error:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, str(error)) from error
        except WaitingRefused as error:
            raise self.turn.refusal(PutRefusal(error.status, error.remark)) from error

    def put(self, message: InnerMessage) -> Place:
        """Append one message to its topic and queue; the turn must have begun.

        Raises: RequestRefused: it was not stored.
        """
        if len(message.body) > self._config.max_message_size:
            raise self.turn.refusal(PutRefusal(PutMessageStatus.MESSAGE_ILLEGAL))
        refusal, physical_offset, queue_offset = self.inner.put(message)
        if refusal is not None:
            raise self.turn.refusal(refusal)
        return Place(physical_offset, queue_offset)

    def put_and_answer(
        self,
        request: RemotingCommand,
        channel: Channel,
        message: InnerMessage,
        *,
        fields: dict[str, str] | None = None,
        remark: str | None = None,
        waits: bool | None = None,
    ) -> None:
        """Append a message, which may be delayed, and answer success when it is written.

        Args:
          request, channel: the request and its connection.
          fields, remark: of the answer.
          waits: whether the answer waits for disk and slaves; None: as the message's WAIT property
            says.
        Raises: RequestRefused: it was not stored.
        """
        self.turn.begin(channel)
        self.put(self.waiting(message))
        if waits is None:
            waits = WAIT_OFF not in message.properties
        answer = request.answer(ResponseCode.SUCCESS, remark, fields or {})
        self.turn.answer(request, answer, waits)

    def answer_with_turn(
        self, request: RemotingCommand, channel: Channel, remark: str | None = None
    ) -> None:
        """Answer success when the turn is written."""
        self.turn.begin(channel)
        self.turn.answer(request, request.answer(ResponseCode.SUCCESS, remark), True)
