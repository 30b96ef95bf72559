"""remoting/message_codec.py: laws, bad bytes, and stores and answers that Apache wrote."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import ipaddress
import json
import lzma
import mmap
import struct
import tarfile
from pathlib import Path
from typing import Any
from zlib import crc32

import construct
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from trocket.common.java_hash import index_key_hash
from trocket.remoting import message_codec
from trocket.remoting.body_compression import CompressionType, compress
from trocket.remoting.errors import LocalProtocolError, RemoteProtocolError
from trocket.remoting.hosts import host_bytes
from trocket.remoting.message import MessageExt
from trocket.remoting.message_codec import (
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    PROPERTIES_SIZE_MAX,
    PROPERTY_CRC_SIZE,
    RECORD_PREFIX,
    check_record_crc,
    decode_messages,
    decode_record,
    encode_blank,
    encode_message,
    encode_record,
    record_properties,
    record_topic,
    tags_code,
    with_property_crc,
)

from ..constructs import RECORD

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
HOST = st.binary(min_size=8, max_size=8) | st.binary(min_size=20, max_size=20)
TOPIC = st.text("aZ%_Ä", max_size=130)
ARGUMENTS = st.fixed_dictionaries(
    {
        "topic": TOPIC,
        "queue_id": INT32,
        "queue_offset": INT64,
        "physical_offset": INT64,
        "body": st.binary(max_size=60),
        "properties": st.binary(max_size=60),
        "born_timestamp_ms": INT64,
        "born_host": HOST,
        "store_timestamp_ms": INT64,
        "store_host": HOST,
        "flag": INT32,
        "sys_flag": INT32,
        "reconsume_times": INT32,
        "prepared_transaction_offset": INT64,
    }
)
V4 = host_bytes("127.0.0.1", 10911)


def record(topic: str = "T", body: bytes = b"body", properties: bytes = b"", **more: Any) -> bytes:
    return encode_record(
        topic,
        1,
        2,
        3,
        body,
        properties,
        born_timestamp_ms=4,
        born_host=V4,
        store_timestamp_ms=5,
        store_host=V4,
        **more,
    )


def stored_fields(message: MessageExt) -> dict[str, Any]:
    """The message by the names of the construct declaration."""
    fields = {field.name: getattr(message, field.name) for field in dataclasses.fields(message)}
    fields["topic"] = message.topic.encode()
    fields["properties"] = fields.pop("properties_bytes")
    fields["total_size"] = fields.pop("store_size")
    del fields["_properties"]
    return fields


# Laws


@given(arguments=ARGUMENTS)
def test_a_record_survives_being_written_and_read(arguments):
    raw = encode_record(**arguments)
    message = decode_record(raw)
    v6_bits = (len(arguments["born_host"]) == 20) << 4 | (len(arguments["store_host"]) == 20) << 5
    expected = arguments | {"sys_flag": arguments["sys_flag"] & ~0x30 | v6_bits}
    assert {**stored_fields(message), "topic": message.topic} == expected | {
        "total_size": len(raw),
        "magic": MAGIC_V1 if len(arguments["topic"].encode()) <= 127 else MAGIC_V2,
        "body_crc": crc32(arguments["body"]) & 0x7FFFFFFF,
    }
    assert encode_message(message) == raw


@given(arguments=ARGUMENTS)
def test_a_record_is_what_the_declaration_reads_and_builds(arguments):
    raw = encode_record(**arguments)
    parsed = RECORD.parse(raw)
    fields = stored_fields(decode_record(raw))
    assert {name: parsed[name] for name in fields} == fields
    assert RECORD.build(parsed) == raw


@given(arguments=ARGUMENTS, before=st.binary(max_size=5), after=st.binary(max_size=5))
def test_a_record_reads_the_same_wherever_it_stands(arguments, before, after):
    raw = encode_record(**arguments)
    for buffer in (before + raw + after, bytearray(before + raw), memoryview(before + raw + after)):
        assert decode_record(buffer, len(before)) == decode_record(raw)


def test_a_record_reads_from_a_mapped_file(tmp_path):
    file = tmp_path / "log"
    file.write_bytes(record() + record(topic="Ü" * 90))
    with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        first = decode_record(mapped)
        assert decode_record(mapped, first.store_size).topic == "Ü" * 90


def test_a_short_topic_may_stand_in_a_v2_record():
    parsed = RECORD.parse(record(topic="Short"))
    raw = RECORD.build(parsed | {"magic": MAGIC_V2, "total_size": parsed.total_size + 1})
    message = decode_record(raw)
    assert (message.topic, message.magic) == ("Short", MAGIC_V2)
    assert encode_message(message) == raw


def test_records_one_after_the_other_are_all_read():
    raw = record("A") + record("B" * 200) + record("C", body=b"")
    messages = decode_messages(raw)
    assert [message.topic for message in messages] == ["A", "B" * 200, "C"]
    assert b"".join(map(encode_message, messages)) == raw
    assert decode_messages(b"") == []


# What does not fit


@pytest.mark.parametrize(
    "change",
    [
        {"queue_id": 1 << 31},
        {"physical_offset": 1 << 63},
        {"sys_flag": 1 << 31},
        {"born_timestamp_ms": -(1 << 63) - 1},
        {"born_host": bytes(7)},
        {"store_host": bytes(21)},
        {"topic": "T" * 32_768},
        {"properties": bytes(PROPERTIES_SIZE_MAX + 1)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_does_not_fit_a_record_is_refused(change):
    good = dataclasses.asdict(decode_record(record()))
    names = inspect.signature(encode_record).parameters
    arguments = {name: good[name] for name in names if name != "properties"} | {"properties": b""}
    with pytest.raises(LocalProtocolError):
        encode_record(**arguments | change)
    arguments["properties_bytes"] = arguments.pop("properties")
    renamed = {"properties_bytes" if k == "properties" else k: v for k, v in change.items()}
    with pytest.raises(LocalProtocolError):
        encode_message(dataclasses.replace(decode_record(record()), **renamed))


@pytest.mark.parametrize("size", [1, 127, 128, 32_767])
def test_topics_up_to_the_limit_of_v2_fit(size):
    magic, field = record_topic("t" * size)
    assert (magic, len(field)) == ((MAGIC_V1, 1 + size) if size <= 127 else (MAGIC_V2, 2 + size))
    assert decode_record(record("t" * size)).topic == "t" * size


def test_a_message_that_was_changed_is_not_written_as_a_record_of_its_old_size():
    message = dataclasses.replace(decode_record(record()), body=b"longer than before")
    with pytest.raises(LocalProtocolError, match="bytes, not"):
        encode_message(message)


@pytest.mark.parametrize("size", [8, 9, 100])
def test_a_blank_is_its_size_and_magic_and_zeros(size):
    assert encode_blank(size) == struct.pack(">iI", size, 0xCBD43194) + bytes(size - 8)


def test_a_blank_of_less_than_its_head_is_refused():
    with pytest.raises(LocalProtocolError, match="8 bytes"):
        encode_blank(7)


# Bad bytes


@given(raw=st.binary(max_size=200), position=st.integers(-5, 205))
def test_random_bytes_are_no_record(raw, position):
    with pytest.raises(RemoteProtocolError):
        decode_record(raw, position)


def test_a_record_cut_anywhere_is_refused():
    v6 = host_bytes("::1", 1)
    for raw in (
        record(),
        encode_record(
            "Ü" * 100,
            1,
            2,
            3,
            b"",
            b"",
            born_timestamp_ms=4,
            born_host=v6,
            store_timestamp_ms=5,
            store_host=v6,
        ),
    ):
        for size in range(len(raw)):
            with pytest.raises(RemoteProtocolError):
                decode_record(raw[:size])
            with pytest.raises(RemoteProtocolError):
                decode_record(memoryview(raw)[:size], check_crc=False, read_body=False)


@given(arguments=ARGUMENTS, data=st.data())
def test_a_damaged_record_is_refused_or_reads_as_the_declaration_says(arguments, data):
    raw = bytearray(encode_record(**arguments))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        message = decode_record(raw, check_crc=False)
    except RemoteProtocolError:
        return
    parsed = RECORD.parse(bytes(raw))
    fields = stored_fields(message)
    assert {name: parsed[name] for name in fields} == fields


@given(arguments=ARGUMENTS, before=st.binary(max_size=5), after=st.binary(max_size=5))
def test_the_properties_of_a_record_are_found_wherever_it_stands(arguments, before, after):
    raw = encode_record(**arguments)
    for buffer in (before + raw + after, memoryview(before + raw + after)):
        found = record_properties(buffer, len(before), len(raw))
        assert found == arguments["properties"]
        assert isinstance(found, bytes)
    for size in (len(raw) - 1, len(raw) + 1):
        with pytest.raises(RemoteProtocolError):
            record_properties(before + raw + after, len(before), size)


def test_the_properties_of_a_record_cut_anywhere_are_refused():
    for raw in (record(properties=b"a\x01b\x02"), record("t" * 200, properties=b"a\x01b\x02")):
        for size in range(len(raw)):
            with pytest.raises(RemoteProtocolError):
                record_properties(raw[:size], 0, len(raw))


def test_a_topic_of_negative_length_hides_no_properties():
    """Two bytes back from its end stands a length with which all adds up."""
    raw = bytearray(record(body=b"body\0", topic="", properties=bytes(252)))
    topic_at = len(raw) - 252 - 2 - 1
    raw[topic_at] = 0xFE
    with pytest.raises(RemoteProtocolError, match="topic of -2 bytes"):
        record_properties(raw, 0, len(raw))


@given(arguments=ARGUMENTS, data=st.data())
def test_of_a_damaged_record_properties_are_found_where_it_can_be_read(arguments, data):
    raw = bytearray(encode_record(**arguments))
    size = len(raw)
    for _ in range(data.draw(st.integers(0, 3))):
        raw[data.draw(st.integers(0, size - 1))] = data.draw(st.integers(0, 255))
    raw = raw[: data.draw(st.sampled_from((size, data.draw(st.integers(0, size)))))]
    raw += b"rest"[: data.draw(st.integers(0, 4))]
    try:
        expected = decode_record(raw, check_crc=False)
    except RemoteProtocolError as error:
        assume("UTF-8" not in str(error))
        with pytest.raises(RemoteProtocolError):
            record_properties(raw, 0, size)
        return
    if expected.store_size != size:
        with pytest.raises(RemoteProtocolError):
            record_properties(raw, 0, size)
    else:
        assert record_properties(raw, 0, size) == expected.properties_bytes


@given(raw=st.binary(max_size=300), fixed=st.integers(0, 3), magic=st.booleans(), data=st.data())
def test_bytes_with_a_records_magic_are_refused_or_a_record(raw, fixed, magic, data):
    buffer = bytearray(raw.ljust(91, b"\x00"))
    total_size = data.draw(st.integers(80, len(buffer)))
    buffer[:8] = RECORD_PREFIX.pack(total_size, MAGIC_V2 if magic else MAGIC_V1)
    buffer[36:40] = (fixed << 4).to_bytes(4, "big")
    try:
        message = decode_record(buffer, check_crc=False)
    except RemoteProtocolError:
        return
    assert encode_message(message) == bytes(buffer[:total_size])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"magic": MAGIC_BLANK}, "magic cbd43194"),
        ({"magic": 0}, "magic 00000000"),
        ({"body_length": -1}, "body of -1 bytes"),
        ({"body_length": (1 << 31) - 1}, "body of 2147483647 bytes"),
        ({"total_size": 0}, "record of 0 bytes"),
        ({"total_size": -(1 << 31)}, "record of -2147483648 bytes"),
        ({"total_size": 90}, "record of 90 bytes"),
        ({"topic_length": -1}, "topic of -1 bytes"),
        ({"topic_length": 127}, "topic of 127 bytes"),
        ({"properties_length": -1}, "fields of"),
        ({"properties_length": 32_767}, "fields of"),
        ({"topic": b"\xff"}, "not UTF-8"),
        ({"body": b"b0dy"}, "CRC"),
        ({"body_crc": 0}, "CRC"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_each_contradiction_has_its_reason_and_position(change, reason):
    good = record()
    layout = RECORD.parse(good)
    built = b"".join(
        field.build(change.get(field.name, layout[field.name]), **layout)
        for field in RECORD.subcons
    )
    with pytest.raises(RemoteProtocolError, match=reason) as refusal:
        decode_messages(good + built, check_crc=True)
    assert refusal.value.position == len(good)


def test_the_crc_is_looked_at_only_when_asked_for():
    raw = bytearray(record(body=b"body"))
    raw[88] ^= 1
    assert decode_record(raw, check_crc=False).body == b"cody"
    assert decode_record(raw, check_crc=False, read_body=False).body == b""
    with pytest.raises(RemoteProtocolError, match="CRC"):
        decode_record(raw, read_body=False)


# Compressed bodies


@pytest.mark.parametrize("kind", list(CompressionType), ids=lambda kind: kind.name)
def test_a_compressed_body_is_inflated_when_asked_for(kind):
    packed = compress(b"text " * 50, kind)
    raw = record(body=packed, sys_flag=kind.sys_flag)
    stored = decode_record(raw)
    assert (stored.body, stored.sys_flag) == (packed, kind.sys_flag)
    (inflated,) = decode_messages(raw)
    assert (inflated.body, inflated.sys_flag) == (b"text " * 50, kind.sys_flag & ~1)
    assert inflated.store_size == len(raw)


def test_a_body_that_does_not_inflate_is_refused_with_the_records_position():
    good = record()
    with pytest.raises(RemoteProtocolError, match="zlib") as refusal:
        decode_messages(good + record(body=b"plain", sys_flag=0x301))
    assert refusal.value.position == len(good)


def test_all_bodies_of_an_answer_share_one_limit():
    packed = compress(bytes(1000), CompressionType.ZLIB)
    answer = record(body=packed, sys_flag=0x301) * 3
    assert len(decode_messages(answer, inflated_total_max=3000)) == 3
    with pytest.raises(RemoteProtocolError, match="more than 999 bytes"):
        decode_messages(answer, inflated_total_max=2999)


# The CRC of the whole record


@given(arguments=ARGUMENTS)
def test_a_property_crc_is_right_until_any_byte_before_it_changes(arguments):
    assume(not arguments["properties"].startswith(b"__CRC32#"))
    raw = with_property_crc(encode_record(**arguments))
    assert check_record_crc(raw, 0, len(raw)) is True
    assert decode_record(raw).properties_bytes[-PROPERTY_CRC_SIZE:] == raw[-PROPERTY_CRC_SIZE:]
    for position in range(0, len(raw) - PROPERTY_CRC_SIZE, 7):
        damaged = bytearray(raw)
        damaged[position] ^= 0x40
        assert check_record_crc(memoryview(damaged), 0, len(raw)) is False


@pytest.mark.parametrize("size", [PROPERTIES_SIZE_MAX - 20, PROPERTIES_SIZE_MAX - 19])
def test_properties_may_grow_to_the_limit_and_not_beyond(size):
    raw = record(properties=b"\x02" * size)
    if size + PROPERTY_CRC_SIZE <= PROPERTIES_SIZE_MAX:
        assert check_record_crc(with_property_crc(raw), 0, len(raw) + PROPERTY_CRC_SIZE)
    else:
        with pytest.raises(LocalProtocolError, match="properties of"):
            with_property_crc(raw)


def test_a_record_without_a_crc_property_has_nothing_to_check():
    raw = record(properties=b"TAGS\x01A\x02")
    assert check_record_crc(raw, 0, len(raw)) is None
    assert check_record_crc(raw, 0, 5) is None


# Stores that Apache wrote

STORES = [f"{v}-{k}" for v in ("4.9.7", "5.5.0") for k in ("mix", "ext", "edge", "killed")]
STORES.append("5.5.0-crc")
in_each_store = pytest.mark.parametrize("store", STORES)


def store_files(golden: Path, store: str, folder: str) -> dict[str, bytes]:
    """The files below a folder of a recorded store, by their path below that folder."""
    files: dict[str, bytes] = {}
    with tarfile.open(golden / "store" / f"{store}.tar.xz") as archive:
        for member in archive:
            name = member.name.removeprefix(f"{store}/{folder}/")
            if member.isfile() and name != member.name:
                content = archive.extractfile(member)
                assert content is not None
                files[name] = content.read()
    return files


def manifest(golden: Path, store: str, kind: str) -> list[dict[str, Any]]:
    plain = golden / "store" / f"{store}.manifest.jsonl"
    if plain.exists():
        text = plain.read_text()
    else:
        text = lzma.decompress(Path(f"{plain}.xz").read_bytes()).decode()
    return [entry for entry in map(json.loads, text.splitlines()) if entry["kind"] == kind]


def log_records(golden: Path, store: str) -> dict[int, tuple[MessageExt, bytes]]:
    """Every record of a store's commit log by physical offset, found by walking it."""
    records: dict[int, tuple[MessageExt, bytes]] = {}
    for name, content in sorted(store_files(golden, store, "commitlog").items()):
        position = 0
        while position + 8 <= len(content):
            total_size, magic = RECORD_PREFIX.unpack_from(content, position)
            if magic == MAGIC_BLANK:
                assert total_size == len(content) - position
                break
            if total_size == 0:
                break
            message = decode_record(content, position)
            raw = content[position : position + message.store_size]
            records[int(name) + position] = message, raw
            position += message.store_size
    return records


def java_address(text: str) -> bytes:
    ip, _, port = text.lstrip("/").rpartition(":")
    return host_bytes(str(ipaddress.ip_address(ip.strip("[]"))), int(port))


def as_in_manifest(message: MessageExt, raw: bytes) -> dict[str, Any]:
    body = decode_record(raw, inflate=True).body
    return {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "physicalOffset": message.physical_offset,
        "size": message.store_size,
        "storeTimestamp": message.store_timestamp_ms,
        "bornTimestamp": message.born_timestamp_ms,
        "bornHost": message.born_host,
        "storeHost": message.store_host,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "reconsumeTimes": message.reconsume_times,
        "flag": message.flag,
        "bodyCRC": message.body_crc,
        "bodySize": len(body),
        "bodySha1": hashlib.sha1(body).hexdigest(),
        "rawSha1": hashlib.sha1(raw).hexdigest(),
        "magic": f"{message.magic & 0xFFFFFFFF:08x}",
        "msgId": message.offset_message_id,
        "tags": message.tags,
        "keys": message.keys,
        "uniqId": message.unique_key,
        "props": message.properties,
        "sysFlag": message.sys_flag & ~1,
    }


@in_each_store
def test_every_message_of_a_recorded_store_has_the_fields_that_apache_read(golden, store):
    records = log_records(golden, store)
    listed = manifest(golden, store, "message")
    assert len(listed) >= 30
    for entry in listed:
        for name in {"bornHost", "storeHost"} & entry.keys():
            entry[name] = java_address(entry[name])
        if "sysFlag" in entry:
            entry["sysFlag"] &= ~1  # 5.5.0 clears the compressed bit after inflating
        found = as_in_manifest(*records[entry["physicalOffset"]])
        expected = {name: value for name, value in entry.items() if name in found}
        assert len(expected) >= 9
        assert {name: found[name] for name in expected} == expected


@in_each_store
def test_every_record_of_a_recorded_store_is_written_back_to_the_same_bytes(golden, store):
    for offset, (message, raw) in log_records(golden, store).items():
        assert message.physical_offset == offset
        assert encode_message(message) == raw
        arguments = stored_fields(message) | {"topic": message.topic}
        for derived in ("total_size", "magic", "body_crc"):
            del arguments[derived]
        assert encode_record(**arguments) == raw


def test_every_record_of_the_crc_store_has_the_crc_property_that_we_write(golden):
    records = log_records(golden, "5.5.0-crc")
    for message, raw in records.values():
        assert check_record_crc(raw, 0, len(raw)) is True
        arguments = stored_fields(message) | {"topic": message.topic}
        for derived in ("total_size", "magic", "body_crc"):
            del arguments[derived]
        arguments["properties"] = message.properties_bytes[:-PROPERTY_CRC_SIZE]
        assert with_property_crc(encode_record(**arguments)) == raw


# The units of the ext stores hold addresses in the extension file instead.
@pytest.mark.parametrize("store", [store for store in STORES if not store.endswith("-ext")])
def test_the_tag_codes_in_recorded_consume_queues_are_ours(golden, store):
    records = log_records(golden, store)
    compared = 0
    for content in store_files(golden, store, "consumequeue").values():
        for offset, size, code in struct.iter_unpack(">qiq", content):
            if size in (0, (1 << 31) - 1) or offset not in records:
                continue
            message, raw = records[offset]
            assert len(raw) == size
            if message.topic != "SCHEDULE_TOPIC_XXXX":
                assert tags_code(message.tags) == code
                compared += 1
    assert compared >= 30


@in_each_store
def test_the_hashes_in_recorded_index_files_are_ours(golden, store):
    settings = (golden / "store" / f"{store.rpartition('-')[2]}.conf").read_text()
    slots = int(settings.partition("maxHashSlotNum=")[2].split()[0])
    records = log_records(golden, store)
    compared = 0
    for content in store_files(golden, store, "index").values():
        (count,) = struct.unpack_from(">i", content, 36)
        for number in range(1, count):
            code, offset = struct.unpack_from(">iq", content, 40 + slots * 4 + number * 20)
            if offset not in records:
                continue
            message = records[offset][0]
            keys = [*(message.keys or "").split(" "), message.unique_key]
            if store.startswith("5.5"):
                keys.append(f"T#{message.tags}")  # 5.5 indexes the tag, too
            assert code in {index_key_hash(f"{message.topic}#{key}") for key in keys if key}
            compared += 1
    assert compared >= 30


@pytest.mark.parametrize("serialize", ["json", "rocketmq"])
@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_recorded_answers_with_messages_are_read_and_written_back(golden, version, serialize):
    codes = set()
    for line in (golden / "wire" / f"{serialize}-{version}.jsonl").read_text().splitlines():
        frame = json.loads(line)
        body = bytes.fromhex(frame["frame_hex"])[-frame["body_len"] :] if frame["body_len"] else b""
        if frame["dir"] != "response" or body[4:7] != b"\xda\xa3\x20":
            continue
        codes.add(frame["request_code"])
        messages = decode_messages(body, check_crc=True, inflate=False)
        assert b"".join(map(encode_message, messages)) == body
        assert [m.topic.encode() for m in messages] == [
            parsed.topic for parsed in construct.GreedyRange(RECORD).parse(body)
        ]
    assert codes >= {11, 12, 33}


def test_every_public_name_exists():
    assert all(hasattr(message_codec, name) for name in message_codec.__all__)
