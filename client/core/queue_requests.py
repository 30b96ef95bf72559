"""The requests about one queue: its offsets, a group's offset in it, one pull.

Each is a value: what is asked, and how the answer is read. Whoever has a connection sends it:
`client.pulling` for consumers, Spark's source by the blocking client.

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
    """What a pull brought."""

    FOUND = ResponseCode.SUCCESS
    NO_NEW_MESSAGE = ResponseCode.PULL_NOT_FOUND
    NO_MATCHED_MESSAGE = ResponseCode.PULL_RETRY_IMMEDIATELY
    OFFSET_ILLEGAL = ResponseCode.PULL_OFFSET_MOVED


PULL_STATUSES: Final = {int(status.value): status for status in PullStatus}
"""The response codes of a pull that are no error."""


class QueueRequest(msgspec.Struct, Generic[T], frozen=True):
    """A request about one queue.

    Attributes:
      code: of the request.
      read: makes the result of an answer whose code is one of `ok`. Raises: RequestRefused;
        RemoteProtocolError: the answer cannot be read.
      ok: response codes that are no error.
    """

    code: RequestCode
    header: Header
    read: Callable[[RemotingCommand], T]
    ok: tuple[int, ...] = (ResponseCode.SUCCESS,)


class PullAnswer(NamedTuple):
    """The answer to a pull, its messages as they came.

    Attributes:
      code: SUCCESS, PULL_NOT_FOUND, PULL_RETRY_IMMEDIATELY or PULL_OFFSET_MOVED.
      body: records one after the other.
      offset_delta: to be added to the queue offset of each.
      next_offset: where to pull next.
      min_offset, max_offset: what the queue has.
      suggested_broker_id: of the broker to ask next; 0: the master.
    """

    code: int
    body: bytes
    offset_delta: int
    next_offset: int
    min_offset: int
    max_offset: int
    suggested_broker_id: int = 0


def max_offset(queue: MessageQueue) -> QueueRequest[int]:
    """Queue offset of the next message to come."""
    header = GetMaxOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id)
    return QueueRequest(RequestCode.GET_MAX_OFFSET, header, _offset)


def min_offset(queue: MessageQueue) -> QueueRequest[int]:
    """Queue offset of the first message that is there."""
    header = GetMinOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id)
    return QueueRequest(RequestCode.GET_MIN_OFFSET, header, _offset)


def search_offset(queue: MessageQueue, timestamp_ms: int) -> QueueRequest[int]:
    """Queue offset of the first message stored at a time or later, ms since 1970."""
    header = SearchOffsetRequestHeader(
        topic=queue.topic, queue_id=queue.queue_id, timestamp=timestamp_ms
    )
    return QueueRequest(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header, _offset)


def committed_offset(
    queue: MessageQueue, group: str, *, set_zero_if_not_found: bool | None = None
) -> QueueRequest[int | None]:
    """Where a group goes on, by the broker; None: it never committed.

    Args:
      set_zero_if_not_found: False: a broker does not say 0 of a group that it does not know, in a
        queue that is young; None: not sent, and brokers take it for True.
    """
    header = QueryConsumerOffsetRequestHeader(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        set_zero_if_not_found=set_zero_if_not_found,
    )
    ok = (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)
    return QueueRequest(RequestCode.QUERY_CONSUMER_OFFSET, header, _committed, ok)


def commit_offset(queue: MessageQueue, group: str, offset: int) -> QueueRequest[None]:
    """Note where a group goes on."""
    header = UpdateConsumerOffsetRequestHeader(
        consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=offset
    )
    return QueueRequest(RequestCode.UPDATE_CONSUMER_OFFSET, header, _nothing)


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
    """One pull.

    Args:
      queue: its topic with namespace.
      group: with namespace.
      offset: of the first message wanted, in messages.
      count: of messages, at most.
      size: bytes of the answer at most, for brokers of 5.x; None: as the broker likes.
      suspend_s: seconds that the broker may hold the pull when there is nothing; 0: none.
      commit_offset: the group's offset to note on the way; 0: none.
      is_subscription_sent: send the subscription with the pull; else heartbeats have brought it.
      is_class_filtered: it goes to a filter server.
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


def _nothing(answer: RemotingCommand) -> None:
    """That it was answered is all there is to know."""


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
