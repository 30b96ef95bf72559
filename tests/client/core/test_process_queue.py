"""client/core/process_queue.py against Apache's ProcessQueue, and against a plain dict."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from trocket.client.core import process_queue
from trocket.client.core.process_queue import ProcessQueue

from .apache_tables import table


@dataclass(frozen=True)
class Pulled:
    """As much of a message as the queue looks at."""

    queue_offset: int
    body: bytes = b""


def pulled(*offsets: int) -> list[Pulled]:
    return [Pulled(offset, b"x" * (offset % 3)) for offset in offsets]


def offsets_of(messages) -> list[int]:
    return [message.queue_offset for message in messages]


def perform(queue: ProcessQueue[Pulled], step, known: dict[int, Pulled]):
    """One step of the table: what it gave, in Apache's words."""
    match step["op"]:
        case "put":
            messages = [Pulled(offset, bytes(size)) for offset, size in step["messages"]]
            known.update({message.queue_offset: message for message in messages})
            return queue.put(messages)
        case "remove":
            left = queue.remove(step["offsets"], now_ms=0)
            return -1 if left is None else left
        case "take":
            return offsets_of(queue.take(step["wanted"], now_ms=0))
        case "commit":
            return queue.commit()
        case "rollback":
            queue.rollback()
        case "again":
            queue.make_message_to_consume_again([known[offset] for offset in step["offsets"]])
    return None


@pytest.mark.parametrize("steps", table("process_queues"), ids=lambda steps: steps[0]["op"])
def test_each_step_gives_what_it_gives_with_apache(steps):
    queue: ProcessQueue[Pulled] = ProcessQueue(0)
    known: dict[int, Pulled] = {}
    for number, step in enumerate(steps):
        assert perform(queue, step, known) == step.get("result"), (number, step)
        state = (queue.count, queue.size, queue.span, queue.has_waiting)
        expected = (step["count"], step["size"], step["span"], step["waiting"])
        assert state == expected, (number, step)


def test_the_table_has_every_kind_of_step():
    kinds = {step["op"] for steps in table("process_queues") for step in steps}
    assert kinds == {"put", "remove", "take", "commit", "rollback", "again"}


OFFSETS = st.integers(0, 12)


class AgainstADict(RuleBasedStateMachine):
    """Any order, any duplicates: what the plain way gives."""

    @initialize()
    def begin(self) -> None:
        self.queue: ProcessQueue[Pulled] = ProcessQueue(0)
        self.waiting: dict[int, Pulled] = {}
        self.taken: dict[int, Pulled] = {}
        self.greatest = -1
        self.is_consuming = False

    @rule(offsets=st.lists(OFFSETS, max_size=6), size=st.integers(0, 3))
    def put(self, offsets: list[int], size: int) -> None:
        messages = [Pulled(offset, bytes(size)) for offset in offsets]
        self.waiting.update({message.queue_offset: message for message in messages})
        self.greatest = max([self.greatest, *offsets])
        starts = bool(self.waiting) and not self.is_consuming
        assert self.queue.put(messages) is starts
        self.is_consuming |= starts

    @rule(offsets=st.lists(OFFSETS, max_size=6))
    def remove(self, offsets: list[int]) -> None:
        expected = None
        if self.waiting:
            for offset in offsets:
                self.waiting.pop(offset, None)
            expected = min(self.waiting, default=self.greatest + 1)
        assert self.queue.remove(offsets, now_ms=0) == expected

    @rule(count=st.integers(1, 4))
    def take(self, count: int) -> None:
        first = sorted(self.waiting)[:count]
        messages = [self.waiting.pop(offset) for offset in first]
        self.taken.update(zip(first, messages, strict=True))
        assert self.queue.take(count, now_ms=0) == messages
        if not messages:
            self.is_consuming = False

    @rule()
    def commit(self) -> None:
        assert self.queue.commit() == (max(self.taken) + 1 if self.taken else None)
        self.taken.clear()

    @rule()
    def rollback(self) -> None:
        self.queue.rollback()
        self.waiting |= self.taken
        self.taken.clear()

    @rule(offsets=st.sets(OFFSETS, max_size=3))
    def again(self, offsets: set[int]) -> None:
        messages = [Pulled(offset, b"again") for offset in offsets]
        self.queue.make_message_to_consume_again(messages)
        for message in messages:
            if self.taken.pop(message.queue_offset, None) is not None:
                self.waiting[message.queue_offset] = message

    @rule()
    def clear(self) -> None:
        self.queue.clear()
        self.waiting.clear()
        self.taken.clear()
        self.greatest = -1

    @invariant()
    def same(self) -> None:
        held = [*self.waiting.values(), *self.taken.values()]
        queue = self.queue
        assert queue.count == len(held)
        assert queue.size == sum(len(message.body) for message in held)
        assert queue.has_waiting is bool(self.waiting)
        first, last = min(self.waiting, default=0), max(self.waiting, default=0)
        assert queue.span == last - first
        assert queue.oldest == self.waiting.get(first)
        assert [n for n in range(14) if queue.contains(n)] == sorted(self.waiting)


AgainstADict.TestCase.settings = settings(max_examples=80, stateful_step_count=30)
TestAgainstADict = AgainstADict.TestCase


def test_what_may_be_committed_waits_for_the_slowest():
    queue: ProcessQueue[Pulled] = ProcessQueue(0)
    queue.put(pulled(5, 6, 8))
    assert queue.remove([8, 6], now_ms=1) == 5
    assert queue.remove([5], now_ms=2) == 9
    assert queue.remove([5], now_ms=3) is None
    assert queue.last_consume_ms == 3


def test_a_message_that_ends_late_keeps_no_trail_of_offsets(monkeypatch):
    monkeypatch.setattr(process_queue, "_HOLES_COUNT_MIN", 10)
    queue: ProcessQueue[Pulled] = ProcessQueue(0)
    queue.put(pulled(0))
    for offset in range(1, 500, 2):
        queue.put(pulled(offset, offset + 1))
        assert queue.remove([offset], now_ms=0) == 0
        queue.remove([offset - 1] if offset > 1 else [], now_ms=0)
        assert len(queue._offsets) <= 2 * queue.count + 12


def test_messages_behind_are_counted():
    queue: ProcessQueue[Pulled] = ProcessQueue(0)
    queue.put(pulled(1, 2), max_offset=10)
    assert queue.behind_count == 8
    queue.put(pulled(3), max_offset=3)
    queue.put([], max_offset=99)
    queue.put(pulled(4))
    assert queue.behind_count == 8


def test_orderly_consumption_starts_once_and_again_when_it_found_nothing():
    queue: ProcessQueue[Pulled] = ProcessQueue(0)
    assert queue.put([]) is False
    assert queue.put(pulled(1)) is True
    assert queue.put(pulled(2)) is False
    assert offsets_of(queue.take(5, now_ms=7)) == [1, 2]
    assert queue.last_consume_ms == 7
    assert queue.put(pulled(3)) is False
    assert queue.commit() == 3
    assert offsets_of(queue.take(5, now_ms=8)) == [3]
    assert queue.commit() == 4
    assert queue.take(5, now_ms=9) == []
    assert queue.put(pulled(4)) is True


def test_part_of_what_was_taken_can_wait_again():
    queue: ProcessQueue[Pulled] = ProcessQueue(0)
    messages = pulled(1, 2, 3, 4)
    queue.put(messages)
    queue.take(3, now_ms=0)
    queue.make_message_to_consume_again(messages[1:3])
    assert queue.commit() == 2
    assert offsets_of(queue.take(9, now_ms=0)) == [2, 3, 4]


def test_a_message_that_comes_again_while_it_is_consumed_counts_once():
    queue: ProcessQueue[Pulled] = ProcessQueue(0)
    queue.put([Pulled(5, b"12345")])
    queue.take(1, now_ms=0)
    queue.put([Pulled(5, b"1")])
    assert (queue.count, queue.size) == (2, 6)
    queue.take(1, now_ms=0)
    assert (queue.count, queue.size) == (1, 1)
    assert queue.commit() == 6
    assert (queue.count, queue.size) == (0, 0)


def test_locks_expire():
    queue: ProcessQueue[Pulled] = ProcessQueue(1000)
    assert not queue.is_lock_expired(31_000)
    assert queue.is_lock_expired(31_001)
    queue.set_locked(True, now_ms=5000)
    assert queue.is_locked
    assert not queue.is_lock_expired(35_000)
    queue.set_locked(False, now_ms=9000)
    assert not queue.is_locked
    assert queue.is_lock_expired(35_001)
    assert (queue.is_dropped, queue.try_unlock_times) == (False, 0)
