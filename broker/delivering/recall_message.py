"""Recalls of timer messages: RECALL_MESSAGE 370.

A recall is stored as a message in rmq_sys_wheel_timer, in the same slot as the recalled one.

Java counterpart: broker/processor/RecallMessageProcessor.java of 5.5.0.
"""

from __future__ import annotations

from ...common.message_properties import (
    PROPERTY_TIMER_DEL_UNIQKEY,
    PROPERTY_TIMER_DELIVER_MS,
    properties_to_bytes,
)
from ...remoting.channel import Channel, Processor
from ...remoting.codec import RemotingCommand
from ...remoting.errors import RequestRefused
from ...remoting.headers import RecallMessageRequestHeader, decode
from ...remoting.number_fields import parse_integer
from ...remoting.recall_handle import RecallHandle
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import NOT_SET, ResponseCode
from ...store.message_store import MessageStore
from ..messages.inner_message import InnerMessage
from ..puts.turn_puts import TurnPuts
from ..settings.config import BrokerConfig
from ..tables.topic_config_manager import TopicConfigManager

RECALL_TAG = "_RECALL_TAG_"


class RecallMessageProcessor:
    """Recalls timer messages.

    Args:
      store: already loaded.
      puts: appends messages, and answers when they are written.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        puts: TurnPuts,
        topics: TopicConfigManager,
    ) -> None:
        self._config = config
        self._store = store
        self._puts = puts
        self._topics = topics
        self.processors: dict[RequestCode, Processor] = {RequestCode.RECALL_MESSAGE: self.recall}

    def recall(self, request: RemotingCommand, channel: Channel) -> None:
        """Serve a recall; the answer names the message by its unique key.

        Raises: RequestRefused: recalls are off, or the handle is not that of a message that waits
          on this broker.
        """
        header = decode(RecallMessageRequestHeader, request.ext_fields)
        if not self._config.recall_message_enable:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden"
            )
        if header.topic not in self._topics.topic_config_table:
            raise RequestRefused(
                ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{header.topic}] not exist"
            )
        if not self._puts.kinds.may_name(RequestCode.RECALL_MESSAGE, header.topic):
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                f"recall failed, topic[{header.topic}] holds the broker's own records",
            )
        handle = self._read(header)
        now_ms = self._store.wall_time_ms
        # A recall is a timer message with the same due time. It deletes the waiting one when both
        # are read from the wheel.
        properties = {
            "TAGS": RECALL_TAG,
            PROPERTY_TIMER_DEL_UNIQKEY: handle.unique_key,
            "UNIQ_KEY": handle.unique_key,
            PROPERTY_TIMER_DELIVER_MS: handle.deliver_ms,
            "BORN_TIMESTAMP": str(now_ms),
            "TRACE_CONTEXT": "",
            "PGROUP": header.producer_group or "",
        }
        message = InnerMessage(
            handle.topic,
            0,
            b"0",
            properties_to_bytes(properties),
            now_ms,
            channel.remote_host,
            self._puts.turn.store_host,
        )
        fields = {"msgId": handle.unique_key, "MSG_REGION": self._config.region_id}
        self._puts.put_and_answer(request, channel, message, fields=fields, remark=NOT_SET)

    def _read(self, header: RecallMessageRequestHeader) -> RecallHandle:
        """The handle of a message that is not due yet.

        Raises: RequestRefused: ILLEGAL_OPERATION if the handle is malformed, of another topic or
          broker, or its message is due already.
        """
        try:
            handle = RecallHandle.from_text(header.recall_handle)
        except ValueError as error:
            raise RequestRefused(ResponseCode.ILLEGAL_OPERATION, str(error)) from error
        if handle.topic != header.topic:
            raise RequestRefused(ResponseCode.ILLEGAL_OPERATION, "recall failed, topic not match")
        if handle.broker_name != self._config.broker_name:
            raise RequestRefused(
                ResponseCode.ILLEGAL_OPERATION, "recall failed, broker service not available"
            )
        deliver_ms = parse_integer(handle.deliver_ms)
        left_ms = -1 if deliver_ms is None else deliver_ms - self._store.wall_time_ms
        if not 0 < left_ms < self._store.config.timer_max_delay_sec * 1000:
            raise RequestRefused(ResponseCode.ILLEGAL_OPERATION, "recall failed, timestamp invalid")
        return handle
