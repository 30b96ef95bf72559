"""The offsets of a slave: its master's, and what clients commit at the slave itself.

The master's table is taken over as it is, whichever way an offset goes: an administrator may have
set it back. But while the master is away, consumers read from the slave and commit there. Their
offsets then count for as long as the master's are behind: its table is the older one. Whether an
offset is a client's is told by comparing it with what was taken over last; after a restart of the
slave nothing was, and the master's counts, at the worst some messages come twice.

No offset lies behind the end of the slave's own queue: what comes there would be passed over (L15).
(Apache's slave takes over all offsets in each round, whatever clients have committed.)

Java counterpart: SlaveSynchronize.syncConsumerOffset of 5.3.3. Pure.
"""

from __future__ import annotations

from collections.abc import Callable

from .consumer_offset_manager import SEPARATOR, ConsumerOffsetManager, parse_offsets


class SlaveOffsets:
    """Takes over the offsets of a master.

    Args:
      offsets: the slave's table.
      max_offset: the next queue offset in the slave's store, of topic and queue id.
    """

    def __init__(
        self, offsets: ConsumerOffsetManager, max_offset: Callable[[str, int], int]
    ) -> None:
        self._offsets = offsets
        self._max_offset = max_offset
        self._is_first_round = True
        self._taken: dict[tuple[str, int], int] = {}

    def take_over(self, text: bytes) -> None:
        """Take over what the master answers to GET_ALL_CONSUMER_OFFSET (43).

        Raises: ValueError: it is no table of offsets; nothing is changed then.
        """
        table, _, version = parse_offsets(text)
        told = {
            (key, queue_id): offset
            for key, offsets in table.items()
            for queue_id, offset in offsets.items()
            if offset >= 0
        }
        for place in self._taken.keys() - told.keys():
            if self._known(place) == self._taken.pop(place):
                self._offsets.drop_offset(*place)
        for place, offset in told.items():
            self._take(place, offset)
        self._is_first_round = False
        if version is not None:
            self._offsets.data_version = version

    def _take(self, place: tuple[str, int], offset: int) -> None:
        """Take over one offset, unless a client has committed a later one here."""
        key, queue_id = place
        offset = min(offset, self._max_offset(key.partition(SEPARATOR)[0], queue_id))
        known = self._known(place)
        is_clients = known is not None and known != self._taken.get(place)
        if known is not None and offset < known and is_clients and not self._is_first_round:
            return
        self._taken[place] = offset
        if offset != known:
            self._offsets.put_offset(key, queue_id, offset)

    def _known(self, place: tuple[str, int]) -> int | None:
        return self._offsets.offset_table.get(place[0], {}).get(place[1])
