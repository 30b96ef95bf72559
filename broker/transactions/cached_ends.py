"""CachedEnds: ends transactions whose half message is cached, so the log is not read.

The bytes in the log are those of `EndTransactionProcessor.end_transaction`, which serves all
others.
"""

from __future__ import annotations

from ...remoting.sys_flag import TRANSACTION_COMMIT_TYPE
from ...store.message_store import MessageStore
from ...store.status import PutRefusal
from .half_message_cache import CachedHalf
from .send_half import HalfPuts


class CachedEnds:
    """Finds cached half messages and ends their transactions.

    Args:
      store: appends the messages of commits.
      halves: has the turn, which must have begun, and the transactions.
    """

    def __init__(self, store: MessageStore, halves: HalfPuts) -> None:
        self._store = store
        self._put_message = store.put_message
        self._turn = halves.puts.turn
        self._cache = halves.transactions.cache
        self._ends = halves.transactions.ends
        self._record_end = halves.transactions.end

    def find(
        self, half_offset: int, queue_offset: int, group: str, transaction_id: str
    ) -> CachedHalf | None:
        """The cached half message that an end names, whose transaction may be ended at once.

        A cached half message is open, has no immunity time, and its topic may be delivered to.

        Args:
          half_offset, queue_offset: of the half message in the log and in its queue.
          group: the producer's.
          transaction_id: the unique key; empty: the end does not say it.
        """
        half = self._cache.find(half_offset)
        if (
            half is None
            or half.queue_offset != queue_offset
            or half.group != group
            or (transaction_id and transaction_id != half.unique_key)
            # It must not be deleted and, under SYNC_FLUSH, must be visible.
            or not self._store.log.min_offset <= half_offset < self._store.dispatched_offset
        ):
            return None
        return half

    def end(self, half: CachedHalf, kind: int) -> PutRefusal | None:
        """Commit or roll back in the present turn.

        Args:
          half: that `find` returned.
          kind: TRANSACTION_COMMIT_TYPE or TRANSACTION_ROLLBACK_TYPE.

        Returns: why the final message was not stored; the transaction is open then.
        """
        if kind == TRANSACTION_COMMIT_TYPE:
            refusal, _, _ = self._put_message(
                half.topic,
                half.queue_id,
                half.body,
                half.properties,
                born_timestamp_ms=half.born_timestamp_ms,
                born_host=half.born_host,
                store_host=self._turn.store_host,
                tags_code=half.tags_code,
                sys_flag=half.sys_flag,
                prepared_transaction_offset=half.physical_offset,
            )
            if refusal is not None:
                return refusal
            self._ends.commit(half.topic, self._store.wall_time_ms - half.born_timestamp_ms)
        else:
            self._ends.roll_back(half.topic)
        self._cache.remove(half.physical_offset)
        self._record_end(half.queue_offset)
        return None
