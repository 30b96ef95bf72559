"""The acknowledgements of an in-sync set, and the confirm offset, in controller mode.

A message is confirmed when every member that may be elected has it. The members that may be elected
are those that the controller has accepted, and, while a change of the set is under way, those that
were requested, too: the controller may have accepted them, and its answer may be late or lost. So
the set grows with the request and shrinks only with the controller's answer.

Java counterparts: AutoSwitchHAService (computeConfirmOffset, getSyncStateSet) and
GroupTransferService of 5.5.0. There a slave whose connection ends leaves the set at once, and the
master confirms alone before the controller knows.

Pure, but for the sends that wait.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ...common.clock import Clock
from ..config import MessageStoreConfig
from ..status import PutMessageStatus, PutRefusal
from .ack_waiters import AckWaiters, Replicated

_NOT_ENOUGH: Final = PutRefusal(PutMessageStatus.IN_SYNC_REPLICAS_NOT_ENOUGH)


def _always() -> bool:
    return True


def _ignore(_: int) -> None:
    pass


class InSyncAcks:
    """What a master knows of the members of its set. Owned by the store's task.

    Args:
      config: allAckInSyncStateSet, inSyncReplicas, minInSyncReplicas, slaveTimeout,
        haMaxGapNotInSync.
      clock: for timeouts.
      own_id: the master's permanent id.
      accepted: the set that the controller has accepted; it has the master.
      set_epoch: the number of that set, as the controller counts them.
      may_confirm: whether the master's lease holds now, by a monotonic clock. While it does not,
        nothing is confirmed; call `confirm` when it holds again.

    Attributes:
      accepted: ids that the controller has accepted.
      requested: ids that count, too: of changes that are under way; empty: there are none.
      set_epoch: of `accepted`.
      needed: members besides the master that must have a message.
      acked_offset: sends of records that begin before it are confirmed.
      confirm_offset: physical offset up to which the log may be visible; it never falls.
      on_confirmed: called with each new confirm offset, before sends are answered.
    """

    def __init__(
        self,
        config: MessageStoreConfig,
        clock: Clock,
        own_id: int,
        accepted: frozenset[int],
        *,
        set_epoch: int = 0,
        may_confirm: Callable[[], bool] = _always,
    ) -> None:
        if own_id not in accepted:
            raise ValueError(f"the in-sync set {sorted(accepted)} lacks its master {own_id}")
        self.accepted = accepted
        self.requested: frozenset[int] = frozenset()
        self.set_epoch = set_epoch
        self.acked_offset = 0
        self.confirm_offset = 0
        self.on_confirmed: Callable[[int], None] = _ignore
        self._config = config
        self._own_id = own_id
        self._own_end = 0
        self._may_confirm = may_confirm
        self._offsets: dict[int, int] = {}
        self._waiters = AckWaiters(config.slave_timeout / 1000, clock)
        self._is_deposed = False

    # ---- the set ---------------------------------------------------------------------------

    @property
    def required(self) -> frozenset[int]:
        """The members besides the master that may be elected, or soon be."""
        return (self.accepted | self.requested) - {self._own_id}

    @property
    def needed(self) -> int:
        """See the attribute."""
        required = len(self.required)
        if self._config.all_ack_in_sync_state_set:
            return required
        return min(self._config.in_sync_replicas - 1, required)

    def count_too(self, members: frozenset[int]) -> None:
        """Let members count beside the accepted ones, until the next `accept`.

        Called before the controller is asked for a set with them, with all that it may still
        accept, as a request without an answer may have been accepted; also while a slave that is
        nearly there is waited for. Empty: there are none.
        """
        self.requested = members
        self.confirm()

    def accept(self, members: frozenset[int], set_epoch: int) -> None:
        """Take a set that the controller has accepted, from any of its answers.

        With a higher number no request for an older set can be accepted any more, so a change that
        was under way has ended. A set with the present number or a lower one changes nothing.

        Args:
          members: has the master.

        Raises:
          ValueError: it lacks the master.
        """
        if set_epoch <= self.set_epoch:
            return
        if self._own_id not in members:
            raise ValueError(f"the in-sync set {sorted(members)} lacks its master {self._own_id}")
        self.accepted, self.requested, self.set_epoch = members, frozenset(), set_epoch
        self.confirm()

    def refusal(self) -> PutRefusal | None:
        """The answer to a client's send where the set is too small; None: it is not.

        Source: RocketMQ 5.5.0 CommitLog.asyncPutMessage.
        """
        config, size = self._config, len(self.accepted)
        wanted = config.min_in_sync_replicas
        if not config.all_ack_in_sync_state_set:
            wanted = max(wanted, config.in_sync_replicas)
        return _NOT_ENOUGH if size < wanted else None

    # ---- offsets ---------------------------------------------------------------------------

    def start_at(self, confirmed: int) -> None:
        """Begin with a confirm offset that an earlier run, or an earlier master, has left."""
        self.confirm_offset = self.acked_offset = confirmed

    def reach(self, own_end: int) -> None:
        """Note that the master's own log is as durable as flushDiskType promises up to an offset.

        Args:
          own_end: the end of the log; under SYNC_FLUSH of the part on the device.
        """
        self._own_end = own_end
        self.confirm()

    def report(self, member_id: int, offset: int) -> None:
        """Record the offset of a member; the caller has validated it.

        Args:
          offset: physical offset up to which it has the log.
        """
        self._offsets[member_id] = offset
        self.confirm()

    def forget(self, member_id: int) -> None:
        """Forget a member whose connection ended. It remains in the set, and sends wait for it."""
        self._offsets.pop(member_id, None)

    def confirm(self) -> None:
        """Confirm what the members have, if the lease holds; call it when it holds again."""
        acked = self._acked()
        confirmed = acked if self._config.all_ack_in_sync_state_set else self._own_end
        if max(acked - self.acked_offset, confirmed - self.confirm_offset) <= 0:
            return
        if self._is_deposed or not self._may_confirm():
            return
        if confirmed > self.confirm_offset:
            self.confirm_offset = confirmed
            self.on_confirmed(confirmed)
        if acked > self.acked_offset:
            self.acked_offset = acked
            self._waiters.release(acked)

    def _acked(self) -> int:
        """Physical offset up to which enough members have the log; -1: unknown."""
        required, own_end = self.required, self._own_end
        if not required:
            return own_end
        reported = sorted((self._offsets.get(each, -1) for each in required), reverse=True)
        needed = self.needed
        return min(own_end, reported[needed - 1]) if needed else own_end

    # ---- sends -----------------------------------------------------------------------------

    def is_in_sync(self, offset: int, log_end: int) -> bool:
        """Whether a slave that has the log up to an offset is near the log's end."""
        return log_end - offset < self._config.ha_max_gap_not_in_sync

    def are_enough(self, log_end: int) -> bool:
        """Whether sends wait: always, as a member that is away is still in the set."""
        return True

    def wait(self, physical_offset: int, callback: Replicated) -> None:
        """Let a send wait until it is confirmed.

        Args:
          physical_offset: where the record begins.
          callback: called with PUT_OK, or FLUSH_SLAVE_TIMEOUT.
        """
        if physical_offset < self.acked_offset:
            callback(PutMessageStatus.PUT_OK)
        elif not self._is_deposed:
            self._waiters.add(physical_offset, callback)

    def depose(self) -> None:
        """Confirm nothing from now on, and answer no send that waits: another master is elected.

        What waits may be cut from this log. A producer whose connection ends without an answer
        sends again, to the new master; FLUSH_SLAVE_TIMEOUT would say that the message is stored.
        """
        self._is_deposed = True
        self._waiters.drop()

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


class ConfirmedCopy:
    """What a slave knows of its master's confirm offset. Owned by the store's task.

    Attributes:
      confirm_offset: physical offset up to which the copy may be visible; it never falls.
      on_confirmed: called with each new one.
    """

    def __init__(self) -> None:
        self.confirm_offset = 0
        self.on_confirmed: Callable[[int], None] = _ignore
        self._own_end = 0
        self._masters = 0

    def start_at(self, confirmed: int) -> None:
        """Begin with the confirm offset of an earlier run."""
        self.confirm_offset = self._masters = confirmed

    def reach(self, own_end: int) -> None:
        """As `InSyncAcks.reach`."""
        self._own_end = own_end
        self._confirm()

    def confirmed(self, offset: int) -> None:
        """Take the confirm offset that the master sends; a lower one changes nothing."""
        self._masters = max(self._masters, offset)
        self._confirm()

    def _confirm(self) -> None:
        confirmed = min(self._masters, self._own_end)
        if confirmed > self.confirm_offset:
            self.confirm_offset = confirmed
            self.on_confirmed(confirmed)
