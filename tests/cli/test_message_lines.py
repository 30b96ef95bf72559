"""A message as a line of JSON, both ways, and as columns."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from trocket.cli.message_lines import BadLineError, as_json, as_text, from_json
from trocket.client import Message, MessageQueue, ReceivedMessage
from trocket.common.message_properties import properties_to_bytes
from trocket.remoting.hosts import host_bytes
from trocket.remoting.message import MessageExt


def received(body: bytes = b"text", **properties: str) -> ReceivedMessage:
    ext = MessageExt(
        topic="T",
        queue_id=3,
        queue_offset=7,
        physical_offset=1000,
        body=body,
        properties_bytes=properties_to_bytes(properties),
        flag=5,
        sys_flag=0,
        born_timestamp_ms=1_700_000_000_000,
        born_host=host_bytes("192.0.2.1", 4000),
        store_timestamp_ms=1_700_000_000_001,
        store_host=host_bytes("192.0.2.2", 10911),
        reconsume_times=0,
        prepared_transaction_offset=0,
        store_size=200,
        magic=0,
        body_crc=0,
    )
    return ReceivedMessage(ext, MessageQueue("T", "broker-a", 3), "T")


def read(tree: Any) -> Message:
    return from_json(json.dumps(tree).encode(), "To")


def test_what_consume_writes_send_reads() -> None:
    message = received(
        TAGS="A", KEYS="k1 k2", UNIQ_KEY="id", __SHARDINGKEY="s", own="mine", WAIT="true"
    )
    tree = as_json(message)
    assert (tree["body"], tree["messageId"], tree["brokerName"]) == ("text", "id", "broker-a")
    assert (tree["queueId"], tree["queueOffset"], tree["physicalOffset"]) == (3, 7, 1000)
    back = read(tree)
    assert (back.topic, back.body, back.flag) == ("To", b"text", 5)
    assert (back.tags, back.keys, back.sharding_key) == ("A", "k1 k2", "s")
    assert back.properties == {"own": "mine"}
    assert back.delay_level == 0


def test_a_body_that_is_not_text_travels_in_base64() -> None:
    tree = as_json(received(b"\xff\x00"))
    assert "body" not in tree
    assert read(tree).body == b"\xff\x00"


def test_a_delay_is_not_copied() -> None:
    tree = as_json(received(DELAY="3"))
    assert read(tree).delay_level == 0


def test_a_line_by_hand_has_short_names() -> None:
    message = read(
        {"body": "x", "tags": "A", "keys": ["a", "b"], "shardingKey": "s", "delaySeconds": 1.5}
    )
    assert (message.tags, message.keys, message.sharding_key) == ("A", ["a", "b"], "s")
    assert (message.delay_s, read({"body": "x", "delayLevel": 2}).delay_level) == (1.5, 2)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b"hello", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b"{}", "either body or bodyBase64"),
        (b'{"body":"a","bodyBase64":"YQ=="}', "either body or bodyBase64"),
        (b'{"body":1}', "either body or bodyBase64"),
        (b'{"bodyBase64":"*"}', "bodyBase64: "),
        (b'{"body":"a","tag":"A"}', "unknown member 'tag'; known members: body,"),
        (b'{"body":"a","tags":1}', "tags must be a string"),
        (b'{"body":"a","keys":[1]}', "keys must be a string or a list"),
        (b'{"body":"a","properties":{"a":1}}', "must be an object of strings"),
        (b'{"body":"a","properties":[]}', None),
        (b'{"body":"a","delayLevel":1.5}', "delayLevel must be a number"),
        (b'{"body":"a","delayLevel":true}', "delayLevel must be a number"),
        (b'{"body":"a","isCompressed":true}', "export without --as-stored"),
        (b"\xff", "not JSON"),
    ],
)
def test_a_line_that_is_no_message_is_refused_with_the_reason(
    line: bytes, text: str | None
) -> None:
    if text is None:
        assert from_json(line, "T").body == b"a"
        return
    with pytest.raises(BadLineError, match=re.escape(text)):
        from_json(line, "T")


def test_columns_hold_nothing_that_moves_a_cursor() -> None:
    text = as_text(received(b"a\nb\x1b[2J", TAGS="A", KEYS="k", UNIQ_KEY="id"))
    assert text.endswith("broker-a/3 @7  tags=A  keys=k  id=id  a\\nb\\x1b[2J")
    assert as_text(received(b"\xff")).endswith("(1 bytes) ff")
