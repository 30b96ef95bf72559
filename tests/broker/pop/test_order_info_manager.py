"""The table of messages in order, and its file."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trocket.broker.pop.order_info import ATTEMPT_ID_LENGTH_MAX, OrderInfo
from trocket.broker.pop.order_info_manager import (
    ILLEGAL,
    KEPT_MS,
    UNKNOWN,
    ConsumerOrderInfoManager,
)
from trocket.common.steps import at_once
from trocket.disk.json_config import parse

NOW = 1_700_000_000_000
MINUTE = 60_000


class Table(ConsumerOrderInfoManager):
    """A table with short calls for the queue T@G 0."""

    def __init__(self, **more):
        super().__init__(save=lambda name, text: None, **more)

    def pop(self, *offsets, attempt=None, at=NOW, invisible=MINUTE, queue=0):
        return self.update(
            attempt, "T", "G", queue, pop_time=at, invisible_time=invisible, offsets=offsets
        )

    def blocks(self, at, attempt=None, *, invisible=MINUTE, queue=0):
        return self.check_block(attempt, "T", "G", queue, invisible_time=invisible, now_ms=at)

    def ack(self, offset, pop_time=NOW, *, queue=0):
        return self.commit_and_next("T", "G", queue, offset, pop_time=pop_time)

    def change(self, offset, visible_ms, pop_time=NOW):
        return self.update_next_visible_time(
            "T", "G", 0, offset, pop_time=pop_time, visible_ms=visible_ms
        )


def test_a_queue_is_blocked_until_its_messages_are_visible_again():
    table = Table()
    assert not table.blocks(NOW)
    table.pop(5, 6)
    assert table.blocks(NOW + MINUTE - 1)
    assert not table.blocks(NOW + MINUTE)
    assert not table.blocks(NOW, queue=1)


def test_a_queue_is_free_once_all_its_messages_are_acknowledged():
    table = Table()
    table.pop(5, 6, 9)
    assert table.ack(6) == 5
    assert table.blocks(NOW)
    assert table.ack(5) == 9
    assert table.ack(9) == 10
    assert not table.blocks(NOW)
    assert table.count == 0


def test_a_lost_answer_is_read_again_with_the_same_attempt_id():
    table = Table()
    table.pop(5, 6, attempt="a")
    assert table.blocks(NOW, "b")
    assert not table.blocks(NOW, "a")
    again = table.pop(5, 6, attempt="a", at=NOW + 1)
    assert not again.consumed  # the client has not seen them
    assert table.ack(5, NOW) == UNKNOWN
    assert table.ack(5, NOW + 1) == 6


def test_no_attempt_id_is_never_the_same_one():
    table = Table()
    table.pop(5)
    assert table.blocks(NOW, None)


def test_messages_popped_again_are_counted():
    table = Table()
    assert table.pop(5, 6).consumed is None
    assert table.pop(5, 6, at=NOW + MINUTE).consumed == {5: 1, 6: 1}
    assert table.pop(6, 7, at=NOW + 2 * MINUTE).consumed == {6: 2}
    assert table.pop(7, attempt="a", at=NOW + 3 * MINUTE).consumed == {7: 1}
    assert table.pop(7, 8, attempt="a", at=NOW + 3 * MINUTE).consumed == {7: 1}
    assert table.pop(7, 8, attempt="b", at=NOW + 4 * MINUTE).consumed == {7: 2, 8: 1}


def test_counts_of_acknowledged_messages_end_with_them():
    table = Table()
    table.pop(5, 6)
    table.pop(5, 6, attempt="a", at=NOW + MINUTE)
    table.ack(5, NOW + MINUTE)
    again = table.pop(6, 7, attempt="a", at=NOW + MINUTE + 1)
    assert (again.consumed, again.times) == ({6: 1}, 0)


def test_a_changed_invisible_time_moves_the_end_of_the_block():
    table = Table()
    table.pop(5, 6)
    assert table.change(5, NOW + 2 * MINUTE)
    assert table.blocks(NOW + MINUTE)
    assert not table.blocks(NOW + 2 * MINUTE)
    assert table.change(5, NOW + 1)
    assert table.change(6, NOW + 2)
    assert table.blocks(NOW + 1)
    assert not table.blocks(NOW + 2)


@pytest.mark.parametrize(("offset", "pop_time"), [(7, NOW), (5, NOW - 1)])
def test_a_change_for_another_message_or_pop_changes_nothing(offset, pop_time):
    table = Table()
    table.pop(5)
    text = table.encode()
    assert not table.change(offset, NOW + 5 * MINUTE, pop_time)
    assert table.encode() == text


def test_an_acknowledgement_of_another_message_or_pop_is_told_apart():
    table = Table()
    table.pop(5, 6)
    assert table.ack(7) == ILLEGAL
    assert table.ack(5, NOW - 1) == UNKNOWN
    assert table.ack(5, queue=3) == UNKNOWN  # it might skip messages
    assert table.ack(5) == 6
    assert table.ack(5) == 6  # sent twice


def test_a_pop_without_invisible_time_blocks_for_that_of_the_next_one():
    table = Table()
    table.pop(5, invisible=0)
    assert not table.blocks(NOW, invisible=0)
    assert table.blocks(NOW, invisible=MINUTE)
    assert table.blocks(NOW, invisible=0)


def test_a_reset_clears_the_block():
    table = Table()
    table.pop(5)
    table.clear_block("T", "G", 0)
    table.clear_block("T", "G", 0)
    assert not table.blocks(NOW)
    assert table.count == 0


def test_a_full_table_has_room_for_what_it_knows_only():
    table = Table(queues_max=2)
    table.pop(5)
    table.pop(5, queue=1)
    assert table.has_room("T", "G", 1)
    assert not table.has_room("T", "G", 2)
    table.ack(5)
    assert table.has_room("T", "G", 2)


@pytest.mark.parametrize(
    ("queue_count", "has_group", "later_ms", "left"),
    [
        (2, True, KEPT_MS, [0, 1]),
        (1, True, 0, [0]),
        (0, True, 0, []),
        (2, False, 0, []),
        (2, True, KEPT_MS + 1, []),
        (2, True, -KEPT_MS, [0, 1]),
        (2, True, -KEPT_MS - 1, []),
    ],
)
def test_entries_die_with_topic_group_queue_and_day(queue_count, has_group, later_ms, left):
    table = Table()
    table.pop(5)
    table.pop(5, queue=1)
    at_once(
        table.clean(
            NOW + later_ms, queue_count=lambda topic: queue_count, has_group=lambda group: has_group
        )
    )
    assert [queue_id for queue_id, _ in table.queues_of("T", "G")] == left
    assert table.count == len(left)


def test_entries_go_with_a_deleted_topic_or_group():
    table = Table()
    table.pop(5)
    table.pop(5, queue=1)
    for topic, group in (("T", "H"), ("U", "G"), ("T2", "G2")):
        table.update(None, topic, group, 0, pop_time=NOW, invisible_time=1, offsets=[1])
    table.remove_topic("T")
    assert {(topic, group) for topic, group, _, _ in table.entries()} == {("U", "G"), ("T2", "G2")}
    table.remove_group("G")
    assert table.count == 1
    assert b'"T2@G2"' in table.encode()


def test_cleaning_many_entries_is_divided():
    table = Table()
    for queue in range(1_000):
        table.pop(5, queue=queue)
    steps = table.clean(NOW, queue_count=lambda topic: 0, has_group=lambda group: True)
    assert sum(1 for _ in steps) == 10
    assert table.count == 0


def test_saving_many_entries_is_divided():
    table = Table()
    for queue in range(1_000):
        table.pop(5, queue=queue)
    assert sum(1 for _ in table.encode_in_steps()) == 11


def test_the_file_is_apaches_byte_for_byte():
    """The text is what QueueLevelConsumerManager.encode(true) of 5.5.0 gives."""
    table = Table()
    table.pop(5, 6, 9)
    table.pop(5, 6, 7, attempt="att-1", queue=3)
    table.pop(6, 7, 20, attempt="att-2", queue=3)
    table.update_next_visible_time("T", "G", 3, 7, pop_time=NOW, visible_ms=NOW + 9)
    assert table.ack(6, queue=3) == 7
    assert (
        table.encode().decode()
        == """{
	"orderInfoCount":1,
	"orderedConsumptionLevel":"QUEUE",
	"table":{
		"T@G":{
			0:{
				"cm":0,
				"i":60000,
				"l":1700000000000,
				"o":[5,1,4],
				"popTime":1700000000000
			},
			3:{
				"a":"att-2",
				"cm":1,
				"i":60000,
				"l":1700000000000,
				"o":[6,1,14],
				"oc":{
					6:1,
					7:1
				},
				"ot":{
					7:1700000000009
				},
				"popTime":1700000000000
			}
		}
	}
}"""
    )


def test_an_empty_table_is_apaches_too():
    assert Table().encode() == (
        b'{\n\t"orderInfoCount":0,\n\t"orderedConsumptionLevel":"QUEUE",\n\t"table":{}\n}'
    )


@st.composite
def infos(draw):
    offsets = sorted(draw(st.sets(st.integers(0, 2**62), min_size=1, max_size=32)))
    some = st.lists(st.sampled_from(offsets), unique=True)
    info = OrderInfo(
        draw(st.none() | st.text(min_size=1, max_size=ATTEMPT_ID_LENGTH_MAX)),
        draw(st.integers(0, 2**62)),
        draw(st.integers(0, 2**62)),
        tuple(offsets),
        draw(st.integers(0, 2**62)),
        0,
        {each: draw(st.integers(0, 2**62)) for each in draw(some)},
        draw(st.none() | some.map(lambda found: dict.fromkeys(found, 3))),
    )
    for each in draw(some):
        info.ack(each)
    return info


@given(infos())
def test_an_entry_is_read_as_it_was_written(info):
    assert OrderInfo.read(parse(b'{"x":%b}' % info.written())["x"]) == info


def test_the_table_is_read_as_it_was_written():
    table, other = Table(), Table()
    table.pop(5, 6, attempt='"a,5:{', queue=1)
    table.pop(5)
    table.update(None, "U", "H", 2, pop_time=NOW, invisible_time=7, offsets=[1])
    assert other.decode(table.encode()) == other.count == 3
    assert other.encode() == table.encode()
    assert not other.file.is_dirty


def test_what_apache_keeps_of_finished_messages_is_not_kept():
    table = Table()
    text = '{"table":{"E@G":{},"T@G":{0:{"popTime":5,"i":9,"o":[5,1],"cm":3,"l":5}}}}'
    assert table.decode(text.encode()) == 0
    assert not table.file.is_dirty


@pytest.mark.parametrize(
    ("key", "queue", "change"),
    [
        ("T", "0", {}),
        ("T@G@H", "0", {}),
        ("T@G", "-1", {}),
        ("T@G", "x", {}),
        ("T@G", "4294967296", {}),
        ("T@G", "0", {"o": []}),
        ("T@G", "0", {"o": None}),
        ("T@G", "0", {"o": 7}),
        ("T@G", "0", {"o": [-1]}),
        ("T@G", "0", {"o": [2**63 - 1, 1]}),
        ("T@G", "0", {"o": [5, 2, 1]}),
        ("T@G", "0", {"o": list(range(33))}),
        ("T@G", "0", {"o": ["x"]}),
        ("T@G", "0", {"popTime": 2**63}),
        ("T@G", "0", {"i": "soon"}),
        ("T@G", "0", {"cm": 2**63}),
        ("T@G", "0", {"a": 5}),
        ("T@G", "0", {"oc": {"5": 2**31}}),
        ("T@G", "0", {"ot": {"5": -(2**63) - 1}}),
        ("T@G", "0", {"ot": 3}),
    ],
)
def test_an_entry_that_cannot_be_used_is_left_out(key, queue, change, caplog):
    entry = {"popTime": NOW, "i": MINUTE, "o": [5, 1], "cm": 0, "l": NOW} | change
    table = Table()
    right = {"popTime": NOW, "i": 1, "o": [5], "l": NOW}
    text = json.dumps({"table": {key: {queue: entry}, "U@G": {"1": right}}})
    assert table.decode(text.encode()) == 1
    assert f"consumerOrderInfo.json: the entry of {key} queue {queue} is left out" in caplog.text
    assert table.file.is_dirty  # so that it is written again without it


@pytest.mark.parametrize("entry", ["[]", "7", "null", '{"0":null}', '{"0":[]}'])
def test_an_entry_of_another_type_is_left_out(entry, caplog):
    table = Table()
    assert table.decode(b'{"table":{"T@G":%b}}' % entry.encode()) == 0
    assert "is left out" in caplog.text


@pytest.mark.parametrize("text", ["", "[]", '{"table":[]}', '{"table":7}', "\x00"])
def test_a_text_that_is_no_table_is_refused(text):
    table = Table()
    table.pop(5)
    with pytest.raises(ValueError, match=r"."):
        table.decode(text.encode())
    assert table.count == 1


def test_a_long_attempt_id_of_the_file_is_not_kept():
    table = Table()
    entry = {"popTime": NOW, "i": MINUTE, "o": [5], "a": "x" * 1_000_000, "l": NOW}
    table.decode(json.dumps({"table": {"T@G": {"0": entry}}}).encode())
    info = table.find("T", "G", 0)
    assert info is not None
    assert info.attempt_id is None


def test_an_older_file_is_compared_with_offsets_and_store():
    table = Table()
    table.pop(5, 6)
    table.pop(5, 6, queue=1)
    table.pop(5, 6, queue=2)
    table.pop(5, 6, queue=3)
    committed = {0: 6, 1: 7, 2: -1, 3: -1}
    ends = {0: 7, 1: 7, 2: 6, 3: 7}
    table.correct(lambda group, topic, queue: committed[queue], lambda topic, queue: ends[queue])
    assert [queue_id for queue_id, _ in table.queues_of("T", "G")] == [0, 3]
    assert table.ack(6) == 7  # 5 was acknowledged before
    assert table.ack(6, queue=3) == 5
