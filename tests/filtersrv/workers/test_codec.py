from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from tests.filtersrv.messages import message
from trocket.common.message_properties import properties_from_bytes
from trocket.filtersrv.workers.inside import frames
from trocket.filtersrv.workers.inside.python_filter import FilterMessage, parse_properties
from trocket.filtersrv.workers.worker_filter import message_frames, message_size


def test_a_filter_in_python_sees_what_the_message_holds() -> None:
    sent = message(
        b"b\0dy", properties={"TAGS": "t", "KEYS": "a b", "n": "ä"}, offset=4, sys_flag=8
    )
    framed = b"".join(message_frames([sent, sent]))
    kind, number, size = frames.HEAD.unpack_from(framed)
    assert (kind, number, size) == (frames.MESSAGE, 0, len(framed) // 2 - frames.HEAD.size)
    seen = FilterMessage(framed[frames.HEAD.size : frames.HEAD.size + size])
    for name in (
        "topic", "queue_id", "queue_offset", "tags", "keys", "properties", "body", "flag",
        "born_timestamp_ms", "store_timestamp_ms", "reconsume_times", "sys_flag",
    ):  # fmt: skip
        assert getattr(seen, name) == getattr(sent, name), name
    assert seen.message_id == sent.offset_message_id


def test_the_producers_id_counts_before_the_brokers() -> None:
    framed = b"".join(message_frames([message(properties={"UNIQ_KEY": "ABC"})]))
    assert FilterMessage(framed[frames.HEAD.size :]).message_id == "ABC"


def test_an_address_of_ipv6_has_room() -> None:
    sent = message(b"body", host="2001:db8::1", sys_flag=0x30)
    seen = FilterMessage(b"".join(message_frames([sent]))[frames.HEAD.size :])
    assert (seen.message_id, seen.body) == (sent.offset_message_id, b"body")


@given(
    st.lists(st.sampled_from([b"name", b"\x01", b"\x02", b"value", b"\xff", "ä".encode()])).map(
        b"".join
    )
)
def test_properties_are_parsed_as_everywhere_else(raw: bytes) -> None:
    assert parse_properties(raw) == properties_from_bytes(raw)


def test_the_size_of_a_message_is_what_can_be_large_of_it() -> None:
    sent = message(b"x" * 5_000, properties={"a": "b" * 1_000})
    framed = len(b"".join(message_frames([sent])))
    assert message_size(sent) <= framed <= message_size(sent) + 500


def test_the_layout_has_no_holes() -> None:
    assert frames.MESSAGE_HEAD.size == struct.calcsize(">iqqiiqqiqiiBBHI") == 72
