"""The execution of a repair, on a copy or in place.

In place, replaced and removed files are kept in a folder beside the store, `ROOT.before-repair`,
under the same relative paths: Apache's broker refuses unknown files inside its folders. An abort
file exists during the repair, so that a broker recovers the store after a killed repair. At the end
the store's own code opens the store once and closes it cleanly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ...common.topic_names import SCHEDULE_TOPIC
from ...disk.errors import StoreError, StoreIOError
from ...disk.json_config import save_json
from ...disk.numbered import numbered
from ...disk.os_disk import Disk
from ...disk.position import Position
from ...remoting.hosts import host_bytes
from ...remoting.message import MessageExt
from ...remoting.message_codec import encode_message
from ..config import MessageStoreConfig
from ..format import Key
from ..log.log_reader import message_at, record_at
from ..queues.projection import Places
from ..queues.queue_ends import FILE_NAME as QUEUE_ENDS
from ..queues.queue_ends import REBUILD, QueueEnds, write_queue_ends
from ..recovery.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from .copying import check_room, copy_file, copy_folder, files_below
from .examined_start import OpenStore, open_alone
from .fill import Piece, Stamp, UnfillableError, fill_hole, fixed_bytes
from .findings import Findings
from .json_files import (
    CONSUMER_OFFSETS,
    TOPICS,
    clamp_consumers,
    clamp_delays,
    encode,
    read_json,
)
from .layout import Layout, queue_folders, read_layout
from .log_walk import LogWalk
from .plan import Plan
from .queue_check import Misplaced
from .queue_files import QueuesOnDisk
from .rebuild import QueueBuilder, cut_units
from .report import Report
from .topic_table import add_topics

BACKUP_SUFFIX = ".before-repair"
STRAY_SUFFIX = ".stray"
ZEROS_CHUNK = 1024 * 1024

Filling = tuple[Stamp, list[Piece]]
LogLine = Callable[[str], None]
Progress = Callable[[int, int], None]


class RepairError(StoreError):
    """The repair was not begun, or could not be completed; `str()` says what to do."""


def copy_store(
    read_disk: Disk, disk: Disk, layout: Layout, target: str, progress: Progress | None = None
) -> None:
    """Copy a store to a new folder; a commit log elsewhere goes into it, too.

    Args:
      read_disk: the disk of the store, which the caller has locked.
      target: must not exist.

    Raises:
      RepairError: the target exists.
      StoreIOError: no room, or something cannot be read or written.
    """
    if disk.exists(target):
        raise RepairError(f"{target}: it exists; choose a folder that does not")
    log_folder, root = layout.log_folder, layout.root
    is_inside = log_folder.startswith(f"{root}/")
    needed = read_disk.used_bytes(root) + (0 if is_inside else read_disk.used_bytes(log_folder))
    check_room(disk, target, needed)
    done = 0

    def copied(count: int) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress(min(done, needed), max(needed, 1))

    copy_folder(read_disk, root, disk, target, leave_out=frozenset({"lock"}), copied=copied)
    if log_folder != f"{root}/commitlog":
        if is_inside:
            # It came with the folder, and goes where a start without -c finds it.
            disk.remove_folder(f"{target}/{log_folder[len(root) + 1 :]}")
        copy_folder(read_disk, log_folder, disk, f"{target}/commitlog", copied=copied)
    disk.sync_folder(target.rpartition("/")[0] or "/")


class Repair:
    """One repair of one store.

    Args:
      disk: of the store; written to.
      report, plan: of this store, or of the one that it was copied from.
      layout: of this store.
      backup: folder for replaced files; "": they are not kept.
      open_store: opens the repaired store once, as a start does.
      say: called with a line of text for each step.
      progress: called with the progress of a walk over the log.
    """

    def __init__(
        self,
        disk: Disk,
        report: Report,
        plan: Plan,
        layout: Layout,
        *,
        backup: str = "",
        open_store: OpenStore = open_alone,
        say: LogLine = lambda line: None,
        progress: Progress | None = None,
    ) -> None:
        self._disk = disk
        self._report = report
        self._plan = plan
        self._layout = layout
        self._root = layout.root
        self._backup = backup
        self._open_store = open_store
        self._say = say
        self._progress = progress
        self._kept: set[str] = set()
        self._ends: dict[Key, int] = dict(report.max_offsets)
        self._log = layout.commit_log(disk)

    def run(self) -> None:
        """Carry out the plan, which must have no problems.

        Raises:
          RepairError: the backup folder exists, or a hole cannot be filled; nothing was changed.
          StoreLockedError: a broker has the store open.
          StoreError: something could not be read or written; what was replaced is in the backup.
        """
        disk, lock = self._disk, f"{self._root}/lock"
        pieces = self._fillings()
        disk.lock(lock)
        try:
            self._prepare_backup()
            self._mark_unclean()
            self._move_strays()
            self._repair_log(pieces)
            self._log = read_layout(disk, self._root, self.conf()).commit_log(disk)
            self._rebuild_queues()
            self._repair_config_files()
            self._remove_index()
            self._write_checkpoint()
            self._log.close()
        finally:
            disk.unlock(lock)
        self._open_once()

    def conf(self) -> dict[str, str]:
        """The detected sizes, to open the store with during and after the repair."""
        layout = self._layout
        return {
            "store_path_commit_log": layout.log_folder,
            "mapped_file_size_commit_log": str(layout.log_file_size),
            "mapped_file_size_consume_queue": str(layout.queue_file_size),
            "mapped_file_size_consume_queue_ext": str(layout.ext_file_size),
            "mapper_file_size_batch_consume_queue": str(layout.batch_file_size),
        }

    # ---- what is kept ----------------------------------------------------------------------

    def _prepare_backup(self) -> None:
        if not self._backup:
            return
        if self._disk.exists(self._backup):
            raise RepairError(
                f"{self._backup}: what an earlier repair replaced is still there; move it away, or "
                "say --no-backup"
            )
        needed = 0
        for step in self._plan.steps:
            if step.kind.startswith("log.") and self._disk.exists(step.path):
                needed += self._layout.log_file_size
        check_room(self._disk, self._root, needed)
        self._disk.make_folder(self._backup)

    def _keep(self, path: str, *, move: bool = False) -> None:
        """Copy a file to the backup before it is changed; with `move` it is moved."""
        disk = self._disk
        if self._backup and path not in self._kept and disk.exists(path):
            self._kept.add(path)
            target = f"{self._backup}/{self._relative(path)}"
            disk.make_folder(target.rpartition("/")[0])
            if move and path.startswith(f"{self._root}/"):
                disk.rename(path, target)
                disk.sync_folder(target.rpartition("/")[0])
                return
            copy_file(disk, path, disk, target)
            disk.sync_folder(target.rpartition("/")[0])
        if move:
            disk.unlink(path)

    def _keep_folder(self, folder: str) -> None:
        """Move all files of a folder to the backup, and remove it."""
        for name in list(files_below(self._disk, folder)):
            self._keep(f"{folder}/{name}", move=True)
        self._disk.remove_folder(folder)

    def _keep_copies(self, folder: str) -> None:
        """Copy all files of a folder to the backup."""
        for name in list(files_below(self._disk, folder)):
            self._keep(f"{folder}/{name}")

    def _relative(self, path: str) -> str:
        log_folder = self._layout.log_folder
        if path.startswith(f"{log_folder}/"):
            return f"commitlog/{path[len(log_folder) + 1 :]}"
        return path[len(self._root) + 1 :]

    def _move_strays(self) -> None:
        """Move what is not the store's to the backup, or beside the store."""
        base = self._backup or f"{self._root}{STRAY_SUFFIX}"
        for found in self._plan.strays:
            path = self._here(found)
            self._say(f"{path}: moving it to {base}")
            if not self._disk.is_folder(path):
                self._move(path, base)
                continue
            for name in list(files_below(self._disk, path)):
                self._move(f"{path}/{name}", base)
            self._disk.remove_folder(path)

    def _here(self, found: str) -> str:
        """The path in this store of one that the check of its original found."""
        checked = self._report.layout
        if found.startswith(f"{checked.log_folder}/"):
            return f"{self._layout.log_folder}{found.removeprefix(checked.log_folder)}"
        return f"{self._root}{found.removeprefix(checked.root)}"

    def _move(self, path: str, base: str) -> None:
        target = f"{base}/{self._relative(path)}"
        self._disk.make_folder(target.rpartition("/")[0])
        self._disk.rename(path, target)

    def _mark_unclean(self) -> None:
        """Make a broker that starts on an incomplete repair recover, and rebuild these queues."""
        disk, root, report = self._disk, self._root, self._report
        abort = disk.open(f"{root}/abort", create=True)
        try:
            abort.sync()
        finally:
            abort.close()
        disk.sync_folder(root)
        # The checkpoint must not cover files that are about to change.
        path = f"{root}/checkpoint"
        self._keep(path)
        write_checkpoint(disk, path, replace(report.checkpoint, dispatched_offset=-1, index=None))
        self._keep(f"{root}/{QUEUE_ENDS}")
        keys = report.max_offsets.keys() if self._plan.queues is None else self._plan.queues
        rebuilding = dict.fromkeys(keys - report.deleted_queues, REBUILD)
        write_queue_ends(disk, root, QueueEnds(-1, self._layout.queue_file_size, rebuilding))

    # ---- the log ---------------------------------------------------------------------------

    def _fillings(self) -> list[Filling]:
        """The records for each hole, computed before anything is changed.

        Raises:
          RepairError: a hole cannot be filled.
        """
        if not self._plan.fill:
            return []
        report = self._report
        found: list[Filling] = []
        log = self._layout.commit_log(self._disk)
        try:
            for hole, lost in zip(report.holes, report.losses.lost, strict=True):
                beside = message_at(log, hole.end) or message_at(log, report.last_offset)
                stamp = _stamp(hole.newest_ms, beside)
                try:
                    found.append((stamp, fill_hole(hole, lost, self._layout.log_file_size)))
                except UnfillableError as error:
                    raise RepairError(
                        f"{self._layout.log_path(hole.start)}: {error}; --cut is what is left"
                    ) from error
        finally:
            log.close()
        return found

    def _repair_log(self, fillings: list[Filling]) -> None:
        disk, layout, plan = self._disk, self._layout, self._plan
        size = layout.log_file_size
        newest = max(layout.log_sizes, default=0)
        for base, found in layout.log_sizes.items():
            path = layout.log_path(base)
            if found == size or layout.is_misnamed(base):
                continue
            self._say(f"{path}: {found} bytes become {size}")
            self._keep(path, move=found == 0 and base == newest)
            if disk.exists(path):
                self._resize(path, size)
        for number, (stamp, pieces) in enumerate(fillings):
            hole = self._report.holes[number]
            self._say(f"{layout.log_path(hole.start)}: filling {hole.start} to {hole.end}")
            self._zero(hole.start, hole.end)
            for offset, data in fixed_bytes(pieces, stamp):
                self._write(offset, data)
        for record in self._report.misplaced:
            if plan.cut_at < 0 or record.physical_offset < plan.cut_at:
                self._say(f"{layout.log_path(record.physical_offset)}: writing back a head")
                self._write_head(record)
        if plan.cut_at >= 0:
            self._say(f"{layout.log_path(plan.cut_at)}: the log ends at {plan.cut_at} now")
            self._cut(plan.cut_at)
        elif self._report.nonzero_end > plan.end_of(self._report):
            self._cut(plan.end_of(self._report))
        self._sync_log()

    def _resize(self, path: str, size: int) -> None:
        file = self._disk.open(path)
        try:
            file.resize(size)
            file.sync()
        finally:
            file.close()

    def _open_log(self, physical_offset: int) -> tuple[str, Position]:
        """(path, position in it) of a byte; a missing file is made."""
        layout, disk = self._layout, self._disk
        path = layout.log_path(physical_offset)
        if not disk.exists(path):
            disk.make_folder(layout.log_folder)
            file = disk.open(path, create=True)
            try:
                file.allocate(layout.log_file_size)
            finally:
                file.close()
        else:
            self._keep(path)
        return path, Position(physical_offset % layout.log_file_size)

    def _write(self, physical_offset: int, data: bytes) -> None:
        path, position = self._open_log(physical_offset)
        file = self._disk.open(path)
        try:
            file.pwrite(data, position)
        finally:
            file.close()

    def _zero(self, start: int, end: int) -> None:
        size = self._layout.log_file_size
        while start < end:
            stop = min(end, start - start % size + size, start + ZEROS_CHUNK)
            self._write(start, bytes(stop - start))
            start = stop

    def _write_head(self, right: Misplaced) -> None:
        log = self._layout.commit_log(self._disk)
        try:
            record = message_at(log, right.physical_offset, read_body=True)
        finally:
            log.close()
        if record is None:
            return  # it was in a hole, and is filled
        fixed = replace(
            record,
            topic=right.topic,
            queue_id=right.queue_id,
            queue_offset=right.queue_offset,
        )
        self._write(right.physical_offset, encode_message(fixed))

    def _cut(self, end: int) -> None:
        """Remove files after an offset, and overwrite the rest of its file with zeros."""
        layout = self._layout
        size = layout.log_file_size
        base = end - end % size
        for later in sorted(layout.log_sizes, reverse=True):
            if later >= (base if end == base else base + size) and not layout.is_misnamed(later):
                self._keep(layout.log_path(later), move=True)
        if end > base and self._disk.exists(layout.log_path(base)):
            self._zero(end, min(base + size, max(self._report.nonzero_end, end)))

    def _sync_log(self) -> None:
        folder = self._layout.log_folder
        for path in numbered(self._disk, folder).values():
            file = self._disk.open(path)
            try:
                file.sync()
            finally:
                file.close()
        if self._disk.is_folder(folder):
            self._disk.sync_folder(folder)

    # ---- what follows from the log ---------------------------------------------------------

    def _rebuild_queues(self) -> None:
        plan, report, disk, root = self._plan, self._report, self._disk, self._root
        if plan.queues is not None and not plan.queues:
            return
        wanted = plan.queues
        for folder in ("consumequeue", "batchconsumequeue"):
            for topic, queue_id, path in list(queue_folders(disk, f"{root}/{folder}")):
                key = (topic, queue_id)
                if wanted is not None and key not in wanted:
                    continue
                # The log has no message of an idle queue, so it cannot be built; its units keep its
                # offsets.
                if folder == "consumequeue" and self._is_idle(key):
                    self._keep_copies(path)
                    end = plan.cut_at if plan.cut_at >= 0 else report.log_end
                    cut_units(disk, path, self._layout.queue_file_size, end)
                else:
                    self._keep_folder(path)
        self._say(f"{root}/consumequeue: building queues from the log")
        builder = QueueBuilder(
            disk,
            root,
            file_size=self._layout.queue_file_size,
            batch_file_size=self._layout.batch_file_size,
            places=Places(self._layout.configured.message_delay_level),
            wanted=lambda key: (
                key not in report.deleted_queues if wanted is None else key in wanted
            ),
            batch_topics=report.batch_topics,
        )
        for record in LogWalk(self._log, progress=self._progress).records():
            builder.feed(record)
        builder.finish()
        if plan.cut_at >= 0:
            self._note_ends()
        self._say(f"{root}/consumequeue: {len(builder.queues)} queues built")

    def _note_ends(self) -> None:
        """The ends of the queues after the log was cut."""
        queues = QueuesOnDisk(self._disk, self._root, self._layout.queue_file_size, Findings())
        try:
            for key in self._ends.keys() - self._report.batch_queues:
                queue = queues.queues.get(key)
                self._ends[key] = queues.max_offset(queue) if queue is not None else 0
        finally:
            queues.close()

    def _is_idle(self, key: Key) -> bool:
        """Whether the repaired log has no message of a queue."""
        begin, cut_at = self._report.begins.get(key, -1), self._plan.cut_at
        if cut_at >= 0:
            return begin < 0 or begin >= cut_at
        return begin < 0 and not (self._plan.fill and key in self._report.losses.total)

    def _remove_index(self) -> None:
        if self._plan.index:
            for path in numbered(self._disk, f"{self._root}/index").values():
                self._keep(path, move=True)
            self._disk.make_folder(f"{self._root}/index")
            self._disk.sync_folder(f"{self._root}/index")

    def _repair_config_files(self) -> None:
        folder = f"{self._root}/config"
        for path in self._plan.restore:
            name = path.rpartition("/")[2]
            spare = read_json(self._disk, f"{folder}/{name}.bak")
            self._keep(f"{folder}/{name}")
            self._say(f"{folder}/{name}: taking the content of its .bak")
            save_json(self._disk, f"{folder}/{name}", spare.text)
        if self._plan.topics:
            self._keep(f"{folder}/{TOPICS}")
            self._say(f"{folder}/{TOPICS}: {len(self._plan.topics)} topics created again")
            add_topics(self._disk, folder, self._plan.topics, self._report.batch_topics)
        for name in self._plan.clamp:
            self._clamp(f"{folder}/{name}", name)

    def _clamp(self, path: str, name: str) -> None:
        """Set offsets beyond a queue's end back to that end."""
        tree = read_json(self._disk, path).tree
        if tree is None:
            return
        ends = self._ends
        try:
            if name == CONSUMER_OFFSETS:
                count = clamp_consumers(tree, lambda topic, queue_id: ends.get((topic, queue_id)))
            else:
                count = clamp_delays(tree, lambda level: ends.get((SCHEDULE_TOPIC, level - 1), 0))
        except ValueError as error:
            raise RepairError(f"{path}: {error}") from error
        if count:
            self._keep(path)
            self._say(f"{path}: {count} offsets set back")
            save_json(self._disk, path, encode(tree))

    # ---- the end ---------------------------------------------------------------------------

    def _write_checkpoint(self) -> None:
        """Write the checkpoint, so that a start need not read the log: all files are synced."""
        walk = LogWalk(self._log, start=self._last_file_start())
        newest_ms = self._report.newest_ms if self._plan.cut_at < 0 else 0
        for record in walk.records():
            newest_ms = max(newest_ms, record.store_timestamp_ms)
        self._write_queue_ends(walk.end)
        path = f"{self._root}/checkpoint"
        old = read_checkpoint(self._disk, path)
        write_checkpoint(
            self._disk,
            path,
            Checkpoint(
                physic_msg_timestamp_ms=newest_ms,
                logics_msg_timestamp_ms=newest_ms,
                index_msg_timestamp_ms=0
                if self._plan.index
                else min(max(old.index_msg_timestamp_ms, 0), newest_ms),
                master_flushed_offset=min(max(old.master_flushed_offset, 0), walk.end),
                confirm_physical_offset=min(max(old.confirm_physical_offset, 0), walk.end),
                dispatched_offset=walk.end,
            ),
        )

    def _write_queue_ends(self, log_end: int) -> None:
        """Write the ends of queues and log that belong to the next checkpoint."""
        queues = QueuesOnDisk(self._disk, self._root, self._layout.queue_file_size, Findings())
        try:
            ends = {key: queues.max_offset(queue) for key, queue in queues.queues.items()}
        finally:
            queues.close()
        write_queue_ends(
            self._disk,
            self._root,
            QueueEnds(
                log_end,
                self._layout.queue_file_size,
                {key: end for key, end in ends.items() if end},
                log_start=self._log.min_offset,
                begins_at=-1,  # the starts of queues are left out
                own_from=log_end,
            ),
        )

    def _last_file_start(self) -> int:
        for base in sorted(self._log.files, reverse=True):
            if record_at(self._log, base) is not None:
                return base
        return self._log.min_offset

    def _open_once(self) -> None:
        """Open and close it with the store's own code, which builds the index."""
        disk, plan = self._disk, self._plan
        disk.unlink(f"{self._root}/abort")
        disk.sync_folder(self._root)
        config = self._config()
        self._say(f"{self._root}: opening and closing it once")
        if plan.start:
            self._keep_copies(f"{self._root}/config")
        store = self._open_store(config, disk)
        try:
            if store.read_only:
                raise RepairError(f"{self._root}: it opens with a problem: {store.trouble}")
            if plan.index:
                store.index.catch_up_from(store.min_physical_offset)
            while store.index.is_behind:
                store.index.work(1.0)
        finally:
            store.close()
        if disk.exists(f"{self._root}/abort"):
            raise StoreIOError(self._root, "it could not be closed cleanly; see the log above")

    def _config(self) -> MessageStoreConfig:
        layout, counts = self._layout, self._report.index_counts
        config = replace(
            layout.configured,
            store_path_root_dir=self._root,
            store_path_commit_log=layout.log_folder,
            mapped_file_size_commit_log=layout.log_file_size,
            message_index_enable=counts is not None and self._report.has_index,
        )
        if counts is not None:
            config.max_hash_slot_num, config.max_index_num = counts
        return config


def _stamp(newest_ms: int, beside: MessageExt | None) -> Stamp:
    """Time and host for filler records, taken from the record before the hole."""
    host = host_bytes("127.0.0.1", 0)
    if beside is None:
        return Stamp(newest_ms, host)
    if len(beside.store_host) == len(host):
        host = beside.store_host
    return Stamp(newest_ms or beside.store_timestamp_ms, host)
