"""RebalanceLockManager: the queue locks of orderly consumers, by group.

An orderly consumer locks its queues every 20 s; a lock that is not renewed for LOCK_EXPIRED_S is
free.

Java counterpart: broker/client/rebalance/RebalanceLockManager.java of 5.3.3; there the age is
measured by the wall clock, here by the monotonic one. Pure: the time is an argument.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from ...common.steps import STEP_ITEMS, Steps, at_once
from ...remoting.bodies import MessageQueue

logger = logging.getLogger(__name__)

LOCK_EXPIRED_S: Final = 60.0
"""Seconds after which a lock that was not renewed is free.
RocketMQ: rocketmq.broker.rebalance.lockMaxLiveTime."""

LOCKS_MAX: Final = 200_000
"""Locks of one broker at a time, some 60 MB; 160 MB with the longest names. RocketMQ has no bound,
and never drops an entry."""


class _Lock:
    __slots__ = ("client_id", "renewed_s")

    def __init__(self, client_id: str, renewed_s: float) -> None:
        self.client_id = client_id
        self.renewed_s = renewed_s


class RebalanceLockManager:
    """The table of locks. Not thread-safe: used from the broker's one trio run.

    Args:
      expired_s: seconds after which a lock that was not renewed is free.
      locks_max: locks at most; a further queue is not locked.
    """

    def __init__(self, *, expired_s: float = LOCK_EXPIRED_S, locks_max: int = LOCKS_MAX) -> None:
        self._expired_s = expired_s
        self._locks_max = locks_max
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def try_lock_batch(
        self, group: str, queues: Iterable[MessageQueue], client_id: str, *, now_s: float
    ) -> list[MessageQueue]:
        """Lock or renew queues for a client.

        Args:
          client_id: the client that locks them.
          now_s: monotonic seconds.
        Returns: the queues that the client now holds, in the order of `queues`, each once.
        """
        held: dict[MessageQueue, None] = {}
        locks = self._groups.setdefault(group, {})
        for queue in queues:
            lock = locks.get(queue)
            if lock is None:
                if self._count >= self._locks_max:
                    # Only at the limit, as this looks at all locks. It may have removed the group's
                    # table.
                    at_once(self.remove_expired(now_s=now_s))
                    locks = self._groups.setdefault(group, locks)
                    if self._count >= self._locks_max:
                        logger.warning(
                            "%(queue)s is not locked, so it is not consumed: %(limit)d locks "
                            "are held, which is the limit",
                            {"queue": queue, "limit": self._count},
                        )
                        continue
                locks[queue] = _Lock(client_id, now_s)
                self._count += 1
            elif lock.client_id == client_id:
                lock.renewed_s = now_s
            elif now_s - lock.renewed_s > self._expired_s:
                logger.warning(
                    "group %(group)s: the lock of %(client_id)s on %(queue)s expired, "
                    "%(new_client_id)s has it now",
                    {
                        "group": group,
                        "client_id": lock.client_id,
                        "queue": queue,
                        "new_client_id": client_id,
                    },
                )
                lock.client_id = client_id
                lock.renewed_s = now_s
            else:
                continue
            held[queue] = None
        if not locks:
            self._groups.pop(group, None)
        return list(held)

    def unlock_batch(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> None:
        """Free those of the queues that a client holds; locks of other clients stay."""
        locks = self._groups.get(group)
        if locks is None:
            return
        for queue in queues:
            lock = locks.get(queue)
            if lock is not None and lock.client_id == client_id:
                del locks[queue]
                self._count -= 1
        if not locks:
            del self._groups[group]

    def remove_expired(self, *, now_s: float) -> Steps[int]:
        """Steps that drop the locks that were not renewed in time.

        Args:
          now_s: monotonic seconds.
        Returns: steps that return the number of dropped locks.
        """
        dropped = looked = 0
        for group, locks in list(self._groups.items()):
            for queue, lock in list(locks.items()):
                if now_s - lock.renewed_s > self._expired_s and locks.get(queue) is lock:
                    del locks[queue]
                    self._count -= 1
                    dropped += 1
                looked += 1
                if looked >= STEP_ITEMS:
                    yield
                    looked = 0
            if not locks and self._groups.get(group) is locks:
                del self._groups[group]
        return dropped

    def is_all_expired(self, group: str, *, now_s: float) -> bool:
        """Whether no client holds a lock of a group. `now_s`: monotonic seconds."""
        locks = self._groups.get(group, {})
        return all(now_s - lock.renewed_s > self._expired_s for lock in locks.values())
