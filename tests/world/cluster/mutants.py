"""Clusters that break one promise each, as functions of a monkeypatch; the simulation finds them.

What a mutant does is one line of what docs/ha.md promises, undone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from trocket.broker.delivering.schedule_message_service import ScheduleMessageService
from trocket.broker.replication.slave_offsets import SlaveOffsets
from trocket.broker.tables.consumer_offset_manager import ConsumerOffsetManager
from trocket.store.ha import follow_terms, send_terms
from trocket.store.ha.copier import LogCopier
from trocket.store.ha.sender import LogSender
from trocket.store.ha.slave import LogFollower
from trocket.store.status import PutMessageStatus
from trocket.store.writing.copy_appender import CopyAppender
from trocket.store.writing.durability import SlaveAcks

from ..breaks import answered_before_fsync, reported_before_fsync, sent_before_fsync
from ..mutant import Mutant, Patch
from .cluster import Plan, play

SEEDS = range(40)
"""What a fault meets depends on the seed."""


class Plans(NamedTuple):
    """A plan, with some seeds.

    Attributes:
      mode, faults, topology, workload: in which the mutant shows.
    """

    mode: str
    faults: list[str]
    topology: str = "two slaves"
    workload: str = "bursts"

    @property
    def scope(self) -> str:
        return "cluster"

    def sound(self) -> str:
        return self._play(SEEDS[0])

    def problems(self) -> Iterator[str]:
        yield from map(self._play, SEEDS)

    def _play(self, seed: int) -> str:
        plan = Plan(self.mode, self.topology, self.workload, self.faults, 15, 0.8)
        return play(seed, plan).problem


def answered_before_the_slave(patch: Patch) -> None:
    """A SYNC_MASTER waits for no slave, as 5.x with its defaults (L12)."""
    patch.setattr(SlaveAcks, "are_enough", lambda self, log_end: True)
    patch.setattr(
        SlaveAcks, "wait", lambda self, offset, callback: callback(PutMessageStatus.PUT_OK)
    )


def one_slave_is_enough(patch: Patch) -> None:
    """`inSyncReplicas` is not heeded."""
    init = SlaveAcks.__init__

    def broken(self: SlaveAcks, config: Any, clock: Any) -> None:
        init(self, config, clock)
        self.needed = 1

    patch.setattr(SlaveAcks, "__init__", broken)


def reported_before_it_is_appended(patch: Patch) -> None:
    """A slave reports what it has received, and appends every other time only."""
    take = LogCopier.take
    kept: dict[LogCopier, bytes] = {}

    def broken(self: LogCopier, *pieces: bytes | memoryview) -> None:
        data = b"".join(pieces)
        if self not in kept:
            kept[self] = data
            self._store.reported_ahead = len(data)  # type: ignore[attr-defined]
            self._store.activity.signal()
        else:
            self._store.reported_ahead = 0  # type: ignore[attr-defined]
            take(self, kept.pop(self) + data)

    reportable = LogFollower._reportable.fget  # type: ignore[attr-defined]

    def reports(self: LogFollower) -> int:
        return int(reportable(self)) + getattr(self._store, "reported_ahead", 0)

    patch.setattr(LogCopier, "received_offset", property(_received, _set_received), raising=False)
    patch.setattr(LogCopier, "take", broken)
    patch.setattr(LogFollower, "_reportable", property(reports))


def _received(self: LogCopier) -> int:
    return int(self.__dict__["received"]) + getattr(self._store, "reported_ahead", 0)


def _set_received(self: LogCopier, offset: int) -> None:
    self.__dict__["received"] = offset


def lies_are_believed(patch: Patch) -> None:
    """A report beyond what was sent counts (L13)."""

    async def broken(self: LogSender) -> None:
        while True:
            word = await self._terms.next_word()
            if isinstance(word, int):
                self._note_ack(word)

    patch.setattr(LogSender, "_read_reports", broken)
    patch.setattr(send_terms, "refusal", lambda store, requested: ("", 0))


def slave_ahead_is_fed(patch: Patch) -> None:
    """Nobody compares logs: a slave that has another one is sent what follows (L14)."""

    async def same(*_: Any) -> None:
        return None

    patch.setattr(follow_terms, "first_difference", same)


def offsets_ahead_of_the_log(patch: Patch) -> None:
    """A slave takes over its master's offsets before it has the messages (L15)."""

    def broken(self: SlaveOffsets, text: bytes) -> None:
        self._max_offset = lambda topic, queue_id: 1 << 40
        take_over(self, text)

    take_over = SlaveOffsets.take_over
    patch.setattr(SlaveOffsets, "take_over", broken)
    patch.setattr(
        "trocket.broker.replication.slave_synchronize.MasterApi.log_end", _nothing_to_wait_for
    )
    patch.setattr(ConsumerOffsetManager, "correct", lambda self, max_offset: None)


async def _nothing_to_wait_for(self: Any) -> int:
    return 0


def copied_with_a_gap(patch: Patch) -> None:
    """A slave appends, and makes no unit of every tenth record."""
    append = CopyAppender.append_record
    count = [0]

    def broken(self: CopyAppender, *record: Any) -> None:
        count[0] += 1
        if count[0] % 10:
            append(self, *record)

    patch.setattr(CopyAppender, "append_record", broken)


def due_by_the_stores_time(patch: Patch) -> None:
    """Whether a delayed message is due is asked of the store's time, which is ahead of the clock
    after that was set back."""
    due_ms = ScheduleMessageService._due_ms

    def broken(self: ScheduleMessageService, level: int, queue_offset: int) -> int | None:
        due = due_ms(self, level, queue_offset)
        ahead_ms = self._store.store_time_ms - self._store.wall_time_ms
        return None if due is None else due - max(ahead_ms, 0)

    patch.setattr(ScheduleMessageService, "_due_ms", broken)


MUTANTS = [
    Mutant(answered_before_the_slave, Plans("M2", ["partition HA only"]), ("N1",)),
    Mutant(one_slave_is_enough, Plans("M2", ["partition HA only"], "two slaves in sync"), ("N1",)),
    Mutant(reported_before_it_is_appended, Plans("M2", [], "one slave"), ("N1",)),
    Mutant(reported_before_fsync, Plans("M3", ["slow fsync 5 s"] * 3, "one slave"), ("N1",)),
    Mutant(answered_before_fsync, Plans("M1", ["power loss"]), ("N1",)),
    Mutant(
        sent_before_fsync,
        Plans("M1", ["slow fsync 5 s", "power loss", "power loss"]),
        ("HA", "N1", "N5"),
    ),
    Mutant(lies_are_believed, Plans("M2", ["fake ack 2^63-1"] * 3), ("N1",)),
    Mutant(slave_ahead_is_fed, Plans("M0", ["slave ahead"]), ("HA",)),
    Mutant(
        offsets_ahead_of_the_log,
        Plans("M2", [*["partition HA only"] * 3, "zeroed tail"], "one slave"),
        ("N6",),
    ),
    Mutant(copied_with_a_gap, Plans("M0", []), ("HA",)),
    Mutant(
        due_by_the_stores_time, Plans("M0", ["clocks jump"] * 3, "one slave", "delays"), ("N9",)
    ),
]
