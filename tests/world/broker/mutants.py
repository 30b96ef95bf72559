"""Brokers that break a promise, each by one change. The oracle must find every one of them.

Each entry says what is broken, and a short way in which that shows. The programs are as short as
they are so that this is quick; `test_programs.py` plays any program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from trocket.broker.clients.rebalance_lock_manager import RebalanceLockManager
from trocket.broker.delivering.recall_message import RecallMessageProcessor
from trocket.broker.delivering.schedule_message_service import ScheduleMessageService
from trocket.broker.delivering.timer_message_service import TimerMessageService
from trocket.broker.pulling.pull_checks import PullChecks
from trocket.broker.puts.send_turn import SendTurn
from trocket.broker.puts.turn_puts import TurnPuts
from trocket.broker.sending import send_back
from trocket.broker.sending.send_back import SendBackProcessor
from trocket.broker.tables.consumer_offset_manager import ConsumerOffsetManager
from trocket.broker.tables.delay_offset_manager import DelayOffsetManager
from trocket.broker.tables.subscription_group_manager import SubscriptionGroupManager
from trocket.broker.tables.table_saver import TableSaver
from trocket.broker.transactions.end_transaction import EndTransactionProcessor
from trocket.broker.transactions.open_transactions import OpenTransactions
from trocket.broker.transactions.transaction_service import TransactionService
from trocket.common.clock import WallTimeMs
from trocket.common.steps import Steps
from trocket.store.message_store import MessageStore
from trocket.store.writing.log_writer import LogWriter

from ..breaks import answered_before_fsync
from ..broken import Broken
from ..mutant import Mutant, Patch, nothing
from .game import play
from .programs import (
    AnswerChecks,
    Consume,
    Die,
    End,
    HangUp,
    Leave,
    Poll,
    Prepare,
    Program,
    Recall,
    Restart,
    Send,
    SendLater,
    SendTimer,
    SetClock,
    Unlock,
    Wait,
)
from .transactions import Decision

HOUR_MS = 3_600_000
COMMIT, ROLLBACK, UNKNOWN = Decision.COMMIT, Decision.ROLLBACK, Decision.UNKNOWN


SEEDS = range(10)
"""In which order two things of one moment happen depends on the seed."""


class Programs(NamedTuple):
    """A program, played with some seeds.

    Attributes:
      sync: under SYNC_FLUSH.
      merges: enablePopBufferMerge.
    """

    steps: list[Any]
    sync: bool = False
    merges: bool = True

    @property
    def scope(self) -> str:
        return "broker"

    def sound(self) -> str:
        return self._play(SEEDS[0])

    def problems(self) -> Iterator[str]:
        yield from map(self._play, SEEDS)

    def _play(self, seed: int) -> str:
        try:
            play(Program(self.sync, 2, seed, self.steps, merges=self.merges))
        except Broken as broken:
            return str(broken)
        return ""


def mutant(
    apply: Callable[[Patch], None],
    steps: list[Any],
    promise: str,
    *,
    sync: bool = False,
    merges: bool = True,
) -> Mutant:
    """A mutant that a program finds."""
    return Mutant(apply, Programs(steps, sync, merges), (promise,))


def answered_before_the_commit(patch: Patch) -> None:
    """A turn's sends are answered, and written with those of the next turn."""
    end_turn, commit = SendTurn.end_turn, LogWriter.commit
    put_off: list[bool] = []

    def broken(self: SendTurn) -> None:
        put_off.append(True)
        end_turn(self)
        put_off.clear()

    def committed(self: LogWriter) -> Any:
        return () if put_off else commit(self)

    patch.setattr(SendTurn, "end_turn", broken)
    patch.setattr(LogWriter, "commit", committed)


def delayed_dropped(patch: Patch) -> None:
    """Every third delayed message is passed over."""
    deliver = ScheduleMessageService._deliver

    def broken(
        self: ScheduleMessageService, level: int, queue_offset: int, now_ms: WallTimeMs
    ) -> int:
        return 1 if queue_offset % 3 == 2 else deliver(self, level, queue_offset, now_ms)

    patch.setattr(ScheduleMessageService, "_deliver", broken)
    patch.setattr(ScheduleMessageService, "_due_count", lambda *arguments: 1)


def delayed_too_early(patch: Patch) -> None:
    """What is due in less than 50 ms is delivered."""
    due_ms = ScheduleMessageService._due_ms

    def broken(self: ScheduleMessageService, level: int, queue_offset: int) -> int | None:
        due = due_ms(self, level, queue_offset)
        return None if due is None else due - 50

    patch.setattr(ScheduleMessageService, "_due_ms", broken)


def delay_from_store_time(patch: Patch) -> None:
    """What is due is reckoned from the store time, which is ahead once the clock was set back."""
    patch.setattr(MessageStore, "wall_time_ms", property(lambda self: self.store_time_ms))


def wall_clock_in_the_heap(patch: Patch) -> None:
    """Checks of transactions are due by the wall clock, whose jumps they follow."""
    patch.setattr(TransactionService, "_now_ms", lambda self: self._clock.wall_ms())


def due_at_once_when_the_clock_was_set_back(patch: Patch) -> None:
    """A message that seems to be due later than its delay is due now."""
    due_ms = ScheduleMessageService._due_ms

    def broken(self: ScheduleMessageService, level: int, queue_offset: int) -> int | None:
        due = due_ms(self, level, queue_offset)
        return self._clock.wall_ms() if level in self._ahead_ms and due is not None else due

    patch.setattr(ScheduleMessageService, "_due_ms", broken)


def delay_offsets_not_saved(patch: Patch) -> None:
    """A clean stop forgets how far delivery was."""

    def unsaved(self: DelayOffsetManager) -> bytes:
        return b'{"offsetTable":{}}'

    patch.setattr(DelayOffsetManager, "encode", unsaved)


def delay_offsets_saved_too_far(patch: Patch) -> None:
    """What is noted is one more than what was delivered."""
    update = DelayOffsetManager.update_offset
    patch.setattr(
        DelayOffsetManager,
        "update_offset",
        lambda self, level, offset: update(self, level, offset + 1),
    )


def timer_dropped(patch: Patch) -> None:
    """A start does not read again what waits."""
    load = TimerMessageService.load

    def broken(self: TimerMessageService, **how: bool) -> None:
        load(self, **how)
        self._read_offset = self._store.max_offset("rmq_sys_wheel_timer", 0)

    patch.setattr(TimerMessageService, "load", broken)


def timer_taken_back_in_vain(patch: Patch) -> None:
    """A recall is answered with success, and nothing else."""

    def broken(self: RecallMessageProcessor, request: Any, channel: Any) -> None:
        self._puts.answer_with_turn(request, channel)

    patch.setattr(RecallMessageProcessor, "recall", broken)


def offset_skipped_on_send_back(patch: Patch) -> None:
    """After a send-back the group is one message further than it says."""
    take_back, commit = SendBackProcessor.send_back, ConsumerOffsetManager.commit_offset
    skipped: list[int] = []

    def broken(self: SendBackProcessor, request: Any, channel: Any) -> Any:
        skipped[:] = [1]
        return take_back(self, request, channel)

    def noted(
        self: ConsumerOffsetManager, group: str, topic: str, queue_id: int, offset: int
    ) -> None:
        commit(self, group, topic, queue_id, offset + sum(skipped))

    patch.setattr(SendBackProcessor, "send_back", broken)
    patch.setattr(ConsumerOffsetManager, "commit_offset", noted)


def send_back_forgotten(patch: Patch) -> None:
    """What is sent back for the second time is answered, and not stored."""

    def broken(self: Any, request: Any, channel: Any, message: Any, **more: Any) -> None:
        if message.reconsume_times < 2:
            put(self, request, channel, message, **more)
        else:
            self.answer_with_turn(request, channel)

    put = TurnPuts.put_and_answer
    patch.setattr(TurnPuts, "put_and_answer", broken)


def dead_too_soon(patch: Patch) -> None:
    """One try less than the consumer asked for."""
    decide = send_back.decide_retry
    patch.setattr(
        send_back, "decide_retry", lambda times, level, limit: decide(times, level, limit - 1)
    )


def send_back_answered_before_fsync(patch: Patch) -> None:
    """As Apache does it."""
    put_and_answer = TurnPuts.put_and_answer

    def broken(self: Any, *arguments: Any, waits: bool | None = None) -> None:
        put_and_answer(self, *arguments, waits=False)

    patch.setattr(TurnPuts, "put_and_answer", broken)


def rolled_back_delivered(patch: Patch) -> None:
    """A rollback commits."""
    end = EndTransactionProcessor.end_transaction

    def broken(self: EndTransactionProcessor, request: Any, channel: Any) -> None:
        request.ext_fields = {**request.ext_fields, "commitOrRollback": "8"}
        end(self, request, channel)

    patch.setattr(EndTransactionProcessor, "end_transaction", broken)


def committed_twice(patch: Patch) -> None:
    """An end that comes again is taken again."""
    patch.setattr(TransactionService, "can_end", lambda self, offset: offset)


def ends_not_noted(patch: Patch) -> None:
    """No op message is written: after a crash what is through is open again."""
    patch.setattr(TransactionService, "before_commit", nothing)


def never_parked(patch: Patch) -> None:
    """Producers are asked for ever."""
    patch.setattr("trocket.broker.transactions.transaction_service.check_times", lambda half: 0)


def open_transaction_dropped(patch: Patch) -> None:
    """What is asked about once is forgotten."""
    patch.setattr(OpenTransactions, "renew", lambda self, old, new, due_ms, op_mark: self.end(old))


def asked_before_fsync(patch: Patch) -> None:
    """A producer hears of a copy that a power cut takes back."""

    def broken(self: TransactionService, checks: list[Any]) -> None:
        for check in checks:
            self._ask(check)

    patch.setattr(TransactionService, "_ask_when_flushed", broken)


def offsets_beyond_the_end(patch: Patch) -> None:
    """L15: offsets are saved before the log is synced, and nothing brings them back."""

    patch.setattr(TableSaver, "sync_log", TableSaver.at_once)
    patch.setattr(ConsumerOffsetManager, "correct", nothing)


def offsets_saved_before_what_was_sent_back(patch: Patch) -> None:
    """The same, and what is beyond the end is brought back."""
    offsets_beyond_the_end(patch)
    patch.setattr(ConsumerOffsetManager, "correct", CORRECT)


def offsets_not_saved(patch: Patch) -> None:
    """A clean stop forgets the last commits."""

    def unsaved(self: ConsumerOffsetManager) -> Steps[bytes]:
        yield
        return b'{"offsetTable":{}}'

    patch.setattr(ConsumerOffsetManager, "encode_in_steps", unsaved)


def unlocked_twice(patch: Patch) -> None:
    """Whoever says so frees a queue."""
    unlock = RebalanceLockManager.unlock_batch

    def broken(self: RebalanceLockManager, group: str, queues: Any, client_id: str) -> None:
        holders = {lock.client_id for lock in self._groups.get(group, {}).values()}
        for holder in holders:
            unlock(self, group, queues, holder)

    patch.setattr(RebalanceLockManager, "unlock_batch", broken)


def locked_for_ever(patch: Patch) -> None:
    """A lock never expires."""
    patch.setattr("trocket.broker.clients.rebalance_lock_manager.LOCK_EXPIRED_S", 1e9)
    init = RebalanceLockManager.__init__
    patch.setattr(RebalanceLockManager, "__init__", lambda self: init(self, expired_s=1e9))


def filter_loses(patch: Patch) -> None:
    """Of tags with the same hash code only one is let through."""
    from trocket.common.java_hash import java_hash_code

    code = java_hash_code("Aa")
    check = PullChecks.selector

    def broken(self: PullChecks, pulls: Any, queue_id: int, channel: Any) -> Any:
        selector = check(self, pulls, queue_id, channel)
        return selector - {code} if isinstance(selector, frozenset) else selector

    patch.setattr(PullChecks, "selector", broken)


def held_pulls_forgotten(patch: Patch) -> None:
    """Nobody tells held pulls of new messages."""
    from trocket.broker.waiting.pull_request_hold import PullRequestHoldService

    patch.setattr(PullRequestHoldService, "notify_messages", nothing)


def group_without_retries(patch: Patch) -> None:
    """Group settings say that nothing is tried again."""
    find = SubscriptionGroupManager.find

    def broken(self: SubscriptionGroupManager, *given: Any, **named: Any) -> Any:
        found = find(self, *given, **named)
        if found is not None:
            found.retry_queue_nums = 0
        return found

    patch.setattr(SubscriptionGroupManager, "find", broken)


CORRECT = ConsumerOffsetManager.correct
SENDING = Send(0, 0, ["a"], "together")
CONSUMING = [Send(0, 0, ["a", "b", "Aa"], "together"), Poll(0, 0, 32)]

MUTANTS = [
    mutant(
        answered_before_the_commit, [Send(0, 0, ["a"], "together"), Die(0, None)], "N1",
    ),
    mutant(answered_before_fsync, [SENDING, Die(1, 0), SENDING], "N1", sync=True),
    mutant(delayed_dropped, [SendLater(0, 0, "a", 1)] * 3, "N1/N9"),
    mutant(delayed_too_early, [SendLater(0, 0, "a", 1)], "N9"),
    mutant(
        delay_from_store_time,
        [SENDING, SetClock(-HOUR_MS), SendTimer(0, 0, "a", "TIMER_DELIVER_MS", 61_000)],
        "N9",
    ),
    mutant(
        wall_clock_in_the_heap,
        [Prepare(0, 0, "a", UNKNOWN, 0, "nothing"), SetClock(HOUR_MS), Wait(1_000)],
        "N8",
    ),
    mutant(
        due_at_once_when_the_clock_was_set_back,
        [SetClock(HOUR_MS), SendLater(0, 0, "a", 3), SetClock(-HOUR_MS), Wait(1_000)],
        "N9",
    ),
    mutant(delay_offsets_not_saved, [SendLater(0, 0, "a", 1), Wait(2_000), Restart()], "N4"),
    mutant(
        delay_offsets_saved_too_far,
        [SendLater(0, 0, "a", 1), Wait(2_000), SendLater(0, 0, "a", 1), SendLater(0, 0, "a", 1)],
        "N1/N9",
    ),
    mutant(
        timer_dropped, [SendTimer(0, 0, "a", "TIMER_DELAY_SEC", 11_000), Restart()], "N1/N9"
    ),
    mutant(
        timer_taken_back_in_vain,
        [SendTimer(0, 0, "a", "TIMER_DELAY_MS", 11_000), Recall(0, 0)],
        "N9",
    ),
    mutant(
        offset_skipped_on_send_back,
        [*CONSUMING, Consume(0, 1, 0), Leave(0, False), Poll(1, 0, 3)],
        "N6",
    ),
    mutant(
        send_back_forgotten,
        [*CONSUMING, Consume(0, 1, 1), Wait(1_000), Poll(0, 0, 32), Consume(0, 1, 1)],
        "N1/N9",
    ),
    mutant(
        dead_too_soon,
        [*CONSUMING, Consume(0, 1, 1), Wait(1_000), Poll(0, 0, 32), Consume(0, 1, 1)],
        "N4",
    ),
    mutant(
        send_back_answered_before_fsync, [*CONSUMING, Die(1, 0), Consume(0, 1, 1)], "N1", sync=True
    ),
    mutant(group_without_retries, [*CONSUMING, Consume(0, 1, 1)], "N1/N9"),
    mutant(rolled_back_delivered, [Prepare(0, 0, "a", ROLLBACK, 0, "decision")], "N4"),
    mutant(
        committed_twice, [Prepare(0, 0, "a", COMMIT, 0, "nothing"), End(0, 0, True)], "N8"
    ),
    mutant(
        ends_not_noted,
        [Prepare(0, 0, "a", COMMIT, 0, "decision"), Die(0, None), HangUp(1), Wait(30_000)],
        "N8",
    ),
    mutant(never_parked, [Prepare(0, 0, "a", UNKNOWN, 0, "nothing"), Wait(600_000)], "N8"),
    mutant(
        open_transaction_dropped, [Prepare(0, 0, "a", UNKNOWN, 0, "unknown"), Wait(61_000)], "N8"
    ),
    mutant(
        asked_before_fsync,
        [Prepare(0, 0, "a", UNKNOWN, 0, "nothing"), Wait(5_999), Die(1, 0), Wait(1),
         AnswerChecks(0, True)],
        "N8", sync=True,
    ),
    mutant(
        offsets_beyond_the_end,
        # The offsets are saved, and the log is not synced yet, at one of these writes.
        [step for writes in range(2, 7) for step in (
            Wait(4_999), SENDING, Poll(0, 0, 32), Consume(0, 0, 0), Die(writes, 0), Wait(1),
            Poll(0, 0, 32), Consume(0, 0, 0))],
        "N6",
    ),
    mutant(
        offsets_saved_before_what_was_sent_back,
        [step for writes in (5, *range(2, 6)) for step in (
            SENDING, Wait(4_999), Poll(0, 0, 32), Consume(0, 1, 0), Die(writes, 0), Wait(1))],
        "N6",
    ),
    mutant(offsets_not_saved, [*CONSUMING, Consume(0, 0, 0), Restart(), Poll(0, 0, 1)], "N6"),
    mutant(unlocked_twice, [Poll(4, 0, 1), Unlock(1, 5), Poll(5, 0, 1)], "order"),
    mutant(
        locked_for_ever, [Poll(4, 0, 1), Leave(4, False), Wait(61_000), Poll(5, 0, 1)], "order"
    ),
    mutant(filter_loses, [Send(0, 0, ["Aa", "a"], "together"), Poll(2, 0, 32)], "N6"),
    mutant(
        held_pulls_forgotten,
        [SENDING, Poll(0, 15, 3), Consume(0, 0, 0), Poll(0, 15, 3), SENDING],
        "N6",
    ),
]  # fmt: skip
