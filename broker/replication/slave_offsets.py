"""SlaveOffsets: merges a master's consumer offsets with those that clients commit at the slave.

The master's offsets are copied whether they rise or fall, because an administrator may have reset
them. But while the master is down, consumers read from the slave and commit there. Their offsets
are kept as long as the master's are lower, because the master's table is then the older one. An
offset that differs from the last copied one is a client's. After a restart of the slave nothing was
copied yet and the master's offsets are used; at worst some messages are delivered twice.

No offset lies past the end of the slave's queue, because consumers would skip the next messages
(L15). (Apache's slave copies all offsets in each round, even over those of clients.)

Java counterpart: SlaveSynchronize.syncConsumerOffset of 5.3.3. Pure.
"""

from __future__ import annotations

from collections.abc import Callable

from ..tables.consumer_offset_manager import SEPARATOR, ConsumerOffsetManager, parse_offsets


class SlaveOffsets:
    """Copies the offsets of a master into a slave's table.

    Args:
      offsets: the slave's table.
      max_offset: returns the next queue offset in the slave's store, by topic and queue id.
    """

    def __init__(
        self, offsets: ConsumerOffsetManager, max_offset: Callable[[str, int], int]
    ) -> None:
        self._offsets = offsets
        self._max_offset = max_offset
        self._is_first_round = True
        self._copied: dict[tuple[str, int], int] = {}

    def take_over(self, text: bytes) -> None:
        """Copy the master's answer to GET_ALL_CONSUMER_OFFSET (43).

        Raises: ValueError: the text is not a table of offsets; nothing is changed then.
        """
        table, _, version = parse_offsets(text)
        master_offsets = {
            (key, queue_id): offset
            for key, offsets in table.items()
            for queue_id, offset in offsets.items()
            if offset >= 0
        }
        for place in self._copied.keys() - master_offsets.keys():
            if self._known(place) == self._copied.pop(place):
                self._offsets.drop_offset(*place)
        for place, offset in master_offsets.items():
            self._copy(place, offset)
        self._is_first_round = False
        if version is not None:
            self._offsets.data_version = version

    def _copy(self, place: tuple[str, int], offset: int) -> None:
        """Copy one offset, unless a client has committed a higher one here."""
        key, queue_id = place
        offset = min(offset, self._max_offset(key.partition(SEPARATOR)[0], queue_id))
        known = self._known(place)
        is_clients = known is not None and known != self._copied.get(place)
        if known is not None and offset < known and is_clients and not self._is_first_round:
            return
        self._copied[place] = offset
        if offset != known:
            self._offsets.put_offset(key, queue_id, offset)

    def _known(self, place: tuple[str, int]) -> int | None:
        return self._offsets.offset_table.get(place[0], {}).get(place[1])
