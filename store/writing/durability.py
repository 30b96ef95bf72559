"""Waiting until a committed message is as durable as flushDiskType and brokerRole promise.

Java counterparts: CommitLog.handleDiskFlushAndHA and submitReplicaRequest of 5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

import trio

from ...common.clock import Clock
from ..config import BrokerRole, MessageStoreConfig
from ..offsets import PhysicalOffset
from ..status import PutMessageStatus
from .flush import FlushService
from .log_writer import LogWriter
from .waiters import OffsetWaiters

# Acknowledgements of slaves, and the sends that wait for them.
#
# Java counterparts: GroupTransferService and the ack half of DefaultHAService of 5.3.3. The answers
# are 4.9's: a SYNC_MASTER without a slave answers SLAVE_NOT_AVAILABLE at once (L12), where 5.x
# answers success.

Replicated = Callable[[PutMessageStatus], None]


class SlaveAcks:
    """The offsets that the connected slaves acknowledged. Owned by the store's task.

    Args:
      config: inSyncReplicas, haMaxGapNotInSync, slaveTimeout.
      clock: for timeouts.

    Attributes:
      needed: slaves that must have a message before a send to a SYNC_MASTER is answered success.
      acked_offset: physical offset up to which `needed` slaves have the log, or had it once.
      waited_for: set when a send begins to wait; `expire` replaces it.
    """

    def __init__(self, config: MessageStoreConfig, clock: Clock) -> None:
        self.needed = max(1, config.in_sync_replicas - 1)
        self.acked_offset = 0
        self.waited_for = trio.Event()
        self._config = config
        self._clock = clock
        self._offsets: dict[Hashable, int] = {}
        self._waiters: OffsetWaiters[PutMessageStatus] = OffsetWaiters(config.slave_timeout / 1000)

    def report(self, slave: Hashable, offset: int) -> None:
        """Record the offset of a slave; the caller has validated it.

        Args:
          offset: physical offset up to which it has the log.
        """
        offsets = self._offsets
        offsets[slave] = offset
        reached = offset
        if self.needed > 1:
            best = sorted(offsets.values(), reverse=True)
            reached = best[self.needed - 1] if len(best) >= self.needed else 0
        if reached > self.acked_offset:
            self.acked_offset = reached
            self._waiters.release(reached, PutMessageStatus.PUT_OK)

    def forget(self, slave: Hashable) -> None:
        """Remove a slave whose connection ended; sends keep waiting for other reports."""
        self._offsets.pop(slave, None)

    def is_in_sync(self, offset: int, log_end: int) -> bool:
        """Whether a slave that has the log up to an offset counts as available."""
        return log_end - offset < self._config.ha_max_gap_not_in_sync

    def are_enough(self, log_end: int) -> bool:
        """Whether enough slaves are in sync to wait for."""
        near = sum(self.is_in_sync(offset, log_end) for offset in self._offsets.values())
        return near >= self.needed

    def wait(self, physical_offset: int, callback: Replicated) -> None:
        """Let a send wait until enough slaves have a record.

        Args:
          physical_offset: where the record begins.
          callback: called with PUT_OK, or FLUSH_SLAVE_TIMEOUT.
        """
        if physical_offset < self.acked_offset:
            callback(PutMessageStatus.PUT_OK)
            return
        self._waiters.add(physical_offset, callback, now_s=self._clock.monotonic_s())
        self.waited_for.set()

    def fail(self, status: PutMessageStatus) -> None:
        """Answer all waiting sends with a failure."""
        self._waiters.fail(status)

    async def expire(self) -> None:
        """Answer sends whose timeout has passed, until cancelled."""
        try:
            while True:
                await self.waited_for.wait()
                while self._waiters:
                    rest_s = self._waiters.deadline_s - self._clock.monotonic_s()
                    await trio.sleep(max(rest_s, 0))
                    now_s = self._clock.monotonic_s()
                    self._waiters.expire(now_s, PutMessageStatus.FLUSH_SLAVE_TIMEOUT)
                self.waited_for = trio.Event()
        finally:
            self._waiters.fail(PutMessageStatus.FLUSH_SLAVE_TIMEOUT)


_PUT_OK = PutMessageStatus.PUT_OK


class Durability:
    """Calls back when records are on this machine's device, on slaves, or both.

    Args:
      writer: commits the records.

    Attributes:
      slaves: the acknowledgements of the slaves.
      waits_for_slaves: sends wait for slaves, as the broker is a SYNC_MASTER.
    """

    def __init__(
        self, config: MessageStoreConfig, clock: Clock, writer: LogWriter, flusher: FlushService
    ) -> None:
        self.slaves = SlaveAcks(config, clock)
        self._writer = writer
        self._flusher = flusher
        self._sync_flush = writer.sync_flush
        self.waits_for_slaves = config.broker_role is BrokerRole.SYNC_MASTER

    @property
    def answers_later(self) -> bool:
        """Whether a send is answered by `when_replicated` and not when it is committed."""
        return self._sync_flush or self.waits_for_slaves

    @property
    def sendable_offset(self) -> int:
        """Physical offset up to which slaves are sent the log: under SYNC_FLUSH only what is on
        this machine's device, so that a slave never has more than its master after a power cut."""
        return self._flusher.flushed_offset if self._sync_flush else self._writer.committed_offset

    def fail(self) -> None:
        """Stop waiting for slaves: after a failed fsync they are not sent the rest."""
        if self._sync_flush:
            self.slaves.fail(PutMessageStatus.FLUSH_DISK_TIMEOUT)

    def when_replicated(self, physical_offset: PhysicalOffset, callback: Replicated) -> None:
        """Call back once a committed record is as durable as flushDiskType and brokerRole promise.

        The record is stored with every status. Under SYNC_FLUSH a slave is sent only bytes that
        are on the master's device, so its acknowledgement covers the fsync, too.

        Args:
          physical_offset: the result of the put.
          callback: called with PUT_OK, FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT or
            SLAVE_NOT_AVAILABLE; possibly at once. Called in the store's task; must not raise.

        Source: RocketMQ 4.9.7 CommitLog.submitReplicaRequest: without a slave no send waits.
        """
        status = _PUT_OK
        if self.waits_for_slaves:
            if self.slaves.are_enough(self._writer.committed_offset):
                if self._sync_flush:
                    callback = self._also_flushed(physical_offset, callback)
                self.slaves.wait(physical_offset, callback)
                return
            status = PutMessageStatus.SLAVE_NOT_AVAILABLE
        if self._sync_flush:
            self._flusher.when_flushed(
                physical_offset,
                lambda ok: callback(status if ok else PutMessageStatus.FLUSH_DISK_TIMEOUT),
            )
        else:
            callback(status)

    def _also_flushed(self, physical_offset: PhysicalOffset, callback: Replicated) -> Replicated:
        """A callback that answers FLUSH_SLAVE_TIMEOUT only after the fsync: a slave may be late
        because this machine's device is, and the status says that the record is stored."""

        def answer(status: PutMessageStatus) -> None:
            if status is PutMessageStatus.FLUSH_SLAVE_TIMEOUT:
                self._flusher.when_flushed(
                    physical_offset,
                    lambda ok: callback(status if ok else PutMessageStatus.FLUSH_DISK_TIMEOUT),
                )
            else:
                callback(status)

        return answer
