"""Requests about one queue: its offsets, the committed offset of a group, a pull.

A request is a value: its fields, and a function that reads the answer. `client.pulling` sends them
for consumers, and Spark's source sends them with the blocking client.

Java counterpart: MQClientAPIImpl. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from ...remoting.bodies import MessageQueue, SubscriptionData
from ...remoting.codec import RemotingCommand
from ...remoting.headers import (
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    OffsetResponseHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    QueryConsumerOffsetRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from ...remoting.headers.base import Header, decode
from ...remoting.pull_sys_flag import CLASS_FILTER, COMMIT_OFFSET, SUBSCRIPTION, SUSPEND
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode

T = TypeVar("T")


class PullStatus(Enum):
    """The status of a pull."""

    FOUND = ResponseCode.SUCCESS
    """There are messages."""
    NO_NEW_MESSAGE = ResponseCode.PULL_NOT_FOUND
    """The queue has no message at this offset yet."""
    NO_MATCHED_MESSAGE = ResponseCode.PULL_RETRY_IMMEDIATELY
    """No message up to the next offset matches the subscription."""
    OFFSET_ILLEGAL = ResponseCode.PULL_OFFSET_MOVED
    """The queue does not have this offset; continue at the next offset of the answer."""


PULL_STATUSES: Final = {int(status.value): status for status in PullStatus}
"""The status by response code, for the codes of a pull that are no errors."""


class QueueRequest(msgspec.Struct, Generic[T], frozen=True):
    """A request about one queue.

    Attributes:
      code: the request code.
      header: fields of the request.
      read: returns the result of an answer whose response code is one of `ok`; raises
        RequestRefused or RemoteProtocolError if the answer cannot be decoded.
      ok: response codes that count as success.
    """

    code: RequestCode
    header: Header
    read: Callable[[RemotingCommand], T]
    ok: tuple[int, ...] = (ResponseCode.SUCCESS,)


class PullAnswer(NamedTuple):
    """The answer to a pull, with encoded messages.

    Attributes:
      code: SUCCESS, PULL_NOT_FOUND, PULL_RETRY_IMMEDIATELY or PULL_OFFSET_MOVED.
      body: the records of the messages, one after the other.
      offset_delta: number to add to the queue offset of each record.
      next_offset: offset of the next pull.
      min_offset: offset of the first message in the queue.
      max_offset: offset of the next message to be stored in the queue.
      suggested_broker_id: id of the broker to pull from next; 0: the master.
    """

    code: int
    body: bytes
    offset_delta: int
    next_offset: int
    min_offset: int
    max_offset: int
    suggested_broker_id: int = 0


def max_offset(queue: MessageQueue) -> QueueRequest[int]:
    """Query the offset of the next message to be stored in a queue."""
    header = GetMaxOffsetRequestHeader(
        topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name
    )
    return QueueRequest(RequestCode.GET_MAX_OFFSET, header, _offset)


def min_offset(queue: MessageQueue) -> QueueRequest[int]:
    """Query the offset of the first message that a queue still has."""
    header = GetMinOffsetRequestHeader(
        topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name
    )
    return QueueRequest(RequestCode.GET_MIN_OFFSET, header, _offset)


def search_offset(queue: MessageQueue, timestamp_ms: int) -> QueueRequest[int]:
    """Query the offset of the first message stored at `timestamp_ms` (ms since 1970) or later."""
    header = SearchOffsetRequestHeader(
        topic=queue.topic,
        queue_id=queue.queue_id,
        timestamp=timestamp_ms,
        broker_name=queue.broker_name,
    )
    return QueueRequest(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header, _offset)


def committed_offset(
    queue: MessageQueue, group: str, *, set_zero_if_not_found: bool | None = None
) -> QueueRequest[int | None]:
    """Query the committed offset of a group; the result is None if there is none.

    Args:
      queue: the queue.
      group: name of the group, with namespace.
      set_zero_if_not_found: False: the broker must not answer 0 for a group that it does not know,
        which it does while the first messages of the queue are in memory. None: not sent, which
        brokers treat as True.
    """
    header = QueryConsumerOffsetRequestHeader(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        set_zero_if_not_found=set_zero_if_not_found,
        broker_name=queue.broker_name,
    )
    ok = (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)
    return QueueRequest(RequestCode.QUERY_CONSUMER_OFFSET, header, _committed, ok)


def commit_offset(queue: MessageQueue, group: str, offset: int) -> QueueRequest[None]:
    """Commit an offset of a group."""
    header = UpdateConsumerOffsetRequestHeader(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        commit_offset=offset,
        broker_name=queue.broker_name,
    )
    return QueueRequest(RequestCode.UPDATE_CONSUMER_OFFSET, header, _no_result)


def pull(
    queue: MessageQueue,
    subscription: SubscriptionData,
    group: str,
    offset: int,
    *,
    count: int,
    size: int | None = None,
    suspend_s: float = 0.0,
    commit_offset: int = 0,
    is_subscription_sent: bool = False,
    is_class_filtered: bool = False,
) -> QueueRequest[PullAnswer]:
    """Pull once.

    Args:
      queue: the queue; its topic has the namespace.
      subscription: which messages to receive.
      group: name of the group, with namespace.
      offset: offset of the first message.
      count: largest number of messages.
      size: largest size of the answer in bytes, for brokers of 5.x; None: the broker's limit.
      suspend_s: seconds that the broker may hold the pull while there are no messages; 0: none.
      commit_offset: the group's offset, to be committed with the pull; 0: none.
      is_subscription_sent: send the subscription with the pull; otherwise the broker uses that of
        the heartbeats.
      is_class_filtered: the pull is sent to a filter server.
    """
    header = PullMessageRequestHeader(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_msg_nums=count,
        sys_flag=(COMMIT_OFFSET if commit_offset > 0 else 0)
        | (SUSPEND if suspend_s > 0 else 0)
        | (SUBSCRIPTION if is_subscription_sent else 0)
        | (CLASS_FILTER if is_class_filtered else 0),
        commit_offset=commit_offset,
        suspend_timeout_millis=round(suspend_s * 1000),
        subscription=subscription.sub_string if is_subscription_sent else None,
        sub_version=subscription.sub_version,
        expression_type=subscription.expression_type,
        broker_name=queue.broker_name,
        max_msg_bytes=size,
    )
    return QueueRequest(RequestCode.PULL_MESSAGE, header, _pulled, tuple(PULL_STATUSES))


def _offset(answer: RemotingCommand) -> int:
    return decode(OffsetResponseHeader, answer.ext_fields).offset


def _committed(answer: RemotingCommand) -> int | None:
    return None if answer.code == ResponseCode.QUERY_NOT_FOUND else _offset(answer)


def _no_result(answer: RemotingCommand) -> None:
    pass


def _pulled(answer: RemotingCommand) -> PullAnswer:
    header = decode(PullMessageResponseHeader, answer.ext_fields)
    return PullAnswer(
        answer.code,
        answer.body,
        header.offset_delta or 0,
        header.next_begin_offset,
        header.min_offset,
        header.max_offset,
        header.suggest_which_broker_id,
    )
