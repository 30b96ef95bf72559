"""What goes into a hole: always records from its start to its end, each loss at its own offset."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trocket.common.topic_names import SCHEDULE_TOPIC
from trocket.remoting.hosts import host_bytes
from trocket.remoting.message_codec import MAGIC_BLANK, RECORD_PREFIX, decode_record
from trocket.remoting.sys_flag import TRANSACTION_ROLLBACK_TYPE
from trocket.store.log.log_reader import Hole
from trocket.store.offline.fill import (
    FILLER_SIZE_MAX,
    FILLER_TOPIC,
    Placeholder,
    Stamp,
    UnfillableError,
    fill_hole,
    fixed_bytes,
)
from trocket.store.offline.losses import Lost

FILE_SIZE = 16_384
STAMP = Stamp(1_700_000_000_000, host_bytes("127.0.0.1", 10911))


def written(hole, lost, file_size=FILE_SIZE):
    """The hole's bytes, and its records; checked to be whole, one behind the other."""
    data = bytearray(hole.end - hole.start)
    for offset, piece in fixed_bytes(fill_hole(hole, lost, file_size), STAMP):
        at = offset - hole.start
        assert not any(data[at : at + len(piece)])
        data[at : at + len(piece)] = piece
    found, offset = [], hole.start
    while offset < hole.end:
        at = offset - hole.start
        remaining = offset - offset % file_size + file_size - offset
        size, magic = RECORD_PREFIX.unpack_from(data, at)
        if magic == MAGIC_BLANK:
            assert size == remaining
            offset += size
            continue
        record = decode_record(bytes(data), at)
        assert record.physical_offset == offset
        assert record.store_timestamp_ms == STAMP.timestamp_ms
        assert size + 8 <= remaining or offset + size == hole.end < offset + remaining
        found.append(record)
        offset += size
    assert offset == hole.end
    return found


def placeholders(found):
    for record in found:
        if record.topic.startswith("T") and len(record.topic) != len("T1"):
            assert record.sys_flag == TRANSACTION_ROLLBACK_TYPE
    return [record for record in found if record.sys_flag != TRANSACTION_ROLLBACK_TYPE]


@st.composite
def holes(draw):
    """A stretch of log of which some records are known, some only by their queue offset."""
    start = draw(st.integers(0, 5)) * FILE_SIZE + draw(st.sampled_from([0, 91, 500, 9000]))
    lost, offset = [], start
    next_offsets = {}
    for _ in range(draw(st.integers(1, 25))):
        queue = draw(st.integers(0, 2))
        topic = f"T{queue}"
        size = draw(st.one_of(st.integers(93, 140), st.integers(93, 6000)))
        file_end = offset - offset % FILE_SIZE + FILE_SIZE
        if offset + size + 8 > file_end:
            offset = file_end
        queue_offset = next_offsets.get(topic, 7)
        next_offsets[topic] = queue_offset + 1
        is_message = draw(st.integers(0, 9)) > 0  # else a half message, which is in no queue
        known = draw(st.booleans())
        if is_message:
            place = (offset, size) if known else (-1, 0)
            lost.append(Lost(topic, queue, queue_offset, *place, 1 << 40))
        offset += size
    if draw(st.booleans()):
        offset = offset - offset % FILE_SIZE + FILE_SIZE
    hole = Hole(start, offset, "")
    return hole, [entry._replace(before=hole.end) for entry in lost]


@pytest.mark.slow
@given(holes())
def test_a_hole_is_filled_from_end_to_end_and_no_loss_is_left_out(case):
    hole, lost = case
    found = placeholders(written(hole, lost))
    assert sorted((r.topic, r.queue_id, r.queue_offset) for r in found) == sorted(
        entry[:3] for entry in lost
    )
    assert all(record.body == b"" for record in found)
    for topic in {entry.topic for entry in lost}:
        offsets = [record.queue_offset for record in found if record.topic == topic]
        assert offsets == sorted(offsets)


def test_known_messages_stay_at_their_place_with_their_size_and_are_marked():
    hole = Hole(1000, 3000, "")
    lost = [Lost("T1", 0, 4, 1000, 400, 3000), Lost("T1", 0, 5, 1800, 200, 3000)]
    found = placeholders(written(hole, lost))
    assert [(r.physical_offset, r.store_size) for r in found] == [(1000, 400), (1800, 200)]
    assert all(record.properties == {"TROCKET_LOST": "1"} for record in found)


def test_a_message_of_which_only_the_offset_is_known_goes_where_there_is_room():
    hole = Hole(1000, 3000, "")
    lost = [Lost("T1", 0, 4, 1000, 400, 3000), Lost("T1", 0, 5, -1, 0, 1800),
            Lost("T1", 0, 6, 1800, 1200, 3000)]  # fmt: skip
    found = placeholders(written(hole, lost))
    assert [record.queue_offset for record in found] == [4, 5, 6]
    assert [record.physical_offset for record in found] == [1000, 1400, 1800]


def test_without_room_for_the_mark_there_is_a_placeholder_without_it():
    hole = Hole(1000, 1000 + 94, "")
    (record,) = written(hole, [Lost("T1", 0, 4, 1000, 94, 1094)])
    assert (record.queue_offset, record.properties) == (4, {})


def test_a_hole_that_nothing_is_known_of_gets_filler_that_is_in_no_queue():
    (record,) = written(Hole(1000, 1500, ""), [])
    assert (record.topic, record.sys_flag) == (FILLER_TOPIC, TRANSACTION_ROLLBACK_TYPE)
    (record,) = written(Hole(1000, 1100, ""), [])
    assert record.topic == FILLER_TOPIC[:1]


def test_a_file_that_is_missing_whole_begins_with_a_record():
    found = written(Hole(FILE_SIZE, 2 * FILE_SIZE, ""), [])
    assert [record.physical_offset for record in found] == [FILE_SIZE]


def test_what_does_not_fit_before_a_files_end_and_its_blank_goes_into_the_next_file():
    smallest = 93  # of topic T1
    hole = Hole(FILE_SIZE - smallest - 7, FILE_SIZE + 2 * smallest, "")
    lost = [Lost("T1", 0, number, -1, 0, hole.end) for number in range(2)]
    found = placeholders(written(hole, lost))
    assert [record.physical_offset // FILE_SIZE for record in found] == [1, 1]


def test_filler_is_cut_into_pieces():
    size = 3 * FILLER_SIZE_MAX + 50
    found = written(Hole(8, 8 + size, ""), [], file_size=1 << 24)
    assert len(found) == 4
    assert max(record.store_size for record in found) <= FILLER_SIZE_MAX


def test_units_of_one_record_in_several_queues_become_one_placeholder():
    hole = Hole(1000, 1600, "")
    lost = [
        Lost("%LMQ%a", 0, 9, 1000, 600, 1600),
        Lost("T1", 3, 4, 1000, 600, 1600),
        Lost("%LMQ%b", 0, 2, 1000, 600, 1600),
    ]
    (record,) = written(hole, lost)
    assert (record.topic, record.queue_id, record.queue_offset) == ("T1", 3, 4)
    assert record.properties["INNER_MULTI_DISPATCH"] == "%LMQ%a,%LMQ%b"
    assert record.properties["INNER_MULTI_QUEUE_OFFSET"] == "9,2"


def test_a_lost_delayed_message_is_delivered_where_it_does_no_harm():
    hole = Hole(1000, 1600, "")
    (record,) = written(hole, [Lost(SCHEDULE_TOPIC, 1, 4, 1000, 600, 1600)])
    properties = record.properties
    assert (properties["REAL_TOPIC"], properties["DELAY"]) == (FILLER_TOPIC, "2")


def test_units_that_contradict_each_other_are_packed():
    hole = Hole(1000, 1600, "")
    lost = [Lost("T1", 0, 4, 1000, 400, 1600), Lost("T1", 1, 4, 1200, 400, 1600)]
    found = placeholders(written(hole, lost))
    assert {(r.queue_id, r.queue_offset) for r in found} == {(0, 4), (1, 4)}


@pytest.mark.parametrize(
    ("size", "lost"),
    [
        pytest.param(60, [], id="too small for any record"),
        pytest.param(150, [Lost("T1", 0, n, -1, 0, 1150) for n in range(2)], id="too many"),
    ],
)
def test_what_cannot_be_filled_is_refused(size, lost):
    with pytest.raises(UnfillableError):
        fill_hole(Hole(1000, 1000 + size, ""), lost, FILE_SIZE)


def test_a_placeholder_has_exactly_its_size():
    for size in range(93, 200):
        placeholder = Placeholder(0, size, "T1", 0, 1, size >= 93 + 15)
        assert len(placeholder.to_bytes(STAMP)) == size
