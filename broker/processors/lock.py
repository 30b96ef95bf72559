"""LOCK_BATCH_MQ (41) and UNLOCK_BATCH_MQ (42): which client consumes a queue in order.

Java counterpart: AdminBrokerProcessor.lockBatchMQ, unlockBatchMQ of 5.3.3. Pure.
Not done: lockInStrictMode, which asks the other replicas; there are none yet.
"""

from __future__ import annotations

from ...remoting.bodies import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    UnlockBatchRequestBody,
)
from ...remoting.channel import Answer, Channel, Processor
from ...remoting.codec import RemotingCommand
from ...remoting.request_codes import RequestCode
from ...store.clock import Clock
from ..rebalance_lock_manager import RebalanceLockManager
from .request import read_body


class LockProcessor:
    """Locks and frees queues.

    Args:
      locks: the table.
      clock: its monotonic time decides what is expired.
    """

    def __init__(self, locks: RebalanceLockManager, *, clock: Clock) -> None:
        self._locks = locks
        self._clock = clock
        self.processors: dict[RequestCode, Processor] = {
            RequestCode.LOCK_BATCH_MQ: self._lock,
            RequestCode.UNLOCK_BATCH_MQ: self._unlock,
        }

    def _lock(self, request: RemotingCommand, channel: Channel) -> Answer:
        body = read_body(request, LockBatchRequestBody.from_body)
        held = self._locks.try_lock_batch(
            body.consumer_group, body.mq_set, body.client_id, now_s=self._clock.monotonic_s()
        )
        return request.answer(body=LockBatchResponseBody(lock_ok_mq_set=held).to_body())

    def _unlock(self, request: RemotingCommand, channel: Channel) -> Answer:
        body = read_body(request, UnlockBatchRequestBody.from_body)
        self._locks.unlock_batch(body.consumer_group, body.mq_set, body.client_id)
        return request.answer()
