"""A repair from beginning to end: check, plan, copy or keep a backup, do it, check again."""

from __future__ import annotations

from collections.abc import Mapping

from ..disk.os_disk import Disk
from ..errors import StoreError
from ..log.log_bytes import last_nonzero
from .fsck import Progress, check_store
from .layout import Layout, read_layout
from .opening import opened
from .plan import HolePolicy, Plan, Rebuild, plan_repair
from .repair import BACKUP_SUFFIX, Repair, RepairError, Say, copy_store
from .report import Report


def plan_for(
    read_disk: Disk,
    root: str,
    *,
    holes: HolePolicy = HolePolicy.ASK,
    rebuild: Rebuild = Rebuild.DAMAGED,
    conf: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> tuple[Report, Plan]:
    """Check a store and decide what is to be done.

    Args:
      read_disk: a `ReadOnlyDisk`.
      root: storePathRootDir.
      conf: what `layout.read_conf` gave.

    Raises:
      NoStoreError, StoreLockedError, StoreIOError: see `check_store`.
    """
    report = check_store(read_disk, root, conf=conf, remember=True, progress=progress)
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
    say: Say = lambda line: None,
    progress: Progress | None = None,
) -> Report:
    """Do what was planned, and check what came of it.

    Args:
      read_disk: a `ReadOnlyDisk`.
      disk: what is written to.
      report, plan: what `plan_for` gave.
      into: work on a copy, made there; "": in place.
      keep_backup: in place: keep what is replaced beside the store.

    Returns: what a check of the repaired store found.

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
    _check_unchanged(read_disk, layout, report)
    backup = f"{root}{BACKUP_SUFFIX}" if keep_backup and not into else ""
    Repair(disk, report, plan, layout, backup=backup, say=say, progress=progress).run()
    say(f"{root}: checking again")
    return check_store(read_disk, root, conf=sizes, progress=progress)


def _sizes(report: Report, conf: Mapping[str, str] | None) -> dict[str, str]:
    """What was given, and the sizes that were found, so that they are the same afterwards."""
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
    """Refuse when a broker ran between the check and now."""
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
