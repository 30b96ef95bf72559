"""Answers to clients whose message the store refused.

Java counterpart: broker/processor/SendMessageProcessor.java handlePutMessageResult of 5.3.3. Pure.
"""

from __future__ import annotations

from ...remoting.errors import RequestRefused
from ...remoting.response_codes import ResponseCode
from ...store.config import MessageStoreConfig
from ...store.status import PutMessageStatus, PutRefusal


def refusal_of_put(refusal: PutRefusal, config: MessageStoreConfig) -> RequestRefused:
    """The answer to a put that stored nothing."""
    status, remark = refusal
    if status in (PutMessageStatus.MESSAGE_ILLEGAL, PutMessageStatus.PROPERTIES_SIZE_EXCEEDED):
        # The broker adds properties, so a message may be refused that seems to be within 32 KB.
        is_long = status is PutMessageStatus.PROPERTIES_SIZE_EXCEEDED and remark
        own = f" With those that the broker adds it has {remark}." if is_long else ""
        return RequestRefused(
            ResponseCode.MESSAGE_ILLEGAL,
            "the message is illegal, maybe msg body or properties length not matched. msg body "
            f"length limit {config.max_message_size}B, msg properties length limit 32KB.{own}",
        )
    why = f" ({remark})" if remark else ""
    if status is PutMessageStatus.SERVICE_NOT_AVAILABLE:
        # Apache's remark lists possible causes: a full disk, a slave, a store that was shut down.
        reason = remark or "the message store has been shut down"
        return RequestRefused(
            ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {reason}"
        )
    if status is PutMessageStatus.CREATE_MAPPED_FILE_FAILED:
        return RequestRefused(
            ResponseCode.SYSTEM_ERROR, f"create mapped file failed, server is busy or broken.{why}"
        )
    if status is PutMessageStatus.OS_PAGE_CACHE_BUSY:
        return RequestRefused(
            ResponseCode.SYSTEM_BUSY,
            "[PC_SYNCHRONIZED]broker busy, start flow control for a while",
        )
    if status is PutMessageStatus.WHEEL_TIMER_MSG_ILLEGAL:
        return RequestRefused(
            ResponseCode.MESSAGE_ILLEGAL,
            "timer message illegal, the delay time should not be bigger than the max delay "
            f"{config.timer_max_delay_sec * 1000}ms; or if set del msg, the delay time should be "
            "bigger than the current time",
        )
    if status is PutMessageStatus.WHEEL_TIMER_NOT_ENABLE:
        return RequestRefused(
            ResponseCode.SYSTEM_ERROR,
            "accurate timer message is not enabled, timerWheelEnable is false",
        )
    return RequestRefused(ResponseCode.SYSTEM_ERROR, f"{status.name}{why}")
