"""Stores that break a promise, each by one change. The crash images must show every one of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from trocket.disk import json_config
from trocket.store import retention_service, services
from trocket.store.index.index_service import IndexService
from trocket.store.log import log_reader
from trocket.store.log.commit_log import CommitLog, file_name
from trocket.store.log.log_reader import LogReader
from trocket.store.message_store import MessageStore
from trocket.store.opening import StoreOpening
from trocket.store.queues.consume_queue import ConsumeQueue
from trocket.store.recovery.store_recovery import StoreRecovery
from trocket.store.retention import retention_rules
from trocket.store.writing import flush
from trocket.store.writing.dispatcher import Dispatcher
from trocket.store.writing.flush import FlushService

from ..breaks import answered_before_fsync
from ..mutant import Mutant, Patch, nothing
from .engine import check_run
from .runs import Report, record_run

SEED_COUNT = 6


class CrashImages(NamedTuple):
    """The crash images of some runs.

    Attributes:
      modes: M0, M1 or both.
      seed: of the first run to look at; where it is not 1, earlier runs show it late or never.
    """

    workload: str
    modes: tuple[str, ...]
    seed: int = 1

    @property
    def scope(self) -> str:
        return "store"

    def sound(self) -> str:
        run = record_run(self.workload, self.modes[0], self.seed)
        return _first_problem(check_run(run, share=0.05))

    def problems(self) -> Iterator[str]:
        for seed in range(self.seed, self.seed + SEED_COUNT):
            for mode in self.modes:
                run = record_run(self.workload, mode, seed)
                yield _first_problem(check_run(run, depth2=True, failures_max=1))


def _first_problem(report: Report) -> str:
    for failure in report.failures[:1]:
        return f"{failure.invariant}: {failure.problem}"
    return ""


def log_fsync_does_nothing(patch: Patch) -> None:
    """The log is never synced, but counts as if."""
    patch.setattr(flush, "sync_all", nothing)
    patch.setattr(FlushService, "_sync", nothing)


def shown_before_fsync(patch: Patch) -> None:
    """L2: consumers read what a power cut can still take."""
    patch.setattr(Dispatcher, "hold", Dispatcher.show)


def acknowledged_before_written(patch: Patch) -> None:
    """The newest write stays in the process until the next one comes."""
    write = CommitLog.write
    late: dict[int, tuple[int, bytes]] = {}

    def broken(self: CommitLog, physical_offset: int, data: bytes) -> None:
        before = late.pop(id(self), None)
        if before is not None:
            write(self, *before)
        late[id(self)] = (physical_offset, data)

    patch.setattr(CommitLog, "write", broken)


def tail_not_zeroed(patch: Patch) -> None:
    """L3: truncation moves an offset and leaves the bytes."""
    patch.setattr(CommitLog, "zero", nothing)


def recovered_log_not_synced(patch: Patch) -> None:
    """What a killed process left in memory is shown, and never synced."""

    def broken(self: StoreOpening, start: int, end: int, *_: Any, has_index: bool) -> None:
        self.queue_store.write()
        self.queue_store.sync(self.queue_store.take_unsynced())
        self.checkpoints.write(end, self.writer.burst.store_time_ms)

    patch.setattr(StoreOpening, "_sync_recovered", broken)


def checkpoint_before_fsync(patch: Patch) -> None:
    """L6: the checkpoint vouches for units that are not on the device."""

    async def broken(store: MessageStore) -> None:
        store.checkpoints.write(
            store.dispatched_offset, store.store_time_ms, store.checkpoints.index_state()
        )

    patch.setattr(services, "checkpoint_now", broken)
    from . import session

    patch.setattr(session, "checkpoint_now", broken)


def log_folder_not_synced(patch: Patch) -> None:
    """A new log file has no name that survives."""

    def broken(self: CommitLog, base: int) -> None:
        path = f"{self.folder}/{file_name(base)}"
        self.disk.make_folder(self.folder)
        file = self.disk.open(path, create=True)
        file.allocate(self.file_size)
        file.sync()
        file.close()

    patch.setattr(CommitLog, "create", broken)


def log_file_size_not_synced(patch: Patch) -> None:
    """A short log file may stand before a whole one."""

    def broken(self: CommitLog, base: int) -> None:
        self.disk.make_folder(self.folder)
        file = self.disk.open(f"{self.folder}/{file_name(base)}", create=True)
        file.allocate(self.file_size)
        self.disk.sync_folder(self.folder)
        file.close()

    patch.setattr(CommitLog, "create", broken)


def torn_properties_believed(patch: Patch) -> None:
    """L4: the checksum of the body says nothing about the properties."""
    patch.setattr(log_reader, "own_crc_problem", lambda *_: "")


def torn_bodies_believed(patch: Patch) -> None:
    """No checksum is looked at."""
    init = LogReader.__init__

    def broken(self: LogReader, *arguments: Any, **rest: Any) -> None:
        init(self, *arguments, **{**rest, "check_crc": False})

    patch.setattr(LogReader, "__init__", broken)


def json_renamed_before_fsync(patch: Patch) -> None:
    """L10: the name points to bytes that are not there."""

    def broken(disk: Any, path: str, text: bytes, *, private: bool) -> None:
        file = disk.open(path, create=True)
        file.pwrite(text, 0)
        file.close()

    patch.setattr(json_config, "_write", broken)


def json_written_in_place(patch: Patch) -> None:
    """L10: as Apache's older brokers did."""

    def broken(disk: Any, path: str, text: bytes) -> None:
        disk.make_folder(path.rpartition("/")[0])
        file = disk.open(path, create=True)
        file.resize(len(text))
        file.pwrite(text, 0)
        file.sync()

    from . import session

    patch.setattr(session, "save_json", broken)


def queues_not_cut(patch: Patch) -> None:
    """Queues keep units of messages that the log has lost."""
    patch.setattr(StoreRecovery, "_cut_queue", nothing)


def index_not_caught_up(patch: Patch) -> None:
    """L9: what was not in the index when the process died never gets there."""
    patch.setattr(IndexService, "catch_up_from", nothing)


def min_offset_not_corrected(patch: Patch) -> None:
    """Retention deletes a log file, the queues go on pointing into it."""
    patch.setattr(ConsumeQueue, "correct_min_offset", nothing)


def retention_deletes_too_much(patch: Patch) -> None:
    """Files go that are not expired."""
    choose = retention_rules.choose

    def broken(files: Any, **rest: Any) -> Any:
        return choose(files, **{**rest, "now_ms": rest["now_ms"] + 24 * 3_600_000})

    patch.setattr(retention_service, "choose", broken)


def units_written_twice(patch: Patch) -> None:
    """L8: a wrong unit is logged as a bug and appended all the same."""
    append = ConsumeQueue.append_recovered

    def broken(self: ConsumeQueue, queue_offset: int, unit: bytes) -> None:
        append(self, queue_offset, unit)
        if queue_offset % 3 == 2:
            append(self, queue_offset + 1, unit)

    patch.setattr(ConsumeQueue, "append_recovered", broken)


BOTH = ("M0", "M1")

MUTANTS = [
    Mutant(log_fsync_does_nothing, CrashImages("put", ("M1",)), ("N1",)),
    Mutant(answered_before_fsync, CrashImages("put", ("M1",)), ("N1",)),
    Mutant(shown_before_fsync, CrashImages("put", ("M1",)), ("N1",)),
    Mutant(acknowledged_before_written, CrashImages("put", BOTH), ("N1",)),
    Mutant(tail_not_zeroed, CrashImages("put", BOTH, seed=6), ("N4",)),
    Mutant(recovered_log_not_synced, CrashImages("put", BOTH, seed=2), ("other",)),
    Mutant(checkpoint_before_fsync, CrashImages("put", BOTH), ("N3", "N7")),
    Mutant(log_folder_not_synced, CrashImages("roll", ("M1",)), ("N1",)),
    Mutant(log_file_size_not_synced, CrashImages("roll", BOTH), ("other",)),
    Mutant(torn_properties_believed, CrashImages("put", BOTH), ("N3",)),
    Mutant(torn_bodies_believed, CrashImages("put", BOTH), ("N2",)),
    Mutant(json_renamed_before_fsync, CrashImages("config", ("M0",)), ("N1",)),
    Mutant(json_written_in_place, CrashImages("config", ("M0",)), ("N1",)),
    Mutant(queues_not_cut, CrashImages("truncate", BOTH), ("other",)),
    Mutant(index_not_caught_up, CrashImages("index", BOTH), ("N7",)),
    Mutant(min_offset_not_corrected, CrashImages("retention", BOTH), ("N3",)),
    Mutant(retention_deletes_too_much, CrashImages("retention", BOTH, seed=3), ("N1",)),
    Mutant(units_written_twice, CrashImages("put", BOTH), ("N4",)),
]
