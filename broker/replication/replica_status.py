"""Requests of slaves, and the state of replication: GET_ALL_CONSUMER_OFFSET (43),
GET_ALL_DELAY_OFFSET (45), GET_TIMER_CHECK_POINT (60), GET_TIMER_METRICS (61),
GET_ALL_MESSAGE_REQUEST_MODE (402), GET_BROKER_HA_STATUS (907).

Topics (21) and groups (201) are in `topic_admin.py` and `group_admin.py`. A slave also answers,
from its copies.

Java counterpart: AdminBrokerProcessor.getAllConsumerOffset and the like of 5.3.3. Pure.
Not done: counts of timer messages by topic.
"""

from __future__ import annotations

from collections.abc import Callable

from ...common.clock import Clock
from ...common.steps import Steps
from ...remoting import fastjson
from ...remoting.bodies import DataVersion, HARuntimeInfo
from ...remoting.channel import Answer, Channel, Deferred, Processor, answer_of
from ...remoting.codec import RemotingCommand
from ...remoting.errors import RequestRefused
from ...remoting.headers import (
    GetAllConsumerOffsetRequestHeader,
    GetAllConsumerOffsetResponseHeader,
    decode,
    encode_header,
)
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode
from ..delivering.timer_message_service import TimerMessageService
from ..tables.consumer_offset_manager import ConsumerOffsetManager
from ..tables.delay_offset_manager import DelayOffsetManager
from ..tables.offset_pages import page_of_offsets
from ..tables.request_modes import MessageRequestModeManager


class ReplicationProcessor:
    """Serves slaves and administrators of replication.

    Args:
      offsets, delay_offsets, request_modes: the broker's tables.
      timers: None if there are none (timerWheelEnable=false).
      status: returns the state of replication.
      clock: its wall time goes into the answers.
    """

    def __init__(
        self,
        *,
        offsets: ConsumerOffsetManager,
        delay_offsets: DelayOffsetManager,
        request_modes: MessageRequestModeManager,
        timers: TimerMessageService | None,
        status: Callable[[], HARuntimeInfo],
        clock: Clock,
    ) -> None:
        self._offsets = offsets
        self._delay_offsets = delay_offsets
        self._modes = request_modes
        self._timers = timers
        self._status = status
        self._clock = clock
        self.processors: dict[RequestCode, Processor] = {
            RequestCode.GET_ALL_CONSUMER_OFFSET: self._consumer_offsets,
            RequestCode.GET_ALL_DELAY_OFFSET: self._all_delay_offsets,
            RequestCode.GET_TIMER_CHECK_POINT: self._timer_checkpoint,
            RequestCode.GET_TIMER_METRICS: self._timer_metrics,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: self._request_modes,
            RequestCode.GET_BROKER_HA_STATUS: self._ha_status,
        }

    def _consumer_offsets(self, request: RemotingCommand, _: Channel) -> Answer:
        header = decode(GetAllConsumerOffsetRequestHeader, request.ext_fields)
        if header.max_offset_num is None:
            return answer_of(self._answer_offsets(request))
        body, last = page_of_offsets(
            self._offsets, header.after_topic_group or "", header.max_offset_num
        )
        answer = GetAllConsumerOffsetResponseHeader(last_topic_group=last)
        return request.answer(ext_fields=encode_header(answer), body=body)

    def _answer_offsets(self, request: RemotingCommand) -> Steps[RemotingCommand | Deferred]:
        return request.answer(body=(yield from self._offsets.to_body()))

    def _all_delay_offsets(self, request: RemotingCommand, _: Channel) -> Answer:
        return request.answer(body=self._delay_offsets.encode())

    def _timer_checkpoint(self, request: RemotingCommand, _: Channel) -> Answer:
        if self._timers is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "The checkpoint is null")
        progress = self._timers.progress()
        return request.answer(body=progress.to_answer(self._clock.wall_ms()))

    def _timer_metrics(self, request: RemotingCommand, _: Channel) -> Answer:
        if self._timers is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "The timer message store is null")
        now_ms = self._clock.wall_ms()
        counts = {
            topic: {"count": count, "timeStamp": now_ms}
            for topic, count in self._timers.counts.waiting().items()
        }
        body = fastjson.dumps({"dataVersion": DataVersion(), "timingCount": counts})
        return request.answer(body=body)

    def _request_modes(self, request: RemotingCommand, _: Channel) -> Answer:
        return answer_of(self._answer_modes(request))

    def _answer_modes(self, request: RemotingCommand) -> Steps[RemotingCommand | Deferred]:
        return request.answer(body=(yield from self._modes.to_body()))

    def _ha_status(self, request: RemotingCommand, _: Channel) -> Answer:
        return request.answer(body=self._status().to_body())
