"""Queue locks of orderly consumers: LOCK_BATCH_MQ (41) and UNLOCK_BATCH_MQ (42).

Java counterpart: AdminBrokerProcessor.lockBatchMQ, unlockBatchMQ of 5.3.3. Pure.
Not done: lockInStrictMode, which locks the queues at the other replicas, too.
"""

from __future__ import annotations

from typing import Final

from ...auth.standing import owner_of_id
from ...common.clock import Clock
from ...remoting.bodies import LockBatchRequestBody, LockBatchResponseBody, UnlockBatchRequestBody
from ...remoting.channel import Answer, Channel, Processor
from ...remoting.codec import RemotingCommand
from ...remoting.errors import RequestRefused
from ...remoting.names import NAME_SIZE_MAX
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode
from ..messages.request import read_body
from .client_channel_info import CLIENT_ID_LENGTH_MAX
from .rebalance_lock_manager import RebalanceLockManager

QUEUES_MAX: Final = 5_000
"""Queues of one request, at most: 12 ms. A client locks its queues of one broker per request."""


class LockProcessor:
    """Locks and frees queues.

    Args:
      clock: its monotonic time decides which locks have expired.
    """

    def __init__(self, locks: RebalanceLockManager, *, clock: Clock) -> None:
        self._locks = locks
        self._clock = clock
        self.processors: dict[RequestCode, Processor] = {
            RequestCode.LOCK_BATCH_MQ: self._lock,
            RequestCode.UNLOCK_BATCH_MQ: self._unlock,
        }

    def _lock(self, request: RemotingCommand, channel: Channel) -> Answer:
        body = read_body(request, LockBatchRequestBody.from_request, _check_count)
        _refuse_long_names(body)
        owner = owner_of_id(body.client_id, request, channel)
        held = self._locks.try_lock_batch(
            body.consumer_group, body.mq_set, owner, now_s=self._clock.monotonic_s()
        )
        return request.answer(body=LockBatchResponseBody(lock_ok_mq_set=held).to_body())

    def _unlock(self, request: RemotingCommand, channel: Channel) -> Answer:
        body = read_body(request, UnlockBatchRequestBody.from_request, _check_count)
        owner = owner_of_id(body.client_id, request, channel)
        self._locks.unlock_batch(body.consumer_group, body.mq_set, owner)
        return request.answer()


def _refuse_long_names(body: LockBatchRequestBody) -> None:
    """Raises: RequestRefused: SYSTEM_ERROR if a name is too long to be kept in the table."""
    names = [body.consumer_group]
    names += [name for queue in body.mq_set for name in (queue.topic, queue.broker_name)]
    longest = max(map(len, names))
    if longest > NAME_SIZE_MAX or len(body.client_id) > CLIENT_ID_LENGTH_MAX:
        raise RequestRefused(
            ResponseCode.SYSTEM_ERROR,
            f"no queue is locked: names have at most {NAME_SIZE_MAX} characters, and client ids "
            f"{CLIENT_ID_LENGTH_MAX}; here {longest} and {len(body.client_id)}",
        )


def _check_count(body: LockBatchRequestBody | UnlockBatchRequestBody) -> None:
    """Raises: RequestRefused: SYSTEM_ERROR: more than QUEUES_MAX queues."""
    if len(body.mq_set) > QUEUES_MAX:
        raise RequestRefused(
            ResponseCode.SYSTEM_ERROR,
            f"the request has {len(body.mq_set)} queues, the limit is {QUEUES_MAX}: "
            "divide the request",
        )
