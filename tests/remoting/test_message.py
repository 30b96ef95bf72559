"""remoting/message.py."""

from __future__ import annotations

from trocket.remoting.hosts import host_bytes
from trocket.remoting.message import Message, MessageExt


def stored(properties: bytes) -> MessageExt:
    return MessageExt(
        topic="T",
        queue_id=1,
        queue_offset=2,
        physical_offset=0x2A8,
        body=b"",
        properties_bytes=properties,
        flag=0,
        sys_flag=0x20,
        born_timestamp_ms=1,
        born_host=host_bytes("127.0.0.1", 50000),
        store_timestamp_ms=2,
        store_host=host_bytes("2001:db8::2", 10911),
        reconsume_times=0,
        prepared_transaction_offset=0,
        store_size=100,
        magic=0,
        body_crc=0,
    )


def test_messages_do_not_share_their_properties():
    first, second = Message("T", b""), Message("T", b"")
    first.properties["TAGS"] = "A"
    assert second.properties == {}


def test_the_named_properties_are_read_from_the_bytes():
    message = stored(b"TAGS\x01A\x02KEYS\x01k1 k2\x02UNIQ_KEY\x01u\x02")
    assert (message.tags, message.keys, message.unique_key) == ("A", "k1 k2", "u")
    assert message.properties is message.properties


def test_a_message_without_properties_has_no_tag_key_or_id():
    message = stored(b"")
    assert (message.tags, message.keys, message.unique_key) == (None, None, None)


def test_hosts_and_the_offset_id_are_written_for_people():
    message = stored(b"")
    assert message.born_host_text == "127.0.0.1:50000"
    assert message.store_host_text == "[2001:db8::2]:10911"
    # From the recorded store 5.5.0-edge.
    assert message.offset_message_id == "20010DB800000000000000000000000200002A9F00000000000002A8"


def test_having_looked_at_the_properties_does_not_make_messages_differ():
    first, second = stored(b"TAGS\x01A\x02"), stored(b"TAGS\x01A\x02")
    assert first.properties
    assert first == second
    assert first != stored(b"TAGS\x01B\x02")
