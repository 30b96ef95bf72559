"""Check points and acknowledgements, and the messages that they are stored as."""

from __future__ import annotations

import json

import pytest

from trocket.broker.pop.check_point import CheckPoint
from trocket.broker.pop.records import (
    Ack,
    RecordPlace,
    ack_record,
    check_point_record,
    read_record,
)
from trocket.common.message_properties import properties_from_bytes
from trocket.remoting.bodies import CheckPointBody
from trocket.remoting.errors import RemoteProtocolError
from trocket.remoting.message import MessageExt
from trocket.store.writing.inner_message import InnerMessage

PLACE = RecordPlace("rmq_sys_REVIVE_LOG_DefaultCluster", bytes(8))
NOW_MS = 1_700_000_000_500


def check_point(diffs=range(3), **more: object) -> CheckPoint:
    return CheckPoint("T", "G", 2, 100, 1_700_000_000_000, 60_000, "broker-a", diffs, **more)


def stored(record: InnerMessage) -> MessageExt:
    return MessageExt(
        topic=record.topic, queue_id=record.queue_id, queue_offset=0, physical_offset=0,
        flag=0, sys_flag=0, born_timestamp_ms=record.born_timestamp_ms, born_host=bytes(8),
        store_timestamp_ms=0, store_host=bytes(8), reconsume_times=0,
        prepared_transaction_offset=0, magic=0, body=record.body, body_crc=0, store_size=0,
        properties_bytes=record.properties,
    )  # fmt: skip


def test_the_record_of_a_check_point_is_apaches() -> None:
    record = check_point_record(check_point((0, 2, 5)), 3, PLACE, NOW_MS)
    assert (record.topic, record.queue_id) == (PLACE.topic, 3)
    assert properties_from_bytes(record.properties) == {
        "TAGS": "ck",
        "TIMER_DELIVER_MS": "1700000059000",
        "UNIQ_KEY": "T@2@100@G@1700000000000@broker-a@ck",
    }
    assert json.loads(record.body) == {
        "so": 100, "pt": 1_700_000_000_000, "it": 60_000, "bm": 0, "n": 3, "q": 2, "t": "T",
        "c": "G", "ro": 0, "d": [0, 2, 5], "bn": "broker-a", "sp": False,
    }  # fmt: skip


def test_the_record_of_one_acknowledged_message_is_apaches() -> None:
    ck = check_point()
    record = ack_record(Ack(ck.key, (101,)), ck.revive_time, 3, PLACE, NOW_MS)
    assert properties_from_bytes(record.properties) == {
        "TAGS": "ack",
        "TIMER_DELIVER_MS": "1700000060000",
        "UNIQ_KEY": "T@2@101@G@1700000000000@broker-a@ack",
    }
    assert json.loads(record.body) == {
        "ao": 101, "so": 100, "c": "G", "t": "T", "q": 2, "pt": 1_700_000_000_000,
        "bn": "broker-a",
    }  # fmt: skip


def test_several_acknowledged_messages_have_one_record_with_the_brokers_name() -> None:
    ck = check_point()
    record = ack_record(Ack(ck.key, (100, 102)), ck.revive_time, 3, PLACE, NOW_MS)
    properties = properties_from_bytes(record.properties)
    assert properties["TAGS"] == "bAck"
    assert properties["UNIQ_KEY"] == "T@2@[100, 102]@G@1700000000000@bAck"
    assert json.loads(record.body)["aol"] == [100, 102]
    assert json.loads(record.body)["ao"] == -1
    assert json.loads(record.body)["bn"] == "broker-a"


@pytest.mark.parametrize(
    "made",
    [
        check_point(),
        check_point((0, 7)),
        check_point((3,), suspend=True, re_put_times=4),
    ],
)
def test_a_check_point_is_read_as_it_was_written(made: CheckPoint) -> None:
    assert read_record(stored(check_point_record(made, 0, PLACE, NOW_MS))) == made


@pytest.mark.parametrize("offsets", [(100,), (100, 102)])
def test_an_acknowledgement_is_read_as_it_was_written(offsets: tuple[int, ...]) -> None:
    ack = Ack(check_point().key, offsets)
    assert read_record(stored(ack_record(ack, 0, 0, PLACE, NOW_MS))) == ack


def test_messages_of_other_tags_are_no_records() -> None:
    record = check_point_record(check_point(), 0, PLACE, NOW_MS)
    record.change_properties({"TAGS": "other"})
    assert read_record(stored(record)) is None


def test_a_check_point_of_an_old_broker_has_consecutive_offsets() -> None:
    old = CheckPoint.from_body(CheckPointBody(start_offset=7, num=3, topic="T", group="G"))
    assert list(old.offsets()) == [7, 8, 9]


@pytest.mark.parametrize("count", ["x", "-1", "99999999999999999999", "\u0663" * 12])
def test_a_count_of_puts_that_is_no_number_is_taken_for_many(count: str) -> None:
    assert CheckPoint.from_body(CheckPointBody(num=1, re_put_times=count)).re_put_times == 127


@pytest.mark.parametrize(
    "body",
    [
        CheckPointBody(num=0),
        CheckPointBody(num=-1),
        CheckPointBody(num=33),
        CheckPointBody(num=2**31 - 1),
        CheckPointBody(queue_offset_diff=list(range(33))),
        CheckPointBody(queue_offset_diff=[2, 1]),
        CheckPointBody(queue_offset_diff=[-1, 1]),
        CheckPointBody(queue_offset_diff=[1, 1]),
        CheckPointBody(num=1, start_offset=-1),
        CheckPointBody(num=1, pop_time=-1),
        CheckPointBody(num=1, invisible_time=-1),
        CheckPointBody(num=1, queue_id=-1),
        CheckPointBody(num=2, start_offset=2**63 - 1),
        CheckPointBody(num=1, pop_time=2**62, invisible_time=2**62),
    ],
)
def test_a_check_point_with_impossible_numbers_is_refused(body: CheckPointBody) -> None:
    with pytest.raises(RemoteProtocolError, match="check point"):
        CheckPoint.from_body(body)


@pytest.mark.parametrize("diffs", [range(3), (0, 2, 5)])
def test_acknowledgements_are_marked_by_offset(diffs) -> None:
    ck = check_point(diffs)
    first, second, third = ck.offsets()
    assert [ck.ack(offset) for offset in (99, 101 if second != 101 else 103, third + 1)] == [
        False, False, False,
    ]  # fmt: skip
    assert ck.ack(second)
    assert ck.ack(second)
    assert (ck.acked_offsets(), ck.unacked_offsets()) == ([second], [first, third])
    assert not ck.is_done
    assert ck.ack(first)
    assert ck.ack(third)
    assert ck.is_done
