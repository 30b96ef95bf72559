"""The rules of retention: the commit log files to delete, and the reasons. Pure.

Java counterparts: DefaultMessageStore.CleanCommitLogService and MappedFileQueue
deleteExpiredFileByTime of 5.3.3. Whole files are deleted, oldest first, never the newest. Keys,
defaults and times are RocketMQ's. Rules beyond it:

- The age of a file is that of its newest message (Apache: its mtime, which a copy or a restored
  backup changes).
- Expiry trusts the wall clock only while it agrees with elapsed time (`ClockGuard`). A clock that
  jumps ahead would otherwise delete everything.
- For space only as much is deleted as is needed (Apache: up to `deleteFileBatchMax` files in each
  pass).

retention_service.py carries the decisions out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..config import MessageStoreConfig
from .disk_space import SpaceDecision

HOUR_MS = 3_600_000

CLOCK_JUMP_MAX_MS = HOUR_MS
"""The wall clock may advance by at most this more than elapsed time between two passes."""

CLOCK_DOUBT_S = 24 * 3600.0
"""Nothing expires for this time after a larger jump, counted from the first of several. Then the
clock counts as right: an operator would have corrected it, and a machine that was suspended where
that cannot be distinguished from a jump (a paused virtual machine) must not keep everything for
ever. A machine that slept, and whose system measures that (Linux, macOS), has not jumped."""

START_DOUBT_S = 3600.0
"""Nothing expires for this time after a start at which even the store's newest message is expired:
a wrong clock, or a backup under inspection. Where the newest message is ahead of the clock, it does
not confirm the clock, and nothing expires for `CLOCK_DOUBT_S`."""


class LogFileFacts(NamedTuple):
    """The facts about a commit log file that decide its deletion.

    Attributes:
      base: physical offset of its first byte.
      newest_ms: store timestamp of its newest message; -1: unknown, it never expires.
    """

    base: int
    newest_ms: int


@dataclass(frozen=True, slots=True)
class Deletion:
    """A commit log file to delete, and why."""

    base: int
    newest_ms: int
    reason: str


def choose(
    files: Sequence[LogFileFacts],
    *,
    now_ms: int,
    hour: int,
    doubt: str,
    space: SpaceDecision,
    config: MessageStoreConfig,
    by_hand: bool = False,
) -> list[Deletion]:
    """The files to delete now: the oldest ones, without a gap.

    Args:
      files: oldest first, without those that must stay.
      now_ms: wall clock.
      hour: 0 to 23, local time.
      doubt: why the wall clock is not trusted; "": it is.
      space: the actions against a full disk.
      by_hand: an operator wants expired files to be deleted at any hour.

    Source: RocketMQ 5.3.3 CleanCommitLogService.deleteExpiredFiles, MappedFileQueue
      deleteExpiredFileByTime.
    """
    is_time = by_hand or is_due(hour, config) or bool(space.reclaim or space.clean)
    may_expire = is_time and not doubt
    forced = bool(space.clean) and config.clean_file_forcibly_enable
    expired_before_ms = now_ms - config.file_reserved_time * HOUR_MS
    chosen: list[Deletion] = []
    for file in files[: config.delete_file_batch_max]:
        if may_expire and 0 <= file.newest_ms <= expired_before_ms:
            reason = f"older than fileReservedTime={config.file_reserved_time} h"
        elif forced and len(chosen) * config.mapped_file_size_commit_log < space.excess:
            reason = space.clean
        else:
            break
        chosen.append(Deletion(file.base, file.newest_ms, reason))
    return chosen


def is_due(hour: int, config: MessageStoreConfig) -> bool:
    """Whether `deleteWhen` names this hour."""
    return hour in delete_hours(config.delete_when)


def delete_hours(text: str) -> frozenset[int]:
    """The hours of `deleteWhen`, such as "04" or "04;16".

    Raises:
      ValueError: a part is no hour from 0 to 23.
    """
    return frozenset(_hour(part) for part in text.split(";"))


def _hour(text: str) -> int:
    try:
        hour = int(text)
    except ValueError:
        hour = -1
    if not 0 <= hour < 24:
        raise ValueError(f"{text!r} is not an hour from 0 to 23")
    return hour


class ClockGuard:
    """Decides whether the wall clock can be trusted to expire messages.

    Args:
      known_ms: an earlier, trusted wall time, ms since 1970: of the newest message at the start.
      reserved_ms: age at which a message expires at the start; a later change makes the clock
        neither more nor less right.
    """

    def __init__(self, known_ms: int, reserved_ms: int) -> None:
        self._known_ms = known_ms
        self._reserved_ms = reserved_ms
        self._offset_ms: float | None = None  # wall clock minus elapsed time, when last trusted
        self._start_until_s = self._behind_until_s = 0.0
        self._jump_until_s: float | None = None
        self._jump_ms = 0.0

    def check(self, wall_ms: int, elapsed_s: float) -> str:
        """Compare the clocks; call it in each pass.

        Args:
          wall_ms: ms since 1970.
          elapsed_s: seconds since some moment, the machine's sleep included.

        Returns: why the wall clock is not trusted, and until when; "" when it is.
        """
        offset_ms = wall_ms - elapsed_s * 1000
        if self._offset_ms is None:
            self._offset_ms = offset_ms
            if wall_ms - self._known_ms > self._reserved_ms:
                self._start_until_s = elapsed_s + START_DOUBT_S
            elif self._known_ms - wall_ms > CLOCK_JUMP_MAX_MS:
                self._behind_until_s = elapsed_s + CLOCK_DOUBT_S
        ahead_ms = offset_ms - self._offset_ms
        if ahead_ms <= CLOCK_JUMP_MAX_MS:
            self._jump_until_s = None
            if ahead_ms < -CLOCK_JUMP_MAX_MS:
                self._start_until_s = 0.0  # the clock was corrected
        elif self._jump_until_s is None:
            self._jump_until_s, self._jump_ms = elapsed_s + CLOCK_DOUBT_S, ahead_ms
        elif self._jump_until_s <= elapsed_s:
            self._jump_until_s = None
        if self._jump_until_s is not None:
            return (
                f"the wall clock has jumped {self._jump_ms / HOUR_MS:.1f} h ahead. If it is wrong, "
                f"set it back; nothing expires for {CLOCK_DOUBT_S / 3600:.0f} h"
            )
        self._offset_ms = offset_ms
        if elapsed_s < self._behind_until_s:
            return (
                "at the start the newest message was "
                f"{(self._known_ms - wall_ms) / HOUR_MS:.1f} h younger than this machine's clock "
                "says, so the clock was wrong then or is now; if it is wrong, set it. Nothing "
                f"expires in the first {CLOCK_DOUBT_S / 3600:.0f} h"
            )
        if elapsed_s < self._start_until_s:
            return (
                "by this machine's clock even the newest message is expired; if it is wrong, set "
                f"it back. Nothing expires in the first {START_DOUBT_S / 3600:.0f} h"
            )
        return ""
