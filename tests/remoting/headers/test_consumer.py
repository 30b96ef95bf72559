"""The wire names that are not their field's in camel case, and what may be missing."""

from __future__ import annotations

from trocket.remoting.headers import (
    GetMaxOffsetRequestHeader,
    HeartbeatResponseHeader,
    SearchOffsetRequestHeader,
    UnregisterClientRequestHeader,
    decode,
    encode_header,
)


def test_a_client_leaves_under_its_id_with_java_s_spelling() -> None:
    fields = {"clientID": "c@1", "producerGroup": "p", "consumerGroup": "g"}
    header = decode(UnregisterClientRequestHeader, fields)
    assert header.client_id == "c@1"
    assert encode_header(header) == fields


def test_a_heartbeat_answer_has_its_shouting_names() -> None:
    header = HeartbeatResponseHeader(is_support_heart_beat_v2=True, is_sub_change=False)
    assert encode_header(header) == {
        "IS_SUPPORT_HEART_BEAT_V2": "true",
        "IS_SUB_CHANGE": "false",
    }


def test_a_4_9_client_does_not_say_which_maximum_or_boundary_it_means() -> None:
    queue = {"topic": "t", "queueId": "0"}
    assert decode(GetMaxOffsetRequestHeader, queue).committed is None
    header = decode(SearchOffsetRequestHeader, {**queue, "timestamp": "5"})
    assert (header.timestamp, header.boundary_type) == (5, None)
