"""The next deletion of files of a broker's log: when, and why. Pure.

Source: DefaultMessageStore.CleanCommitLogService of RocketMQ 5.5.0: whole files go, the oldest
first and never the one that is written. Apache's broker takes a file's age from its last change.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Final

import msgspec

from ..common.config import KnownKey
from ..common.known_keys import read_keys
from .whole_numbers import number

if TYPE_CHECKING:
    from ..client import BrokerStats

_HOUR_MS: Final = 3_600_000


class DeletionState(Enum):
    """What holds for the oldest file."""

    ONLY_FILE = "it is the one that is written, and stays"
    AT_HOUR = "it is deleted at an hour of the day once it has expired"
    AT_ANY_HOUR = "it is deleted once it has expired, as the disk is rather full"
    AT_ANY_AGE = "it is deleted now, as the disk is full"
    UNKNOWN = "the broker does not tell enough"


class FileDeletion(msgspec.Struct, frozen=True, rename="camel"):
    """The next deletion of a file of the log.

    Attributes:
      state: the name of a DeletionState.
      files: how many the log has; None: unknown.
      not_before_ms: when the oldest file expires at the earliest, ms since 1970; None: unknown.
      kept_hours: fileReservedTime.
      delete_hours: deleteWhen: hours of the broker's day, such as "04" or "04;16".
      used: the used part of the log's disk, 0 to 1; None: unknown.
      any_hour_above, any_age_above, refused_above: parts of the disk from which on expired files go
        at any hour, the oldest goes at any age, and sends are refused.
      is_forced: files may go at any age (cleanFileForciblyEnable).
    """

    state: str
    files: int | None
    not_before_ms: int | None
    kept_hours: int
    delete_hours: str
    used: float | None
    any_hour_above: float
    any_age_above: float
    refused_above: float
    is_forced: bool


def file_deletion(stats: BrokerStats, settings: Mapping[str, str]) -> FileDeletion:
    """The next deletion of a broker's files.

    Args:
      settings: as `Admin.broker_config` gives them; what is missing is RocketMQ's default.
    """
    known = read_keys("store")

    def setting(key: str) -> int:
        found = number(settings.get(key, ""))
        return _default(known[key]) if found is None else found

    files = _file_count(stats, setting("mappedFileSizeCommitLog"))
    kept_hours = setting("fileReservedTime")
    is_forced = settings.get("cleanFileForciblyEnable", "true").strip().lower() != "false"
    any_hour = setting("diskMaxUsedSpaceRatio") / 100
    any_age = setting("diskSpaceCleanForciblyRatio") / 100
    used = stats.commit_log_disk_ratio
    if files is None:
        state = DeletionState.UNKNOWN
    elif files <= 1:
        state = DeletionState.ONLY_FILE
    elif used is not None and used > any_age and is_forced:
        state = DeletionState.AT_ANY_AGE
    elif used is not None and used > any_hour:
        state = DeletionState.AT_ANY_HOUR
    else:
        state = DeletionState.AT_HOUR
    earliest_ms = stats.earliest_ms
    return FileDeletion(
        state=state.name,
        files=files,
        not_before_ms=None if earliest_ms is None else earliest_ms + kept_hours * _HOUR_MS,
        kept_hours=kept_hours,
        delete_hours=settings.get("deleteWhen", "") or known["deleteWhen"].default,
        used=used,
        any_hour_above=any_hour,
        any_age_above=any_age,
        refused_above=setting("diskSpaceWarningLevelRatio") / 100,
        is_forced=is_forced,
    )


def _file_count(stats: BrokerStats, size: int) -> int | None:
    """How many files the log has; None: unknown."""
    begin, end = stats.commit_log_begin, stats.commit_log_end
    if begin is None or end is None or size < 1 or end < begin:
        return None
    return max(math.ceil(end / size) - begin // size, 1)


def _default(key: KnownKey) -> int:
    found = number(key.default)
    assert found is not None, key  # a fact of this package
    return found
