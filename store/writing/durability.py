"""Waiting until a committed message is as durable as flushDiskType and brokerRole promise.

Java counterparts: CommitLog.handleDiskFlushAndHA and submitReplicaRequest of 5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Protocol

from ...common.clock import Clock
from ..config import BrokerRole, MessageStoreConfig
from ..offsets import PhysicalOffset
from ..status import PutMessageStatus, PutRefusal
from .ack_waiters import AckWaiters, Replicated
from .flush import FlushService
from .in_sync_acks import ConfirmedCopy, InSyncAcks
from .log_writer import LogWriter

# Acknowledgements of slaves, and the sends that wait for them.
#
# Java counterparts: GroupTransferService and the ack half of DefaultHAService of 5.3.3. The answers
# are 4.9's: a SYNC_MASTER without a slave answers SLAVE_NOT_AVAILABLE at once (L12), where 5.x
# answers success.


def _no_refusal() -> PutRefusal | None:
    return None


class SlaveAcks:
    """The offsets that the connected slaves acknowledged. Owned by the store's task.

    Args:
      config: inSyncReplicas, haMaxGapNotInSync, slaveTimeout.
      clock: for timeouts.

    Attributes:
      needed: slaves that must have a message before a send to a SYNC_MASTER is answered success.
      acked_offset: physical offset up to which `needed` slaves have the log, or had it once.
    """

    def __init__(self, config: MessageStoreConfig, clock: Clock) -> None:
        self.needed = max(1, config.in_sync_replicas - 1)
        self.acked_offset = 0
        self._config = config
        self._offsets: dict[Hashable, int] = {}
        self._waiters = AckWaiters(config.slave_timeout / 1000, clock)

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
            self._waiters.release(reached)

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
        self._waiters.add(physical_offset, callback)

    @property
    def is_waited_for(self) -> bool:
        """Whether a send waits."""
        return bool(self._waiters)

    def fail(self, status: PutMessageStatus) -> None:
        """Answer all waiting sends with a failure."""
        self._waiters.fail(status)

    async def expire(self) -> None:
        """Answer sends whose timeout has passed, until cancelled."""
        await self._waiters.expire()


_PUT_OK = PutMessageStatus.PUT_OK


class Acks(Protocol):
    """Acknowledgements of slaves: `SlaveAcks`, and in controller mode `InSyncAcks`.

    The key of a slave is its connection in the first, and its permanent id in the second.
    """

    @property
    def needed(self) -> int:
        """See `SlaveAcks`, as for the others."""

    @property
    def acked_offset(self) -> int: ...

    @property
    def is_waited_for(self) -> bool:
        """Whether a send waits."""

    def report(self, slave: Any, offset: int, /) -> None: ...

    def forget(self, slave: Any, /) -> None: ...

    def is_in_sync(self, offset: int, log_end: int) -> bool:
        """Whether a slave that has the log up to an offset counts as available."""

    def are_enough(self, log_end: int) -> bool:
        """Whether sends wait for slaves at all."""

    def wait(self, physical_offset: int, callback: Replicated) -> None: ...

    def fail(self, status: PutMessageStatus) -> None: ...

    async def expire(self) -> None: ...


class Durability:
    """Calls back when records are on this machine's device, on slaves, or both.

    Args:
      writer: commits the records.
      in_sync: see the attribute.

    Attributes:
      slaves: the acknowledgements of the slaves; a master's `in_sync` in controller mode.
      in_sync: confirms the log in controller mode; None: the broker is not in that mode.
      waits_for_slaves: sends wait for slaves, as the broker is a SYNC_MASTER.
    """

    def __init__(
        self,
        config: MessageStoreConfig,
        clock: Clock,
        writer: LogWriter,
        flusher: FlushService,
        in_sync: InSyncAcks | ConfirmedCopy | None = None,
    ) -> None:
        self.in_sync = in_sync
        self.slaves: Acks
        self._refusal: Callable[[], PutRefusal | None] = _no_refusal
        if isinstance(in_sync, InSyncAcks):
            self.slaves, self._refusal = in_sync, in_sync.refusal
        else:
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

    @property
    def confirm_offset(self) -> int:
        """Physical offset up to which the log may be visible in controller mode; in any other, up
        to which it is."""
        return self._writer.visible_offset if self.in_sync is None else self.in_sync.confirm_offset

    def is_confirmed(self, end: int) -> bool:
        """Whether no record before a physical offset can be cut from the log any more.

        Only controller mode cuts, so in any other mode none can.
        """
        return self.in_sync is None or self.in_sync.confirm_offset >= end

    def confirmed(self, offset: int) -> None:
        """Take the confirm offset that a slave's master sends; in controller mode only."""
        if isinstance(self.in_sync, ConfirmedCopy):
            self.in_sync.confirmed(offset)

    def send_refusal(self) -> PutRefusal | None:
        """Why clients may not send now, though the store takes puts; None: they may.

        The broker's own puts are not refused for it: they are stored, and wait to be confirmed.
        """
        return self._refusal()

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
