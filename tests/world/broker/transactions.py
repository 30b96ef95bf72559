"""Transactions as their producers know them: N8. Pure.

A producer has decided what becomes of a transaction, and says only that, or that it does not know.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ..broken import Broken
from .oracle import LATE_MS, WINDOW_MS, Key, Oracle

PARKED = "TRANS_CHECK_MAX_TIME_TOPIC"
IMMUNE_MS = 6_000
"""transactionTimeOut: no check comes earlier."""
INTERVAL_MS = 30_000
"""transactionCheckInterval."""


class Decision(Enum):
    """What a producer does with a transaction; the values are those of END_TRANSACTION."""

    COMMIT = 8
    ROLLBACK = 12
    UNKNOWN = 0


@dataclass(slots=True)
class Transaction:
    """One transaction.

    Attributes:
      key: the message that a commit makes visible.
      delay_ms: how long after the commit it is due.
      half: fields that name the half message in END_TRANSACTION.
      stored_ms: when its sending was answered; -1: not, or that answer is not worth anything.
      ended_ms: when its end was answered; -1 as above.
      end_sent: an end may have been noted without an answer.
      in_flight: ends that are not answered yet.
      times: checks, as the last one said.
      asked_ms: when that came; -1: none.
      forward_ms: `Oracle.forward_ms` when it was stored, or when the last check came.
      lost_checks: checks that crashes may have lost since: each crash at most one.
    """

    key: Key
    queue_id: int
    decision: Decision
    delay_ms: int
    half: dict[str, str]
    stored_ms: int = -1
    ended_ms: int = -1
    end_sent: bool = False
    in_flight: int = 0
    times: int = 0
    asked_ms: int = -1
    forward_ms: int = 0
    lost_checks: int = 0


class Transactions:
    """All transactions.

    Args:
      oracle: of all messages.
      check_max: transactionCheckMax.
    """

    def __init__(self, oracle: Oracle, check_max: int) -> None:
        self._oracle = oracle
        self._check_max = check_max
        self.all: dict[int, Transaction] = {}
        self._connected_since_ms: int | None = None

    def producer_there(self, there: bool, now_ms: int) -> None:
        """Whether a producer can be asked."""
        if not there:
            self._connected_since_ms = None
        elif self._connected_since_ms is None:
            self._connected_since_ms = now_ms

    def sent(self, transaction: Transaction) -> None:
        """A half message is on its way."""
        self.all[transaction.key.number] = transaction

    def stored(self, number: int, half: dict[str, str], now_ms: int) -> None:
        """The half message is stored."""
        self.all[number].half = half
        self.all[number].stored_ms = now_ms
        self.all[number].forward_ms = self._oracle.forward_ms

    def ending(self, number: int, decision: Decision, now_ms: int) -> None:
        """The producer says what becomes of it."""
        transaction = self.all[number]
        assert decision in (transaction.decision, Decision.UNKNOWN)
        if decision is Decision.UNKNOWN:
            return
        transaction.in_flight += 1
        if decision is Decision.COMMIT and not transaction.end_sent:
            due_ms = now_ms + transaction.delay_ms
            self._oracle.ask(
                transaction.key, transaction.queue_id, now_ms=now_ms, not_before_ms=due_ms
            )
        transaction.end_sent = True

    def ended(self, number: int, now_ms: int) -> None:
        """The broker says that it is through."""
        transaction = self.all[number]
        if transaction.ended_ms >= 0:
            raise Broken("N8", f"{transaction} ended twice")
        transaction.in_flight -= 1
        transaction.ended_ms = now_ms
        if transaction.decision is Decision.COMMIT:
            due_ms = now_ms + transaction.delay_ms
            self._oracle.promise(transaction.key, now_ms=now_ms, due_ms=due_ms)

    def not_ended(self, number: int) -> None:
        """The broker refuses an end. So it must not unless it is through, or was until a crash."""
        transaction = self.all[number]
        transaction.in_flight -= 1
        may_be_through = transaction.ended_ms >= 0 or transaction.in_flight > 0
        if not may_be_through and not self._oracle.crashes and not self._is_parked(number):
            raise Broken("N8", f"the end of {transaction} was refused")

    def asked(self, number: int, times: int, now_ms: int) -> None:
        """A check came."""
        transaction = self.all.get(number)
        if transaction is None:
            raise Broken("N8", f"a check of m{number}, which is no transaction")
        last_ms = transaction.asked_ms
        if 0 <= transaction.ended_ms < now_ms:
            raise Broken("N8", f"a check of {transaction}, which is through")
        # A start reckons the age of half messages by the wall clock, which nothing else follows.
        older_ms = max(self._oracle.forward_at_start_ms - transaction.forward_ms, 0)
        if transaction.stored_ms >= 0 and now_ms < transaction.stored_ms + IMMUNE_MS - older_ms:
            raise Broken("N8", f"a check of {transaction} comes too early, now {now_ms}")
        if last_ms >= 0 and now_ms < last_ms + IMMUNE_MS - older_ms:
            raise Broken("N8", f"a check of {transaction} comes too soon again, now {now_ms}")
        if times > self._check_max:
            raise Broken("N8", f"a check of {transaction} for the {times}. time")
        counted = not self._oracle.crashes
        if (times != transaction.times + 1) if counted else (times <= transaction.times):
            raise Broken("N8", f"check {times} of {transaction}")
        transaction.times, transaction.asked_ms, transaction.lost_checks = times, now_ms, 0
        transaction.forward_ms = self._oracle.forward_ms
        if times == self._check_max:
            key = Key(PARKED, number)
            self._oracle.ask(key, 0, now_ms=now_ms, not_before_ms=now_ms + IMMUNE_MS)

    def _is_parked(self, number: int) -> bool:
        return self._oracle.is_there(Key(PARKED, number))

    def _waits(self, transaction: Transaction) -> bool:
        """Whether it is known to be open."""
        return (
            transaction.stored_ms >= 0
            and not transaction.end_sent
            and not self._is_parked(transaction.key.number)
        )

    def _due_ms(self, transaction: Transaction) -> int:
        """When the next check, or the parking, is due."""
        last_ms = transaction.asked_ms
        return last_ms + INTERVAL_MS if last_ms >= 0 else transaction.stored_ms + IMMUNE_MS

    def check(self, now_ms: int) -> None:
        """Whether checks and parkings come in time."""
        for number, transaction in self.all.items():
            if not self._waits(transaction):
                if self._is_parked(number) and transaction.ended_ms >= 0:
                    self._check_parked_and_ended(transaction)
                continue
            due_ms = max(self._due_ms(transaction), self._oracle.up_since_ms)
            if transaction.times < self._check_max:
                if self._connected_since_ms is None:
                    continue
                # Without a producer a check is put off by an interval.
                due_ms = max(due_ms, self._connected_since_ms + INTERVAL_MS)
            if self._oracle.crashes or self._oracle.back_ms:  # a start plans anew
                due_ms = max(due_ms, self._oracle.up_since_ms + INTERVAL_MS)
            if due_ms + LATE_MS < now_ms:
                raise Broken("N8", f"{transaction} is not asked about or parked, now {now_ms}")

    def _check_parked_and_ended(self, transaction: Transaction) -> None:
        if not self._oracle.crashes:
            raise Broken("N8", f"{transaction} ended, and is parked")

    def next_moment(self, now_ms: int) -> int | None:
        """The next time at which a check is due or late."""
        moments = [
            moment
            for transaction in self.all.values()
            if self._waits(transaction) or transaction.ended_ms < 0 <= transaction.stored_ms
            for moment in (
                self._due_ms(transaction),
                self._due_ms(transaction) + LATE_MS + 1,
                self._due_ms(transaction) + INTERVAL_MS,
            )
            if moment > now_ms
        ]
        return min(moments, default=None)

    def check_all_through(self) -> None:
        """At the very end, when every check was answered: nothing is open, nothing is lost."""
        for number, transaction in self.all.items():
            visible = self._oracle.is_there(transaction.key)
            if transaction.decision is not Decision.COMMIT and visible:
                raise Broken("N8", f"{transaction} is visible")
            if transaction.stored_ms < 0:
                continue
            if transaction.decision is Decision.COMMIT:
                if not visible and not self._is_parked(number):
                    raise Broken("N8", f"{transaction} is neither visible nor parked")
            elif transaction.decision is Decision.UNKNOWN and not self._is_parked(number):
                raise Broken("N8", f"{transaction} was not parked after its checks")

    # ---- crashes -------------------------------------------------------------------------

    def crashed(self, crash_ms: int) -> None:
        """The broker died: the request of one more check may be lost, which it has counted."""
        for transaction in self.all.values():
            transaction.lost_checks += 1
            if transaction.times + transaction.lost_checks == self._check_max:
                key = Key(PARKED, transaction.key.number)
                self._oracle.ask(key, 0, now_ms=crash_ms, not_before_ms=crash_ms + IMMUNE_MS)

    def power_was_cut(self, cut_ms: int) -> None:
        """Under ASYNC_FLUSH: what the last ten seconds said is forgotten."""
        young_ms = cut_ms - WINDOW_MS
        for transaction in self.all.values():
            if transaction.stored_ms > young_ms:
                transaction.stored_ms = -1
            if transaction.ended_ms > young_ms:
                transaction.ended_ms = -1
            if transaction.asked_ms > young_ms:
                transaction.times, transaction.asked_ms = 0, -1
