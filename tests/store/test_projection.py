"""What the log says of the queues, and that a difference is found."""

from __future__ import annotations

import pytest

from tests.store.queue_differences import Difference, differences, spans
from trocket.common.java_hash import tags_code
from trocket.disk.memory_disk import MemoryDisk
from trocket.store.format import UNIT, UNIT_SIZE
from trocket.store.queues.projection import Places

from .damaged import QUEUE
from .support import open_store, put, send

DELAYS = "1s 5s 2h"


def scanned(topic="T", queue_id=1, queue_offset=5, sys_flag=0, properties=b""):
    return (100, 200, topic, queue_id, queue_offset, sys_flag, 1_000_000, properties)


def places(**fields):
    return [tuple(place) for place in Places(DELAYS).of(scanned(**fields))]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        pytest.param({}, 0, id="no tags"),
        pytest.param({"properties": b"TAGS\x01a\x02"}, tags_code("a"), id="tags"),
        pytest.param(
            {"topic": "SCHEDULE_TOPIC_XXXX", "properties": b"DELAY\x012\x02"}, 1_005_000, id="delay"
        ),
        pytest.param(
            {"topic": "SCHEDULE_TOPIC_XXXX", "properties": b"DELAY\x0199\x02"}, 8_200_000,
            id="a level beyond the last",
        ),
        pytest.param(
            {"topic": "SCHEDULE_TOPIC_XXXX", "properties": b"DELAY\x01x\x02TAGS\x01a\x02"},
            tags_code("a"), id="no level",
        ),
    ],
)  # fmt: skip
def test_the_tags_code_of_a_record(fields, code):
    assert places(**fields) == [((fields.get("topic", "T"), 1), 5, code)]


@pytest.mark.parametrize("sys_flag", [4, 12])
def test_half_and_rolled_back_messages_are_in_no_queue(sys_flag):
    assert places(sys_flag=sys_flag) == []
    assert len(places(sys_flag=8)) == 1


def test_a_message_of_light_queues_is_in_each_of_them_and_in_no_other():
    properties = (
        b"INNER_MULTI_DISPATCH\x01%LMQ%a,Other,%LMQ%b,%LMQ%c\x02"
        b"INNER_MULTI_QUEUE_OFFSET\x013,4,x,0\x02"
    )
    assert places(properties=properties) == [
        (("T", 1), 5, 0),
        (("%LMQ%a", 0), 3, 0),
        (("%LMQ%c", 0), 0, 0),
    ]


def filled():
    disk = MemoryDisk()
    store = open_store(disk)
    for number in range(30):
        send(store, queue_id=number % 2)
        put(store, sys_flag=4)
    store.commit()
    store.queue_store.write()
    return disk, store


def differ(store):
    return list(differences(store.log, store.queue_store, store.config))


def test_a_store_that_works_has_no_difference():
    _, store = filled()
    assert differ(store) == []
    store.delete_topics(["T"])
    send(store)
    assert differ(store) == [Difference(("T", 1), -1, (0, 15), (0, 0))]


def test_a_wrong_unit_is_reported_with_the_expected_one():
    disk, store = filled()
    file = disk.contents[f"{QUEUE}/{0:020d}"]
    right = UNIT.unpack(file[2 * UNIT_SIZE : 3 * UNIT_SIZE])
    file[2 * UNIT_SIZE + 7] ^= 1
    assert differ(store) == [
        Difference(("T", 0), 2, right, (right[0] ^ 1, *right[1:])),
    ]


def test_a_queue_with_a_wrong_end_or_without_records_is_reported():
    _, store = filled()
    queue = store.queue_store.queues["T", 0]
    queue.max_offset -= 1
    stranger = store.queue_store.create("Stranger", 0)
    stranger.append_recovered(0, UNIT.pack(0, 100, 0))
    found = {difference.key: difference for difference in differ(store)}
    assert found["T", 0][1:] == (-1, (0, 15), (0, 14))
    assert found["Stranger", 0][1:] == (-1, (), (0, 1))
    assert len(found) == 2


def test_a_span_begins_where_the_topic_was_made_the_last_time():
    _, store = filled()
    store.delete_topics(["T"])
    begins_at = store.max_physical_offset
    send(store)
    send(store)
    found = spans(store.log, Places(DELAYS))
    assert found["T", 0] == (0, 2, begins_at)
    assert found["T", 1][:2] == (0, 15)
