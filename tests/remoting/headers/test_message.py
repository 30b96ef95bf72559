"""The send header and its one-letter twin, and the wire names of pulling and looking up."""

from __future__ import annotations

import pytest

from trocket.remoting.errors import RequestRefused
from trocket.remoting.headers import (
    SEND_MESSAGE_V2_LETTERS,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
    ViewMessageRequestHeader,
    decode,
    decode_send_message_v2,
    encode_header,
)

V1 = {
    "producerGroup": "g",
    "topic": "t",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4",
    "queueId": "-1",
    "sysFlag": "5",
    "bornTimestamp": "1795239508756",
    "flag": "7",
    "properties": "KEYS\x01k\x02",
    "reconsumeTimes": "2",
    "unitMode": "false",
    "maxReconsumeTimes": "16",
    "batch": "true",
    "bname": "broker-a",
}
V2 = dict(zip("abcdefghijklmn", V1.values(), strict=True))


def test_letters_mean_the_same_fields_as_the_long_names() -> None:
    long_names = decode(SendMessageRequestHeader, V1)
    letters = decode_send_message_v2(V2)
    assert letters.topic == "t"
    for name in SEND_MESSAGE_V2_LETTERS.values():
        assert getattr(letters, name) == getattr(long_names, name)
        assert getattr(letters, name) is not None
    assert isinstance(letters, SendMessageRequestHeader)


def test_both_forms_come_back_as_they_were() -> None:
    assert encode_header(decode(SendMessageRequestHeader, V1)) == V1
    assert encode_header(decode_send_message_v2(V2)) == V2


def test_every_letter_stands_for_another_field() -> None:
    assert "".join(SEND_MESSAGE_V2_LETTERS) == "abcdefghijklmn"
    assert len(set(SEND_MESSAGE_V2_LETTERS.values())) == 14


@pytest.mark.parametrize("letter", "abcdefgh")
def test_a_missing_required_letter_is_refused_by_its_letter(letter: str) -> None:
    fields = {key: text for key, text in V2.items() if key != letter}
    with pytest.raises(RequestRefused, match=f"the custom field <{letter}> is null"):
        decode_send_message_v2(fields)


@pytest.mark.parametrize("letter", "ijklmn")
def test_the_other_letters_may_be_missing(letter: str) -> None:
    fields = {key: text for key, text in V2.items() if key != letter}
    assert encode_header(decode_send_message_v2(fields)) == fields


def test_a_v2_header_does_not_read_long_names() -> None:
    with pytest.raises(RequestRefused, match="<a> is null"):
        decode(SendMessageRequestHeaderV2, V1)


def test_a_send_answer_carries_region_and_trace_beside_its_own_fields() -> None:
    header = SendMessageResponseHeader(
        msg_id="ID", queue_id=1, queue_offset=2, msg_region="DefaultRegion", trace_on="true"
    )
    assert encode_header(header) == {
        "msgId": "ID",
        "queueId": "1",
        "queueOffset": "2",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }


def test_a_pull_needs_all_but_its_expression_and_newer_fields() -> None:
    fields = {
        "consumerGroup": "g",
        "topic": "t",
        "queueId": "0",
        "queueOffset": "10",
        "maxMsgNums": "32",
        "sysFlag": "2",
        "commitOffset": "-1",
        "suspendTimeoutMillis": "15000",
        "subVersion": "0",
    }
    assert encode_header(decode(PullMessageRequestHeader, fields)) == fields
    for name in fields:
        fewer = {key: text for key, text in fields.items() if key != name}
        with pytest.raises(RequestRefused, match=f"<{name}> is null"):
            decode(PullMessageRequestHeader, fewer)


def test_a_pull_answer_has_rocketmqs_wire_names() -> None:
    header = PullMessageResponseHeader(
        suggest_which_broker_id=0, next_begin_offset=1, min_offset=2, max_offset=3
    )
    assert encode_header(header) == {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": "1",
        "minOffset": "2",
        "maxOffset": "3",
    }


QUERY = {
    "topic": "t",
    "key": "k",
    "maxNum": "64",
    "beginTimestamp": "0",
    "endTimestamp": "9223372036854775807",
}


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"_UNIQUE_KEY_QUERY": "false"},
        {"_UNIQUE_KEY_QUERY": "true", "indexType": "U", "lastKey": "x", "bname": "broker-a"},
    ],
)
def test_a_look_up_by_key_comes_back_as_it_was(more: dict[str, str]) -> None:
    header = decode(QueryMessageRequestHeader, QUERY | more)
    assert header.is_unique_key_query is {"true": True, "false": False}.get(
        more.get("_UNIQUE_KEY_QUERY", "")
    )
    assert encode_header(header) == QUERY | more


@pytest.mark.parametrize("name", QUERY)
def test_a_look_up_by_key_needs_all_of_its_older_fields(name: str) -> None:
    fewer = {key: text for key, text in QUERY.items() if key != name}
    with pytest.raises(RequestRefused, match=f"<{name}> is null"):
        decode(QueryMessageRequestHeader, fewer)


@pytest.mark.parametrize("fields", [{"offset": "213"}, {"topic": "t", "offset": "-1"}])
def test_a_look_at_an_offset_comes_back_as_it_was(fields: dict[str, str]) -> None:
    assert encode_header(decode(ViewMessageRequestHeader, fields)) == fields
    with pytest.raises(RequestRefused, match="<offset> is null"):
        decode(ViewMessageRequestHeader, {"topic": "t"})


def test_an_answer_by_key_has_rocketmqs_wire_names() -> None:
    header = QueryMessageResponseHeader(
        index_last_update_timestamp=1, index_last_update_phyoffset=2
    )
    assert encode_header(header) == {
        "indexLastUpdateTimestamp": "1",
        "indexLastUpdatePhyoffset": "2",
    }
