"""What recovery makes of queue offsets while it reads the log."""

from __future__ import annotations

import pytest

from trocket.disk.memory_disk import MemoryDisk
from trocket.store.format import PRE_BLANK_SIZE, UNIT
from trocket.store.queues.consume_queue import PRE_BLANK
from trocket.store.queues.consume_queue_store import ConsumeQueueStore
from trocket.store.queues.projection import Places
from trocket.store.recovery.recovered_queues import RecoveredQueues, UnexplainedOffsetError

KEY = ("T", 0)


class Fed:
    """States, and a log that goes on."""

    def __init__(self, kept=0, **changes):
        store = ConsumeQueueStore(MemoryDisk(), "/data", file_size=400)
        options = {
            "dispatch_from": 0,
            "rebuilding": frozenset(),
            "whole_log": False,
            "from_0": True,
            "at_checkpoint": None,
            **changes,
        }
        self.states = RecoveredQueues(store, Places("1s"), {KEY: kept}, **options)
        self.at = 1000

    def feed(self, *offsets, topic="T", **fields):
        for queue_offset in offsets:
            more = {"sys_flag": 0, "properties": b"", **fields}
            self.states.feed(
                (self.at, 100, topic, 0, queue_offset, more["sys_flag"], 1, more["properties"])
            )
            self.at += 100

    def units(self, key=KEY):
        """(first queue offset, physical offset of each unit, None for blanks)."""
        state = self.states.by_key[key]
        found = [
            None if size == PRE_BLANK_SIZE else at for at, size, _ in UNIT.iter_unpack(state.units)
        ]
        return state.first, found


def test_records_that_follow_on_are_collected():
    fed = Fed(kept=5)
    fed.feed(5, 6, 7)
    assert fed.units() == (5, [1000, 1100, 1200])
    assert fed.states.by_key[KEY].kept == 5
    assert fed.states.unit_count == 3


def test_records_that_their_queue_has_already_are_left_out():
    fed = Fed(kept=5, dispatch_from=1100)
    fed.feed(4, 5)
    assert fed.units() == (5, [1100])


def test_a_queue_that_begins_again_loses_what_it_had():
    fed = Fed(kept=5)
    fed.feed(5, 0, 1)
    assert fed.units() == (0, [1100, 1200])
    assert fed.states.by_key[KEY].kept == -1


@pytest.mark.parametrize("offsets", [(7,), (5, 7), (3,), (5, 6, 5)])
def test_a_queue_that_does_not_follow_is_to_be_built_again(offsets):
    fed = Fed(kept=5)
    fed.feed(*offsets)
    assert fed.states.damaged == {KEY}


def test_an_empty_queue_that_does_not_begin_at_0_is_to_be_built_again():
    fed = Fed()
    fed.feed(3)
    assert fed.states.damaged == {KEY}


def test_in_the_whole_log_a_queue_may_begin_anywhere():
    fed = Fed(whole_log=True)
    fed.feed(3, 4)
    assert fed.units() == (3, [1000, 1100])


def test_the_last_messages_of_a_deleted_topic_are_left_out_until_it_begins_again():
    fed = Fed(at_checkpoint=frozenset())
    fed.feed(3, 4)
    assert fed.units() == (0, [])
    assert fed.states.by_key[KEY].is_ignored
    fed.feed(0, 1)
    assert fed.units() == (0, [1200, 1300])
    assert not fed.states.by_key[KEY].is_ignored


def test_behind_a_hole_blanks_stand_for_what_was_in_it():
    fed = Fed(kept=5)
    fed.feed(5)
    fed.states.after_hole = True
    fed.feed(8)
    assert fed.units() == (5, [1000, None, None, 1100])


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({"whole_log": True}, (0, [None, None, 1000]), id="of the first log file"),
        pytest.param({"whole_log": True, "from_0": False}, (2, [1000]), id="older files are gone"),
        pytest.param(
            {"at_checkpoint": frozenset(), "from_0": False}, (0, [None, None, 1000]), id="new"
        ),
    ],
)
def test_a_queue_that_begins_behind_a_hole(changes, expected):
    fed = Fed(**changes)
    fed.states.after_hole = True
    fed.feed(2)
    assert fed.units() == expected


def test_in_a_queue_that_is_built_from_the_whole_log_nothing_is_left_to_explain_an_offset():
    fed = Fed(rebuilding=frozenset({KEY}))
    fed.feed(3, 4)
    with pytest.raises(
        UnexplainedOffsetError, match="message 9 of queue 0 of topic T, where 5 would be"
    ):
        fed.feed(9)
    with pytest.raises(
        UnexplainedOffsetError, match="message 3 of queue 0 of topic T, where 5 would be"
    ):
        fed.feed(3)
    assert fed.units() == (3, [None, 1100]), "of two that say the same neither is believed"


def test_half_messages_and_impossible_queues_are_left_out():
    fed = Fed()
    fed.feed(0, sys_flag=4)
    fed.feed(0, 1, topic="a/b")
    assert fed.states.by_key == {}


@pytest.mark.parametrize(
    ("offsets", "expected"),
    [
        pytest.param((5, 6), (5, [1000, 1100]), id="begins anywhere"),
        pytest.param((5, 8), (5, [1000, None, None, 1100]), id="a gap"),
        pytest.param((5, 1 << 40), (1 << 40, [1100]), id="a gap that no memory could hold"),
        pytest.param((5, 3, 6), (5, [1000, 1200]), id="an offset that was there"),
        pytest.param((5, 0, 1), (0, [1100, 1200]), id="begins again"),
    ],
)
def test_light_queues_take_what_senders_say_and_damage_nothing(offsets, expected):
    fed = Fed()
    for number, offset in enumerate(offsets):
        properties = (
            b"INNER_MULTI_DISPATCH\x01%%LMQ%%a\x02INNER_MULTI_QUEUE_OFFSET\x01%d\x02" % offset
        )
        fed.feed(number, properties=properties)
    assert fed.units(("%LMQ%a", 0)) == expected
    assert fed.states.damaged == set()


def test_when_memory_is_full_offsets_are_still_followed():
    fed = Fed()
    fed.feed(0)
    fed.states.is_full = True
    fed.feed(1, 2)
    assert fed.units() == (0, [1000])
    assert fed.states.by_key[KEY].next == 3
    fed.feed(7)
    assert fed.states.damaged == {KEY}


def test_a_blank_is_what_fills_the_room_before_a_queues_first_unit():
    assert UNIT.unpack(PRE_BLANK) == (0, PRE_BLANK_SIZE, 0)
