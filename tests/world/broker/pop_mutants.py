"""Brokers that break a promise to consumers that pop, each by one change; see `mutants.py`."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from trocket.broker.pop import ack_message
from trocket.broker.pop.acks import Acks
from trocket.broker.pop.buffer import Buffered, OrderKey, PopBuffer, PopOrder
from trocket.broker.pop.buffer_service import PopBufferService
from trocket.broker.pop.check_point import CheckPoint
from trocket.broker.pop.hold import PopHold
from trocket.broker.pop.order import OrderedPops
from trocket.broker.pop.order_info import OrderInfo
from trocket.broker.pop.order_info_manager import ConsumerOrderInfoManager
from trocket.broker.pop.pop_message import PopMessageProcessor
from trocket.broker.pop.redelivery import Redelivery
from trocket.broker.pop.revive_queue import ReviveQueue, WaitingPoint
from trocket.broker.pop.revive_service import ReviveService
from trocket.broker.tables.consumer_offset_manager import ConsumerOffsetManager
from trocket.common.steps import Steps

from ..breaks import answered_before_fsync
from ..mutant import Patch, nothing
from .mutants import mutant, offsets_saved_before_what_was_sent_back
from .pop_programs import Ack, AckInOrder, Change, ChangeInOrder, Pop, PopInOrder
from .programs import Die, Restart, Send, Wait

SENT = Send(0, 0, ["a", "b", "Aa"], "together")
KILLED = Die(0, None)


def _pop(
    count_max: int = 32, invisible_ms: int = 15_000, poll_s: int = 0, *, lost: bool = False
) -> Pop:
    return Pop(0, -1, count_max, invisible_ms, poll_s, lost)


def _pop_in_order(
    member: int = 0,
    count_max: int = 32,
    invisible_ms: int = 15_000,
    poll_s: int = 0,
    *,
    again: bool = False,
    lost: bool = False,
) -> PopInOrder:
    return PopInOrder(member, 0, count_max, invisible_ms, poll_s, again, lost)


# ---- the buffer ---------------------------------------------------------------------------


def committed_before_the_check_point_is_stored(patch: Patch) -> None:
    """The committed offset passes what is popped at once."""
    add = PopBuffer.add

    def broken(
        self: PopBuffer, order: PopOrder, check_point: CheckPoint, next_offset: int, queue_id: int
    ) -> Buffered | None:
        entry = add(self, order, check_point, next_offset, queue_id)
        self._commit(order, next_offset)
        return entry

    patch.setattr(PopBuffer, "add", broken)


def committed_out_of_order(patch: Patch) -> None:
    """A check point that is done commits, whatever is before it."""
    done = PopBuffer._done

    def broken(self: PopBuffer, entry: Buffered) -> None:
        if entry.order is not None:
            self._commit(entry.order, entry.next_offset)
        done(self, entry)

    patch.setattr(PopBuffer, "_done", broken)


def never_committed(patch: Patch) -> None:
    """Every crash takes everything back."""
    patch.setattr(PopBuffer, "_commit", nothing)


def committed_before_fsync(patch: Patch) -> None:
    """Offsets are saved with check points that are not on the device."""
    offsets_saved_before_what_was_sent_back(patch)
    init = PopBuffer.__init__

    def broken(self: PopBuffer, config: Any, offsets: Any, **more: Any) -> None:
        init(self, config, offsets, **(more | {"flushed": lambda: 1 << 60}))

    patch.setattr(PopBuffer, "__init__", broken)


def an_ack_of_a_pop_dropped(patch: Patch) -> None:
    """The second message of a check point stays as it is."""
    ack = PopBuffer.ack

    def broken(self: PopBuffer, entry: Buffered, bits: int, log_end: int = 0) -> None:
        ack(self, entry, bits & ~2, log_end)

    patch.setattr(PopBuffer, "ack", broken)


def stored_without_acks(patch: Patch) -> None:
    """A check point that has waited is stored, and what is acknowledged of it is not."""

    def broken(self: PopBufferService, entry: Buffered) -> Any:
        return self._puts.put_check_point(entry.check_point, entry.revive_queue_id)

    patch.setattr(PopBufferService, "_put", broken)


def a_stop_forgets_pops(patch: Patch) -> None:
    """A clean stop stores no check points."""
    patch.setattr(PopBufferService, "store_all", nothing)


# ---- acknowledgements ---------------------------------------------------------------------


def acks_of_stored_pops_not_stored(patch: Patch) -> None:
    """An acknowledgement of a stored check point is answered, and nothing else."""
    patch.setattr(Acks, "ack_in_store", nothing)


def a_batch_acks_its_first(patch: Patch) -> None:
    """Of a batch only the first message is acknowledged."""
    bits_of = ack_message.bits_of
    patch.setattr(ack_message, "bits_of", lambda bit_set: bits_of(bit_set)[:1])


def acks_answered_before_fsync(patch: Patch) -> None:
    """Under SYNC_FLUSH acknowledgements do not wait."""
    answered_before_fsync(patch)


def changed_and_not_acked(patch: Patch) -> None:
    """A message with a new invisible time comes after the old one, too."""

    def broken(self: Acks, check_point: CheckPoint, receipt: Any) -> Any:
        return self._puts.put_check_point(check_point, receipt.revive_queue_id)

    patch.setattr(Acks, "renew", broken)


def changed_and_forgotten(patch: Patch) -> None:
    """A message with a new invisible time does not come at all."""

    def broken(self: Acks, check_point: CheckPoint, receipt: Any) -> Any:
        queue = OrderKey(check_point.topic, check_point.group, check_point.queue_id)
        return self.ack_in_store(queue, receipt, (check_point.start_offset,))

    patch.setattr(Acks, "renew", broken)


# ---- what comes again ---------------------------------------------------------------------


def revived_too_early(patch: Patch) -> None:
    """A check point is decided when its record comes, a second before its time."""

    def broken(self: ReviveQueue) -> WaitingPoint | None:
        if self.next_due_ms() == math.inf:
            return None
        return self._due.pop(0)[2]

    patch.setattr(ReviveQueue, "take_due", broken)


def acks_not_read(patch: Patch) -> None:
    """Messages are revived, acknowledged or not."""
    patch.setattr(ReviveQueue, "_take_ack", nothing)


def revived_a_neighbour(patch: Patch) -> None:
    """The message after the one that was not acknowledged comes again."""
    read = Redelivery._messages
    patch.setattr(
        Redelivery,
        "_messages",
        lambda self, check_point, offset: read(self, check_point, offset + 1),
    )


def tries_not_counted(patch: Patch) -> None:
    """A message that comes again looks as if it came for the first time."""
    put_copy = Redelivery._put_copy

    def broken(
        self: Redelivery, part: Any, check_point: CheckPoint, message: Any, retry: Any
    ) -> None:
        put_copy(self, part, replace(check_point, suspend=True), message, retry)

    patch.setattr(Redelivery, "_put_copy", broken)


def revival_noted_too_far(patch: Patch) -> None:
    """A crash forgets check points that are read and not decided."""
    patch.setattr(ReviveQueue, "committed", property(lambda self: self.next_offset - 1))


def revival_noted_before_fsync(patch: Patch) -> None:
    """A power cut takes copies whose check points are passed."""
    committed_before_fsync(patch)
    patch.setattr(ReviveService, "_note_progress", ReviveService.note_progress)


def returned_and_never_read(patch: Patch) -> None:
    """Pops leave the retry topic alone."""
    patch.setattr(PopMessageProcessor, "_pop_retries", nothing)


def held_pops_forgotten(patch: Patch) -> None:
    """A new message wakes no held pop."""
    patch.setattr(PopHold, "arrived", nothing)


# ---- in order -----------------------------------------------------------------------------


def in_order_committed_behind_the_pop(patch: Patch) -> None:
    """The committed offset passes what is popped in order, as it does otherwise."""
    popped = OrderedPops.popped

    def broken(self: OrderedPops, check_point: CheckPoint, attempt_id: str | None) -> Any:
        counts = popped(self, check_point, attempt_id)
        ck = check_point
        self._offsets.commit_offset(ck.group, ck.topic, ck.queue_id, max(ck.offsets()) + 1)
        return counts

    patch.setattr(OrderedPops, "popped", broken)


def in_order_never_blocked(patch: Patch) -> None:
    """Two members get messages of one queue."""
    patch.setattr(ConsumerOrderInfoManager, "check_block", lambda *_, **__: False)


def attempts_not_known(patch: Patch) -> None:
    """A member that lost an answer waits like all others."""
    blocks = OrderInfo.blocks

    def broken(self: OrderInfo, attempt_id: str | None, invisible_time: int, now_ms: int) -> bool:
        return blocks(self, None, invisible_time, now_ms)

    patch.setattr(OrderInfo, "blocks", broken)


def in_order_not_saved(patch: Patch) -> None:
    """A clean stop does not save which messages in order are popped."""

    def unsaved(self: ConsumerOrderInfoManager) -> Steps[bytes]:
        yield
        return b'{"table":{}}'

    patch.setattr(ConsumerOrderInfoManager, "encode", lambda self: b'{"table":{}}')
    patch.setattr(ConsumerOrderInfoManager, "encode_in_steps", unsaved)


def one_ack_in_order_counts_for_all(patch: Patch) -> None:
    """The first acknowledgement commits behind the last message."""
    patch.setattr(OrderInfo, "next_offset", property(lambda self: self.offsets[-1] + 1))


def in_order_not_changed(patch: Patch) -> None:
    """A new invisible time is answered, and the old one holds."""
    patch.setattr(ConsumerOrderInfoManager, "update_next_visible_time", nothing)


def times_not_counted(patch: Patch) -> None:
    """A message in order looks as if it came for the first time."""
    patch.setattr(OrderInfo, "count_from", nothing)


def free_queues_wake_nobody(patch: Patch) -> None:
    """A pop in order is held, although its queue is free."""
    patch.setattr(OrderedPops, "_wake_one", nothing)


def offsets_lost_at_a_start(patch: Patch) -> None:
    """A start forgets how far groups are, and begins at the first message."""
    patch.setattr(ConsumerOffsetManager, "query_offset", lambda *_: -1)
    patch.setattr(ConsumerOffsetManager, "correct", lambda self, _: self.offset_table.clear())


MUTANTS = [
    mutant(
        committed_before_the_check_point_is_stored,
        [SENT, _pop(), Wait(5_500), KILLED, Wait(30_000)],
        "P1",
    ),
    mutant(
        committed_out_of_order,
        [SENT, _pop(1, 60_000), _pop(1, 60_000), Ack(0, 1, 1, False), Wait(5_500), KILLED],
        "P1",
    ),
    mutant(never_committed, [SENT, _pop(), Ack(0, 0, 0, False), Wait(25_000), KILLED, _pop()],
            "P2"),
    mutant(
        committed_before_fsync,
        # The offsets are saved, and the log is not synced yet, at one of these writes.
        [step for writes in (5, *range(1, 8)) for step in (
            SENT, Wait(4_999), _pop(lost=True), Die(writes, 0), Wait(1))],
        "P1", merges=False,
    ),
    mutant(an_ack_of_a_pop_dropped, [SENT, _pop(), Ack(0, 0, 0, False), Wait(25_000)], "P2"),
    mutant(stored_without_acks, [SENT, _pop(), Ack(0, 0, 2, False), Wait(25_000)], "P2"),
    mutant(a_stop_forgets_pops, [SENT, _pop(), Restart(), _pop()], "P2"),
    mutant(
        acks_of_stored_pops_not_stored,
        [SENT, _pop(), Ack(0, 0, 0, False), Wait(25_000)],
        "P2", merges=False,
    ),
    mutant(a_batch_acks_its_first, [SENT, _pop(), Ack(0, 0, 0, True), Wait(25_000)], "P2"),
    mutant(
        acks_answered_before_fsync,
        [SENT, _pop(), Wait(11_000), Die(1, 0), Ack(0, 0, 0, False), Wait(25_000)],
        "P2", sync=True, merges=False,
    ),
    mutant(
        changed_and_not_acked, [SENT, _pop(), Change(0, 0, 60_000, False), Wait(25_000)], "P2"
    ),
    mutant(
        changed_and_forgotten, [SENT, _pop(), Change(0, 0, 30_000, False), Wait(61_000)], "P1",
        merges=False,
    ),
    mutant(revived_too_early, [SENT, _pop(), Wait(25_000)], "P2"),
    mutant(acks_not_read, [SENT, _pop(), Ack(0, 0, 2, False), Wait(25_000)], "P2"),
    mutant(revived_a_neighbour, [SENT, _pop(1), Wait(25_000)], "P2"),
    mutant(tries_not_counted, [SENT, _pop(), Wait(25_000)], "P2"),
    mutant(revival_noted_too_far, [SENT, _pop(), Wait(15_500), KILLED, Wait(25_000)], "P1",
            merges=False),
    mutant(
        revival_noted_before_fsync,
        [step for writes in (1, 10, 10, 11) for step in (
            SENT, Wait(1_000), _pop(32, 3_000), Wait(3_999), Die(writes, 0), Wait(1))],
        "P1", merges=False,
    ),
    mutant(returned_and_never_read, [SENT, _pop(), Wait(25_000), _pop()], "P1"),
    mutant(held_pops_forgotten, [SENT, _pop(), _pop(poll_s=15), SENT], "P4"),
    mutant(
        in_order_committed_behind_the_pop,
        [SENT, _pop_in_order(count_max=1), Wait(25_000), _pop_in_order()],
        "P3",
    ),
    mutant(in_order_never_blocked, [SENT, _pop_in_order(), _pop_in_order(1)], "P3"),
    mutant(attempts_not_known, [SENT, _pop_in_order(lost=True), _pop_in_order(again=True)], "P3"),
    mutant(in_order_not_saved, [SENT, _pop_in_order(), Restart(), _pop_in_order(1)], "P3"),
    mutant(
        one_ack_in_order_counts_for_all,
        [SENT, _pop_in_order(), AckInOrder(0, 0, 1), Wait(25_000), SENT, _pop_in_order()],
        "P3",
    ),
    mutant(
        in_order_not_changed,
        [SENT, _pop_in_order(invisible_ms=4_000), ChangeInOrder(0, 0, 0, 60_000), Wait(5_000),
         _pop_in_order(1)],
        "P3",
    ),
    mutant(times_not_counted, [SENT, _pop_in_order(), Wait(25_000), _pop_in_order()], "P3"),
    mutant(
        free_queues_wake_nobody,
        [SENT, _pop_in_order(invisible_ms=4_000), _pop_in_order(1, poll_s=15), Wait(8_000)],
        "P4",
    ),
    mutant(offsets_lost_at_a_start, [SENT, _pop(), Restart(), _pop()], "P2"),
]  # fmt: skip
