"""Waiting until a committed message is as durable as flushDiskType and brokerRole promise.

Java counterparts: CommitLog.handleDiskFlushAndHA and submitReplicaRequest of 5.3.3.
"""

from __future__ import annotations

from ...common.clock import Clock
from ..config import BrokerRole, MessageStoreConfig
from ..offsets import PhysicalOffset
from ..status import PutMessageStatus
from .acks import Replicated, SlaveAcks
from .flush import FlushService
from .log_writer import LogWriter

_PUT_OK = PutMessageStatus.PUT_OK


class Durability:
    """Calls back when records are on this machine's device, on slaves, or both.

    Args:
      config, clock: the store's.
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
