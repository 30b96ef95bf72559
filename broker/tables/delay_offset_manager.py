"""DelayOffsetManager: the delivered offset of each delay level's queue, in `delayOffset.json`.

Java counterpart: the table in broker/schedule/ScheduleMessageService.java and
DelayOffsetSerializeWrapper.java of 5.3.3; the file is that of 5.5.0 (4.x has no `dataVersion`).
Pure, but for the `save` it is given. `schedule_message_service.py` delivers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import msgspec

from ...common.clock import Clock
from ...common.java_integers import INT64_MAX
from ...common.steps import one_step
from ...disk.json_config import parse
from ...disk.state_file import Save, StateFile
from ...remoting.bodies import DataVersion
from .config_text import DELAY_OFFSETS, next_version, pretty, written
from .table_numbers import correct_version, whole_number

logger = logging.getLogger(__name__)

LEVEL_MAX: Final = 1000
"""A higher level means that the file is damaged; messageDelayLevel has 18 by default."""


class DelayOffsetManager:
    """The table of delay offsets. Not thread-safe: used from the broker's one trio run.

    Args:
      clock: gives the data version's time.
      version_step: updates per data version (delayOffsetUpdateVersionStep).

    Attributes:
      offset_table: queue offset in SCHEDULE_TOPIC_XXXX to deliver next, by level; level n has the
        queue n - 1.
    """

    def __init__(self, *, clock: Clock, version_step: int, save: Save) -> None:
        self.file = StateFile(
            DELAY_OFFSETS, "delay offsets", save, one_step(self.encode), is_lazy=True
        )
        self._clock = clock
        self._version_step = version_step
        self._updates = 0
        self.data_version = DataVersion(timestamp=clock.wall_ms(), counter=0)
        self.offset_table: dict[int, int] = {}

    def update_offset(self, level: int, offset: int) -> None:
        """Record how far a level has been delivered.

        Args:
          level: from 1 on.
          offset: the next queue offset to deliver, >= 0.
        """
        self.offset_table[level] = offset
        self.file.is_dirty = True
        self._updates += 1
        if self._updates % self._version_step == 0:
            self.data_version = next_version(self.data_version, self._clock.wall_ms())

    def correct(
        self,
        level: int,
        *,
        min_offset: int,
        max_offset: int,
        waiting: Callable[[], int] | None = None,
    ) -> None:
        """Correct a level's offset, when one is known, to lie within its queue.

        Delivered messages are on the device before the offset is saved, so an offset past the
        queue's end is wrong, even after a crash. RocketMQ continues at the end and never delivers
        the waiting messages.

        Args:
          min_offset, max_offset: of the level's queue.
          waiting: returns the offset of the first message that may be undelivered, which replaces
            an offset past the end. None: the end is used.
        Source: ScheduleMessageService.correctDelayOffset.
        """
        offset = self.offset_table.get(level)
        if offset is None or min_offset <= offset <= max_offset:
            return
        used = min_offset
        if offset > max_offset:
            # Past the end, although delivered messages are on the device before the offset is
            # saved: it is wrong, even after a crash. RocketMQ continues at the end and never
            # delivers what waits.
            used = max_offset if waiting is None else waiting()
            logger.warning(
                "%(file)s: the offset of level %(delay_level)d is %(offset)d, but its queue "
                "ends at %(max_offset)d: it is set to %(used)d, some messages may be delivered "
                "twice, and the file is written again",
                {
                    "file": DELAY_OFFSETS,
                    "delay_level": level,
                    "offset": offset,
                    "max_offset": max_offset,
                    "used": used,
                },
            )
        self.offset_table[level] = used
        self.file.is_dirty = True

    def take_over(self, text: bytes) -> None:
        """Replace the table by a master's answer to 45; a changed table is saved.

        Raises: ValueError: the text is not a table of delay offsets; nothing is changed then.
        """
        before, was_dirty = self.offset_table, self.file.is_dirty
        self.decode(text)
        self.file.is_dirty = was_dirty or self.offset_table != before

    def encode(self) -> bytes:
        """The text of `delayOffset.json`, and the body of the answer to 45."""
        return pretty(
            {
                "dataVersion": written(self.data_version, depth=1),
                "offsetTable": dict(sorted(self.offset_table.items())),
            }
        )

    def decode(self, text: bytes) -> int:
        """Replace the table by the content of `delayOffset.json`.

        Args:
          text: the file's text, as any version of RocketMQ wrote it.
        Returns: the number of levels.
        Raises: ValueError: the text is not a table of delay offsets; nothing is changed then.
        """
        try:
            tree = parse(text)
            table = {
                whole_number(level): whole_number(offset)
                for level, offset in (tree.get("offsetTable") or {}).items()
            }
            version = tree.get("dataVersion")
            data_version = (
                self.data_version if version is None else msgspec.convert(version, DataVersion)
            )
        except (AttributeError, TypeError, ValueError, msgspec.ValidationError) as error:
            raise ValueError(f"not a table of delay offsets: {error}") from error
        for level, offset in table.items():
            if not 0 < level <= LEVEL_MAX or not 0 <= offset <= INT64_MAX:
                raise ValueError(f"not a table of delay offsets: level {level} at {offset}")
        # All or nothing: above this line an error changes nothing.
        self.offset_table = table
        self.data_version = correct_version(DELAY_OFFSETS, data_version, self.data_version)
        self.file.is_dirty = self.data_version is not data_version
        return len(table)
