"""Transactions: half messages whose checks are used up.

Java counterpart: `resumeCheckHalfMessage` of DefaultMQAdminExt.
"""

from __future__ import annotations

from ...common.topic_names import TRANS_CHECK_MAX_TIME_TOPIC
from ...remoting.headers import ResumeCheckHalfMessageRequestHeader
from ...remoting.request_codes import RequestCode
from ..errors import ConfigurationError
from ..messages.message import ReceivedMessage
from .asking import Brokers


class TransactionVerbs:
    """The part of `Admin` about transactions."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._client = brokers.client

    async def resume_check(self, message: ReceivedMessage) -> None:
        """Have a broker ask the producers again about a transaction that it gave up.

        The broker writes the message into its half topic again, with no check counted; the old
        record stays in TRANS_CHECK_MAX_TIME_TOPIC.

        Args:
          message: of TRANS_CHECK_MAX_TIME_TOPIC, as one of the look-ups gave it.

        Raises: ConfigurationError: it is of another topic. NotFoundError: its broker is gone.
          ServerError: its record is deleted, or the broker cannot store it. ConnectError.
        Source: AdminBrokerProcessor.resumeCheckHalfMessage.
        """
        topic = message.queue.topic
        if topic != TRANS_CHECK_MAX_TIME_TOPIC:
            raise ConfigurationError(f"{topic!r} is not {TRANS_CHECK_MAX_TIME_TOPIC}")
        at = await self._brokers.one(message.queue.broker_name)
        header = ResumeCheckHalfMessageRequestHeader(msg_id=message.offset_message_id, topic=topic)
        code = RequestCode.RESUME_CHECK_HALF_MESSAGE
        await self._client.request(at.address, code, header)
