"""RecordPuts: appends the records of pop consumption within a turn or a burst of the store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from ...store.config import FlushDiskType
from ...store.message_store import MessageStore
from ...store.status import PutMessageStatus, PutRefusal
from ..messages.inner_message import InnerMessage, InnerPuts, WaitingRefused
from ..stats.pop_counts import PopCounts, RecordKind
from .check_point import CheckPoint
from .records import Ack, RecordPlace, ack_record, check_point_record

_NOT_STORED: Final = "the record of a pop would not be stored"


class WrittenTurn(Protocol):
    """The part of the broker's turn (`processors/send_turn.py`) that pop consumption needs."""

    def when_written(self, callback: Callable[[bool], None]) -> None:
        """Call back when the turn is written (true), or could not be."""


class RecordPuts:
    """Appends records to what the store's next commit writes.

    A turn (`SendTurn.begin`) or a burst (`MessageStore.begin_burst`) must have begun.

    Args:
      store: already loaded.
      puts: appends messages that the broker stores itself.
      topic: the revive topic.
      host: gives the broker's address, as `host_bytes` packs it.
      counts: counts the records.
    """

    def __init__(
        self,
        store: MessageStore,
        puts: InnerPuts,
        topic: str,
        host: Callable[[], bytes],
        counts: PopCounts | None = None,
    ) -> None:
        self.topic = topic
        self._store = store
        self._puts = puts
        self._host = host
        self._counts = counts or PopCounts()

    @property
    def are_acks_durable(self) -> bool:
        """Whether no crash may take back an acknowledgement that is stored as a record."""
        return self._store.config.flush_disk_type is FlushDiskType.SYNC_FLUSH

    @property
    def log_end(self) -> int:
        """Physical offset after the last commit."""
        return self._store.max_physical_offset

    def put_check_point(
        self, check_point: CheckPoint, revive_queue_id: int, next_offset: int = -1
    ) -> PutRefusal | None:
        """Append a check point's record; return why it is not stored, None: it is.

        Args:
          revive_queue_id: of the revive topic.
          next_offset: as of `check_point_record`.
        """
        place = RecordPlace(self.topic, self._host())
        now_ms = self._store.wall_time_ms
        refusal = self._put(
            lambda: check_point_record(check_point, revive_queue_id, place, now_ms, next_offset)
        )
        self._count(check_point.group, check_point.topic, RecordKind.CK, refusal)
        return refusal

    def put_ack(self, ack: Ack, revive_time: int, revive_queue_id: int) -> PutRefusal | None:
        """Append an acknowledgement's record; return why it is not stored, None: it is.

        Args:
          revive_time: of the check point, ms since 1970.
          revive_queue_id: as of `put_check_point`.
        """
        place = RecordPlace(self.topic, self._host())
        now_ms = self._store.wall_time_ms
        refusal = self._put(lambda: ack_record(ack, revive_time, revive_queue_id, place, now_ms))
        self._count(ack.key.group, ack.key.topic, RecordKind.ACK, refusal)
        return refusal

    def _count(self, group: str, topic: str, kind: RecordKind, refusal: PutRefusal | None) -> None:
        status = PutMessageStatus.PUT_OK if refusal is None else refusal.status
        self._counts.put(group, topic, kind, status)

    def _put(self, make: Callable[[], InnerMessage]) -> PutRefusal | None:
        """Append to the timer topic; to the revive topic if it is due."""
        try:
            waiting = self._puts.waiting(make())
        except WaitingRefused as error:
            return PutRefusal(error.status, _NOT_STORED)
        except ValueError as error:  # a name from a client cannot be a property
            return PutRefusal(PutMessageStatus.MESSAGE_ILLEGAL, str(error))
        return self._puts.put(waiting)[0]
