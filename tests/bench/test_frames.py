"""The load generator's frames are what the official client sends, and its answers are counted."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from trocket.bench.frames import (
    END_TRANSACTION,
    JSON_TYPE,
    ONEWAY,
    OPAQUE_FIRST,
    ROCKETMQ_TYPE,
    SEND_MESSAGE_V2,
    BadAnswerError,
    SendTemplate,
    build_frame,
    take_answers,
)
from trocket.bench.transaction_frames import GROUP, TransactionTemplate, answer_fields

SERIALIZE_TYPES = pytest.mark.parametrize(
    "serialize_type", [JSON_TYPE, ROCKETMQ_TYPE], ids=["json", "rocketmq"]
)


def template(serialize_type: int, queue_count: int = 4) -> SendTemplate:
    return SendTemplate.for_topic(
        "Wire",
        queue_count=queue_count,
        body=b"b" * 128,
        born_timestamp_ms=1_795_240_075_581,
        broker="broker-a",
        serialize_type=serialize_type,
    )


def split(buffer: bytes) -> list[bytes]:
    frames = []
    while buffer:
        size = 4 + int.from_bytes(buffer[:4], "big")
        frames.append(buffer[:size])
        buffer = buffer[size:]
    return frames


def answer(opaque: int, code: int, serialize_type: int) -> bytes:
    if serialize_type == ROCKETMQ_TYPE:
        header = struct.pack(">hBhiiii", code, 0, 513, opaque, 1, 0, 0)
    else:
        members = {"code": code, "extFields": {"msgId": "0"}, "flag": 1, "opaque": opaque}
        header = json.dumps(members, separators=(",", ":")).encode()
    return struct.pack(">ii", 4 + len(header), serialize_type << 24 | len(header)) + header


@pytest.mark.parametrize("file", ["json-5.5.0.jsonl", "rocketmq-5.5.0.jsonl"])
def test_a_built_send_is_byte_for_byte_what_the_java_client_sent(golden: Path, file: str) -> None:
    compared = 0
    for line in (golden / "wire" / file).read_text().splitlines():
        recorded = json.loads(line)
        if recorded["dir"] != "request" or recorded["code"] != SEND_MESSAGE_V2:
            continue
        header = json.loads(recorded["header_text"])
        if header["version"] != 513 or header["flag"] != 0:
            continue
        frame = bytes.fromhex(recorded["frame_hex"])
        built = build_frame(
            SEND_MESSAGE_V2,
            header["extFields"],
            frame[len(frame) - recorded["body_len"] :],
            opaque=header["opaque"],
            serialize_type=JSON_TYPE if recorded["serialize"] == "JSON" else ROCKETMQ_TYPE,
        )
        assert built == frame
        compared += 1
    assert compared > 0


@pytest.mark.parametrize("file", ["json-5.5.0.jsonl", "rocketmq-5.5.0.jsonl"])
def test_an_end_is_byte_for_byte_what_the_java_client_sent(golden: Path, file: str) -> None:
    compared = 0
    for line in (golden / "wire" / file).read_text().splitlines():
        recorded = json.loads(line)
        if recorded["code"] != END_TRANSACTION or recorded["dir"] != "request":
            continue
        header = json.loads(recorded["header_text"])
        assert header["flag"] == ONEWAY
        if header["version"] != 513:
            continue
        fields = header["extFields"]
        serialize_type = JSON_TYPE if recorded["serialize"] == "JSON" else ROCKETMQ_TYPE
        frame = bytes.fromhex(recorded["frame_hex"])
        assert frame == build_frame(
            END_TRANSACTION, fields, b"", opaque=header["opaque"], serialize_type=serialize_type,
            flag=ONEWAY,
        )  # fmt: skip
        ends = TransactionTemplate(template(serialize_type), fields["topic"], fields["bname"])
        answered = {
            "msgId": f"{int(fields['commitLogOffset']):032X}", "queueId": "0",
            "queueOffset": fields["tranStateTableOffset"], "transactionId": fields["transactionId"],
        }  # fmt: skip
        ours = ends.end(build_frame(0, answered, b"", opaque=1, serialize_type=serialize_type))
        assert answer_fields(ours) == fields | {"producerGroup": GROUP, "commitOrRollback": "8"}
        compared += 1
    assert compared > 0


@SERIALIZE_TYPES
def test_patched_frames_equal_frames_built_one_by_one(serialize_type: int) -> None:
    frames = template(serialize_type)
    found = split(bytes(frames.next_frames(3))) + split(bytes(frames.next_frames(6)))
    plain = template(serialize_type).frames
    assert len(found) == 9
    for number, frame in enumerate(found):
        opaque = OPAQUE_FIRST + number
        expected = plain[opaque % 4].replace(b"0" * 8 + b"\x02", b"%08X\x02" % opaque)
        if serialize_type == JSON_TYPE:
            expected = plain[opaque % 4].replace(b"0" * 8 + b"\\u0002", b"%08X\\u0002" % opaque)
            expected = expected.replace(b'"opaque":%d' % OPAQUE_FIRST, b'"opaque":%d' % opaque)
        else:
            expected = expected[:13] + struct.pack(">i", opaque) + expected[17:]
        assert frame == expected


@SERIALIZE_TYPES
def test_each_message_has_a_unique_key_of_its_own(serialize_type: int) -> None:
    frames = split(bytes(template(serialize_type).next_frames(100)))
    assert len(set(frames)) == 100
    assert len({len(frame) for frame in frames}) == 1


@SERIALIZE_TYPES
def test_answers_in_pieces_are_counted_once_each(serialize_type: int) -> None:
    stream = b"".join(answer(OPAQUE_FIRST + n, 0, serialize_type) for n in range(5))
    buffer = bytearray()
    found = []
    for byte in stream:
        buffer.append(byte)
        opaques, refused = take_answers(buffer)
        assert refused == []
        found += opaques
    assert found == [OPAQUE_FIRST + n for n in range(5)]
    assert buffer == b""


@SERIALIZE_TYPES
def test_busy_answers_are_counted_apart_and_others_are_an_error(serialize_type: int) -> None:
    buffer = bytearray(answer(OPAQUE_FIRST, 0, serialize_type))
    buffer += answer(OPAQUE_FIRST + 1, 2, serialize_type)
    assert take_answers(buffer) == ([OPAQUE_FIRST], [OPAQUE_FIRST + 1])
    with pytest.raises(BadAnswerError, match="code 14"):
        take_answers(bytearray(answer(OPAQUE_FIRST, 14, serialize_type)))
