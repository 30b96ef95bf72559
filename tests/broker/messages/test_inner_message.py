"""Messages that the broker stores itself: which wait, and with what properties."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trocket.broker.messages.inner_message import (
    DelayLevels,
    InnerMessage,
    InnerPuts,
    delay_level,
    delayed,
)
from trocket.common.java_hash import tags_code
from trocket.common.message_properties import properties_from_bytes

HOST = bytes(8)
LEVELS = DelayLevels("1s 5s 10s 2h 1d")
MESSAGE = InnerMessage("T", 3, b"body", b"TAGS\1a\2", 7, HOST, HOST, flag=5, reconsume_times=2)


class Store:
    wall_time_ms = store_time_ms = clock_ms = 1_000_000

    def __init__(self):
        self.stored = []
        self.writer = self

    def fits(self, *sizes, **more):
        return True

    def read_clock(self):
        self.wall_time_ms = self.store_time_ms = self.clock_ms

    def put(self, message, tags_code):
        self.stored.append((message, tags_code))
        return None, 100, 1


@pytest.mark.parametrize(
    ("level", "delay_ms"),
    [(1, 1_000), (3, 10_000), (4, 7_200_000), (5, 86_400_000), (6, 86_400_000)],
)
def test_a_level_has_its_delay_and_one_above_the_highest_counts_as_that(level, delay_ms):
    assert LEVELS.delay_ms(level) == delay_ms


@pytest.mark.parametrize(
    ("raw", "level"),
    [(b"", 0), (b"DELAY\0010\2", 0), (b"DELAY\x01-1\2", -1), (b"A\1b\2DELAY\0013", 3),
     (b"DELAY\x01+2\2", 2)],
)  # fmt: skip
def test_the_delay_level_is_a_property(raw, level):
    assert delay_level(raw) == level


@pytest.mark.parametrize(
    "text", [b"x", b"1.5", b"-", b"2147483648", b"99999999999999", "٣".encode()]
)
def test_what_is_no_int32_is_no_delay_level(text):
    with pytest.raises(ValueError, match="not a delay level"):
        delay_level(b"DELAY\1%s\2" % text)


def test_a_delayed_message_remembers_where_it_belongs():
    waiting = delayed(
        replace(MESSAGE, properties=b"TAGS\1a\2DELAY\x0199\2TIMER_DELAY_MS\x015\2"), 99, LEVELS
    )
    assert (waiting.topic, waiting.queue_id, waiting.body) == ("SCHEDULE_TOPIC_XXXX", 4, b"body")
    assert properties_from_bytes(waiting.properties) == {
        "TAGS": "a", "DELAY": "5", "REAL_TOPIC": "T", "REAL_QID": "3",
    }  # fmt: skip


@pytest.mark.parametrize("sys_flag", [0, 8])
def test_a_message_with_a_level_is_put_where_it_waits_with_its_time_as_tags_code(sys_flag):
    store = Store()
    puts = InnerPuts(store, LEVELS)
    message = replace(MESSAGE, properties=b"TAGS\1a\2DELAY\0012\2", sys_flag=sys_flag)
    puts.put(puts.waiting(message))
    ((waiting, code),) = store.stored
    assert (waiting.topic, waiting.queue_id, code) == ("SCHEDULE_TOPIC_XXXX", 1, 1_005_000)
    assert (waiting.flag, waiting.reconsume_times) == (5, 2)


def test_a_delay_counts_from_when_the_message_came_not_from_when_its_turn_began():
    store = Store()
    store.clock_ms += 23
    puts = InnerPuts(store, LEVELS)
    puts.put(puts.waiting(replace(MESSAGE, properties=b"DELAY\0011\2")))
    assert store.stored[0][1] == 1_001_023


def test_others_are_put_where_they_belong():
    store = Store()
    puts = InnerPuts(store, LEVELS)
    puts.put(puts.waiting(MESSAGE))
    puts.put(puts.waiting(replace(MESSAGE, properties=b"DELAY\x01-1\2")))
    puts.put(puts.waiting(replace(MESSAGE, properties=b"DELAY\0012\2", sys_flag=12)))  # rolled back
    puts.put(replace(MESSAGE, properties=b"DELAY\0012\2"))
    assert [(message.topic, message.queue_id) for message, _ in store.stored] == [("T", 3)] * 4
    assert [code for _, code in store.stored] == [tags_code("a"), 0, 0, 0]
