"""Masters and slaves that break M3, each by one change. Power cuts must find every one of them."""

from __future__ import annotations

from typing import Any

from trocket.store.ha.sender import LogSender
from trocket.store.ha.slave import LogFollower
from trocket.store.offsets import PhysicalOffset
from trocket.store.status import PutMessageStatus
from trocket.store.writing.durability import Durability, SlaveAcks

from ...world.breaks import reported_before_fsync, sent_before_fsync
from ...world.mutant import Patch

OK = PutMessageStatus.PUT_OK


def the_slaves_first_report_is_not_of_the_device(patch: Patch) -> None:
    """L11: a connection that breaks between an append and its fsync, and the next one."""

    async def follow(self: LogFollower) -> None:
        self._agreed = await self._terms.agree()
        self._reported = self._agreed.requested
        self.on_following()
        await self.link.side_by_side(self._copy, self._report)

    patch.setattr(LogFollower, "follow", follow)


def the_master_answers_when_it_has_appended(patch: Patch) -> None:
    """It waits for nothing."""
    patch.setattr(Durability, "when_replicated", lambda self, offset, callback: callback(OK))


def the_master_answers_when_its_own_device_has_it(patch: Patch) -> None:
    """L12: as 5.x with inSyncReplicas=1."""

    def broken(self: Durability, offset: PhysicalOffset, callback: Any) -> None:
        self._flusher.when_flushed(offset, lambda ok: callback(OK if ok else PutMessageStatus(10)))

    patch.setattr(Durability, "when_replicated", broken)


def what_was_sent_counts_as_reported(patch: Patch) -> None:
    """L13: the slave is not asked."""
    send = LogSender._next_pieces

    def broken(self: LogSender, size: int) -> Any:
        pieces = send(self, size)
        self._store.durability.slaves.report(self, self.send_offset)
        return pieces

    patch.setattr(LogSender, "_next_pieces", broken)


def a_report_releases_what_begins_where_it_ends(patch: Patch) -> None:
    """One message too many."""
    report = SlaveAcks.report

    def broken(self: SlaveAcks, slave: Any, offset: int) -> None:
        report(self, slave, offset)
        self._waiters.release(offset + 1)

    patch.setattr(SlaveAcks, "report", broken)


BROKEN_PAIRS = [
    reported_before_fsync,
    the_slaves_first_report_is_not_of_the_device,
    the_master_answers_when_it_has_appended,
    the_master_answers_when_its_own_device_has_it,
    sent_before_fsync,
    what_was_sent_counts_as_reported,
    a_report_releases_what_begins_where_it_ends,
]

FIRST_SEEDS = {the_slaves_first_report_is_not_of_the_device: 19}
"""The seed that the search starts with, where it is not 0: the ones before look well."""
