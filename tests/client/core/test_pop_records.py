"""client/core/pop_records.py: which messages a broker's records say are not acknowledged."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from trocket.client.core.pop_records import PopRecords, Unacked
from trocket.common.message_properties import properties_to_bytes
from trocket.remoting.bodies import CheckPointBody
from trocket.remoting.message import MessageExt

REVIVE = "rmq_sys_REVIVE_LOG_C"
POP_MS = 1_700_000_000_000
POINT = {"t": "T", "q": 2, "c": "g", "so": 10, "pt": POP_MS, "it": 60_000, "n": 3, "bn": "b"}
ACK = {"t": "T", "q": 2, "c": "g", "so": 10, "pt": POP_MS, "bn": "b"}


def message(tag: str, body: dict[str, Any] | bytes, **properties: str) -> MessageExt:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return MessageExt(
        REVIVE, 5, 0, 0, text, properties_to_bytes({"TAGS": tag, **properties}), 0, 0, 0, b"", 0,
        b"", 0, 0, 0, 0, 0,
    )  # fmt: skip


def waiting(tag: str, body: dict[str, Any] | bytes, queue_id: str = "5") -> MessageExt:
    made = message(tag, body, REAL_TOPIC=REVIVE, REAL_QID=queue_id)
    made.topic = "rmq_sys_wheel_timer"
    return made


def unacked(*messages: MessageExt, group: str = "g", now_ms: int = 0) -> list[Unacked]:
    records = PopRecords(group, "b")
    for each in messages:
        records.take(each, REVIVE)
    return list(records.unacked(now_ms))


def offsets(found: list[Unacked]) -> list[int]:
    return [each.receipt.offset for each in found]


def test_a_check_point_without_acknowledgements_has_all_its_messages() -> None:
    found = unacked(message("ck", POINT | {"d": [0, 1, 4]}))
    assert offsets(found) == [10, 11, 14]
    assert found[2] == Unacked("T", found[2].receipt, True)
    assert found[2].receipt.to_text() == f"10 {POP_MS} 60000 5 0 b 2 14"
    assert found[2].receipt.revive_time == POP_MS + 60_000


def test_without_differences_the_messages_are_consecutive() -> None:
    assert offsets(unacked(message("ck", POINT))) == [10, 11, 12]
    assert offsets(unacked(message("ck", POINT | {"n": 127}))) == list(range(10, 42))


def test_acknowledged_messages_are_left_out_whatever_comes_first() -> None:
    ack, batch = message("ack", ACK | {"ao": 11}), message("bAck", ACK | {"ao": -1, "aol": [10]})
    point = message("ck", POINT)
    assert offsets(unacked(point, ack)) == [10, 12]
    assert offsets(unacked(ack, batch, point)) == [12]
    assert offsets(unacked(batch, point, point, ack)) == [12]  # it moved on meanwhile


def test_a_retry_topic_has_its_form_in_the_receipt() -> None:
    for name, form in (("%RETRY%g_T", "1"), ("%RETRY%g+T", "2")):
        (first, *_) = unacked(message("ck", POINT | {"t": name}))
        assert (first.topic, first.receipt.form) == (name, form)


def test_a_waiting_record_names_the_revive_queue() -> None:
    assert unacked(waiting("ck", POINT, "7"))[0].receipt.revive_queue_id == 7
    other = message("ck", POINT, REAL_TOPIC="Orders", REAL_QID="7")
    assert unacked(other) == []


def test_what_is_visible_again_or_of_another_group_is_left_out() -> None:
    point, due = waiting("ck", POINT), message("ck", POINT)
    assert unacked(point, now_ms=POP_MS + 60_000) == []
    assert len(unacked(point, now_ms=POP_MS + 59_999)) == 3
    # The broker has not processed it yet.
    assert len(unacked(point, due, now_ms=POP_MS + 60_000)) == 3
    assert unacked(point, group="h") == []


def test_a_check_point_in_memory_has_its_acknowledged_messages_in_bits() -> None:
    records = PopRecords("g", "b")
    body = CheckPointBody.from_body(json.dumps(POINT | {"bm": 0b101}).encode())
    records.take_check_point(body, 0, is_stored=False)
    (only,) = records.unacked(0)
    assert (only.receipt.offset, only.is_stored) == (11, False)
    records.take(message("ck", POINT), REVIVE)  # it was stored meanwhile
    (only,) = records.unacked(0)
    assert (only.receipt.offset, only.receipt.revive_queue_id, only.is_stored) == (11, 5, True)
    full = CheckPointBody.from_body(json.dumps(POINT | {"n": 32, "bm": -1, "so": 50}).encode())
    records.take_check_point(full, 0, is_stored=False)
    assert len(list(records.unacked(0))) == 1


def test_what_is_no_record_is_ignored() -> None:
    assert unacked(message("ck", b"{"), message("ack", b"[]"), message("TagA", POINT)) == []


@given(st.binary(max_size=60), st.sampled_from(["ck", "ack", "bAck"]))
def test_any_bytes_are_ignored_or_read(body: bytes, tag: str) -> None:
    unacked(message(tag, body))
