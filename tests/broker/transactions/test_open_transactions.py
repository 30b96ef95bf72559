"""Open transactions: what is due, what is through, and what they cost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trocket.broker.transactions.open_transactions import OpenTransactions

from ...traced_memory import traced_memory

DUE_MS = 1_763_887_827_000


def test_progress_stops_at_the_oldest_that_is_open():
    table = OpenTransactions()
    assert table.through(5, 7) == (5, 7)
    for offset, mark in ((5, 7), (6, 7), (7, 9)):
        table.open(offset, 100, mark)
    table.end(5)
    assert table.through(8, 10) == (6, 7)
    table.end(6)
    assert table.through(8, 10) == (7, 9)
    table.renew(7, 8, 200, 11)
    assert table.through(9, 12) == (8, 11)
    assert [table.current(offset) for offset in (5, 7, 8)] == [None, 8, 8]
    table.end(8)
    assert table.through(9, 12) == (9, 12)
    assert table.current(7) is None


@pytest.mark.slow
@given(st.data())
def test_what_is_due_is_what_a_plain_list_says(data):
    table = OpenTransactions(block_count=data.draw(st.sampled_from([1, 2, 3, 256])))
    plain, older, marks, now_ms, next_offset = {}, {}, {}, 0, 0
    for _ in range(data.draw(st.integers(1, 40))):
        action = data.draw(st.sampled_from(["open", "open", "several", "end", "take", "time"]))
        if action == "open":
            due_ms = now_ms + data.draw(st.sampled_from([0, 5, 6, 6, 6, 60]))
            table.open(next_offset, due_ms, next_offset + 1)
            plain[next_offset], older[next_offset] = due_ms, []
            marks[next_offset] = next_offset + 1
            next_offset += 1
        elif action == "several":  # of one turn
            due_ms = now_ms + data.draw(st.sampled_from([0, 6, 60]))
            offsets = range(next_offset, next_offset + data.draw(st.integers(0, 6)))
            mark = next_offset + 1
            table.open_all(list(offsets), due_ms, mark)
            for offset in offsets:
                plain[offset], older[offset], marks[offset] = due_ms, [], mark
            next_offset += len(offsets)
        elif action == "time":
            now_ms += data.draw(st.integers(0, 10))
        elif action == "end" and plain:
            offset = data.draw(st.sampled_from(sorted(plain)))
            table.end(offset)
            del plain[offset], older[offset]
        elif action == "take":
            offset = table.take_due(now_ms)
            due = {each: due_ms for each, due_ms in plain.items() if due_ms <= now_ms}
            if offset is None:
                assert not due
                continue
            assert due[offset] == min(due.values())
            how = data.draw(st.sampled_from(["renew", "put_off", "end"]))
            del plain[offset]
            before = older.pop(offset)
            if how == "renew":
                table.renew(offset, next_offset, now_ms + 30, next_offset + 1)
                plain[next_offset], older[next_offset] = now_ms + 30, [*before, offset]
                marks[next_offset] = next_offset + 1
                next_offset += 1
            elif how == "put_off":
                table.put_off(offset, now_ms + 7)
                plain[offset], older[offset] = now_ms + 7, before
            else:
                table.end(offset)
        assert len(table) == len(plain)
        assert table.next_due_ms() == min(plain.values(), default=None)
        lowest = min(plain, default=next_offset)
        mark = min(marks.get(lowest, next_offset), next_offset)
        assert table.through(next_offset, next_offset) == (lowest, mark)
        current = {each: new for new, before in older.items() for each in (new, *before)}
        for offset in range(next_offset):
            assert table.current(offset) == current.get(offset)


def traced_bytes(count, work):
    """Bytes per open transaction."""
    with traced_memory() as memory:
        kept = work()
        return memory() / count, kept


def opened(count, due_ms):
    table = OpenTransactions()
    for offset in range(count):
        table.open(offset, due_ms(offset), offset // 300)
    return table


@pytest.mark.slow
def test_an_open_transaction_is_a_few_bytes():
    """250,000 of them took 88 MB: as many as a stranger made in an hour."""
    rising, _ = traced_bytes(20_000, lambda: opened(20_000, lambda offset: DUE_MS + offset))
    falling, _ = traced_bytes(20_000, lambda: opened(20_000, lambda offset: DUE_MS - offset))
    assert max(rising, falling) < 48


@pytest.mark.slow
def test_what_is_through_is_forgotten():
    """Every tenth stays open, and was written again."""
    count = 20_000

    def work():
        table = opened(count, lambda offset: DUE_MS)
        for offset in range(count):
            if offset % 10 == 0:
                table.renew(offset, count + offset, DUE_MS + 1, 0)
            else:
                table.end(offset)
        return table

    size, table = traced_bytes(count, work)
    assert len(table) == count // 10
    assert size < 20
    for offset in range(0, count, 10):
        assert table.current(offset) == count + offset
        table.end(count + offset)
    assert len(table) == 0
    assert table.next_due_ms() is None
