"""The steps of a repair: check, plan, copy or keep a backup, carry out, check again."""

from __future__ import annotations

from collections.abc import Mapping

from ...disk.errors import StoreError
from ...disk.os_disk import Disk
from ..log.log_bytes import last_nonzero
from .examined_start import OpenStore, open_alone
from .fsck import Progress, check_store
from .layout import Layout, read_layout
from .opening import opened
from .plan import HolePolicy, Plan, Rebuild, plan_repair
from .repair import BACKUP_SUFFIX, LogLine, Repair, RepairError, copy_store
from .report import Report


def plan_for(
    read_disk: Disk,
    root: str,
    *,
    holes: HolePolicy = HolePolicy.ASK,
    rebuild: Rebuild = Rebuild.DAMAGED,
    conf: Mapping[str, str] | None = None,
    open_store: OpenStore | None = None,
    progress: Progress | None = None,
) -> tuple[Report, Plan]:
    """Check a store and plan its repair.

    Args:
      read_disk: a `ReadOnlyDisk`.
      root: storePathRootDir.
      conf: the result of `layout.read_conf`.
      open_store: see `check_store`.

    Raises:
      NoStoreError, StoreLockedError, StoreIOError: see `check_store`.
    """
    report = check_store(
        read_disk, root, conf=conf, remember=True, open_store=open_store, progress=progress
    )
    return report, plan_repair(report, holes, rebuild)


def carry_out(
    read_disk: Disk,
    disk: Disk,
    report: Report,
    plan: Plan,
    *,
    into: str = "",
    keep_backup: bool = True,
    conf: Mapping[str, str] | None = None,
    open_store: OpenStore | None = None,
    say: LogLine = lambda line: None,
    progress: Progress | None = None,
) -> Report:
    """Carry out a plan, and check the result.

    Args:
      read_disk: a `ReadOnlyDisk`.
      disk: the disk to write to.
      report, plan: the result of `plan_for`.
      into: folder for a copy to repair; "": in place.
      keep_backup: in place: keep replaced files beside the store.
      open_store: opens the repaired store; None: without a broker's tables.

    Returns: the report of a check of the repaired store.

    Raises:
      RepairError: the plan has problems, a folder is in the way, or the store has changed since.
      StoreError: something could not be read or written.
    """
    if plan.problems:
        raise RepairError(plan.problems[0])
    root = report.layout.root
    sizes = _sizes(report, conf)
    if into:
        into = into.rstrip("/")
        if f"{into}/".startswith(f"{root}/"):
            raise RepairError(f"{into}: the copy must not lie inside the store")
        with opened(read_disk, root, conf=conf) as store:
            say(f"{root}: copying to {into}")
            copy_store(read_disk, disk, store.layout, into, progress)
        sizes.pop("store_path_commit_log", None)
        root = into
    layout = read_layout(read_disk, root, sizes)
    # A broker may have run between the check and the repair.
    _check_unchanged(read_disk, layout, report)
    backup = f"{root}{BACKUP_SUFFIX}" if keep_backup and not into else ""
    Repair(
        disk,
        report,
        plan,
        layout,
        backup=backup,
        open_store=open_store or open_alone,
        say=say,
        progress=progress,
    ).run()
    say(f"{root}: checking again")
    return check_store(read_disk, root, conf=sizes, open_store=open_store, progress=progress)


def _sizes(report: Report, conf: Mapping[str, str] | None) -> dict[str, str]:
    """The given configuration and the detected sizes, so that they are the same afterwards."""
    layout = report.layout
    sizes = {
        "mapped_file_size_commit_log": str(layout.log_file_size),
        "mapped_file_size_consume_queue": str(layout.queue_file_size),
        "mapped_file_size_consume_queue_ext": str(layout.ext_file_size),
        "mapper_file_size_batch_consume_queue": str(layout.batch_file_size),
    }
    if report.index_counts is not None:
        sizes["max_hash_slot_num"] = str(report.index_counts.slot_count)
        sizes["max_index_num"] = str(report.index_counts.index_count_max)
    return {**sizes, **(conf or {})}


def _check_unchanged(disk: Disk, layout: Layout, report: Report) -> None:
    """Refuse if a broker ran since the check."""
    log = layout.commit_log(disk)
    try:
        same = layout.log_sizes == report.layout.log_sizes and (
            not log.files or last_nonzero(log, report.log_end) == report.nonzero_end
        )
    except StoreError as error:
        raise RepairError(f"{layout.root}: {error}") from error
    finally:
        log.close()
    if not same:
        raise RepairError(f"{layout.root}: it has changed since it was checked; begin again")
