"""The headers of topics and groups, from 4.9 and from 5.x tools."""

from __future__ import annotations

from trocket.remoting.headers import (
    CreateTopicRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    GetAllTopicConfigRequestHeader,
    decode,
    encode_header,
)

TOPIC_4_9 = {
    "topic": "t",
    "defaultTopic": "TBW102",
    "readQueueNums": "2",
    "writeQueueNums": "3",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": "0",
    "order": "false",
}


def test_a_topic_of_4_9_has_no_attributes() -> None:
    header = decode(CreateTopicRequestHeader, TOPIC_4_9)
    assert (header.read_queue_nums, header.write_queue_nums, header.perm) == (2, 3, 6)
    assert header.attributes is None
    assert encode_header(header) == TOPIC_4_9


def test_a_topic_of_5_brings_changes_of_attributes() -> None:
    fields = {**TOPIC_4_9, "attributes": "+message.type=FIFO", "force": "false"}
    header = decode(CreateTopicRequestHeader, fields)
    assert header.attributes == "+message.type=FIFO"
    assert encode_header(header) == fields


def test_without_fields_all_topics_are_meant() -> None:
    assert decode(GetAllTopicConfigRequestHeader, {}).topic_seq is None


def test_both_names_of_forgetting_offsets_are_read() -> None:
    header = decode(
        DeleteSubscriptionGroupRequestHeader,
        {"groupName": "g", "removeOffset": "false", "cleanOffset": "true"},
    )
    assert (header.clean_offset, header.remove_offset) == (True, False)
