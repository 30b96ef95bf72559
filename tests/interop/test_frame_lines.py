"""Frames as lines and as JSON: the recordings, some lines in full, and bytes that are no frames."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trocket.remoting.bodies import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from trocket.remoting.codec import RemotingCommand, decode_frame, encode
from trocket.remoting.hosts import host_bytes
from trocket.remoting.message import Message
from trocket.remoting.message_codec import encode_batch, encode_record
from trocket.remoting.request_codes import RequestCode
from trocket.testing.recording.frame_bodies import BODY_CHARS_MAX, ITEMS_MAX
from trocket.testing.recording.frame_lines import (
    FIELD_CHARS_MAX,
    FIELDS_MAX,
    clock_text,
    frame_line,
    frame_object,
)
from trocket.testing.recording.frame_stream import Conversation, FrameSplitter, SeenFrame

LINE_CHARS_MAX = 200 + FIELDS_MAX * (FIELD_CHARS_MAX * 2 + 3) + FIELD_CHARS_MAX + BODY_CHARS_MAX
HOST = host_bytes("127.0.0.1", 10911)


@cache
def recordings(folder: Path) -> list[dict[str, Any]]:
    found = [
        json.loads(line)
        for path in sorted((folder / "wire").glob("*.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    assert len(found) > 1000
    return found


def data_of(frame: dict[str, Any]) -> bytes:
    return bytes.fromhex(frame["frame_hex"])


@pytest.mark.slow
def test_every_recorded_frame_is_a_line(golden: Path) -> None:
    for frame in recordings(golden):
        line = frame_line(data_of(frame), request_code=frame["request_code"])
        assert line.isprintable()
        assert len(line) < LINE_CHARS_MAX
        assert line[0] == (">" if frame["dir"] == "request" else "<")
        assert f"#{frame['opaque']}" in line
        assert "no frame" not in line


def test_every_recorded_frame_is_an_object_as_in_the_recordings(golden: Path) -> None:
    shared = ("dir", "code", "opaque", "serialize", "oneway", "body_len", "header_text")
    hidden = 0
    for frame in recordings(golden):
        found = frame_object(data_of(frame), request_code=frame["request_code"])
        if "secretKey" in frame["header_text"] or b'"password"' in data_of(frame):
            hidden += 1
            assert len(found["frame_hex"]) == len(frame["frame_hex"])
            assert "12345678" not in found["header_text"]
            continue
        assert {name: found[name] for name in shared} == {name: frame[name] for name in shared}
        assert found["frame_hex"] == frame["frame_hex"]
        body = base64.b64decode(found["body"])
        assert len(body) == frame["body_len"]
        assert data_of(frame).endswith(body)
        # The code of a pop request is cut to 16 bits in a binary header.
        if frame["serialize"] == "JSON" or frame["request_code"] < 1000:
            assert found["request_code"] == frame["request_code"]
    assert hidden == 3


def command(code: int, body: bytes = b"", **more: Any) -> bytes:
    return encode(RemotingCommand(code, body=body, opaque=7, language=0, version=513, **more))


def answer(code: int, body: bytes = b"", **more: Any) -> bytes:
    return encode(RemotingCommand(code, body=body, opaque=7, flag=1, **more))


def record(number: int = 3, body: bytes = b"hello") -> bytes:
    return encode_record(
        "Orders",
        1,
        number,
        1234,
        body,
        b"TAGS\x01new\x02KEYS\x01a b\x02",
        born_timestamp_ms=1_700_000_000_000,
        born_host=HOST,
        store_timestamp_ms=1_700_000_000_001,
        store_host=HOST,
    )


HEARTBEAT = HeartbeatData(
    client_id="1.2.3.4@7",
    producer_data_set=[ProducerData("P")],
    consumer_data_set=[
        ConsumerData("C", subscription_data_set=[SubscriptionData("Orders", "a || b")])
    ],
)
ROUTE = (
    b'{"brokerDatas":[{"brokerAddrs":{0:"1.2.3.4:10911",1:"1.2.3.5:10911"},"brokerName":"b",'
    b'"cluster":"c"}],"filterServerTable":{},"orderTopicConf":"b:4","queueDatas":[{"brokerName":'
    b'"b","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":8}]}'
)
STATS = (
    b'{"consumeTps":0.0,"offsetTable":{{"brokerName":"b","queueId":1,"topic":"T"}:'
    b'{"brokerOffset":6,"consumerOffset":1,"lastTimestamp":0,"pullOffset":6}}}'
)
BATCH = encode_batch([Message("T", b"one", properties={"TAGS": "x"}), Message("T", b"\xff")])

LINES: dict[str, tuple[bytes, int | None, str]] = {
    "a send": (
        command(310, b"\x00\xff" * 20, ext_fields={"b": "Orders", "e": "0", "i": "TAGS\x01a\x02"}),
        None,
        (
            "> SEND_MESSAGE_V2 310 #7 JAVA V5_5_0 {b=Orders, e=0, i=TAGS=a;} body 40 B "
            "00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff…"
        ),
    ),
    "an answer of which the request is not known": (
        answer(0, ext_fields={"msgId": "7F00", "queueOffset": "3"}),
        None,
        "< SUCCESS 0 to #7 {msgId=7F00, queueOffset=3}",
    ),
    "a refusal": (
        answer(17, remark='no "Orders"\n here'),
        310,
        '< TOPIC_NOT_EXIST 17 to #7 SEND_MESSAGE_V2 "no \\"Orders\\"\\n here"',
    ),
    "unknown codes, binary, oneway": (
        command(9999, serialize_type=1, flag=2),
        None,
        "> 9999 #7 JAVA V5_5_0 oneway binary",
    ),
    "a pop in a binary header": (
        command(200050, serialize_type=1),
        None,
        "> POP_MESSAGE 200050 #7 JAVA V5_5_0 binary",
    ),
    "a heartbeat": (
        command(34, HEARTBEAT.to_body()),
        None,
        (
            f"> HEART_BEAT 34 #7 JAVA V5_5_0 body {len(HEARTBEAT.to_body())} B heartbeat of "
            "1.2.3.4@7; producers P; consumer C CONSUME_PASSIVELY CLUSTERING "
            'CONSUME_FROM_LAST_OFFSET: Orders TAG "a || b"'
        ),
    ),
    "a route": (
        answer(0, ROUTE),
        105,
        (
            f"< SUCCESS 0 to #7 GET_ROUTEINFO_BY_TOPIC body {len(ROUTE)} B route: b 4r8w perm 6; "
            "at b 0=1.2.3.4:10911, b 1=1.2.3.5:10911; order b:4"
        ),
    ),
    "records": (
        answer(0, record() + record(4, b"\xff" * 100)),
        11,
        (
            '< SUCCESS 0 to #7 PULL_MESSAGE body 335 B 2 records: Orders/1 @3 at 1234 "hello" '
            f"TAGS=new KEYS=a b, Orders/1 @4 at 1234 {'ff' * 24}…(100 B) TAGS=new KEYS=a b"
        ),
    ),
    "records that are none": (
        answer(0, b"\x00\x01"),
        11,
        "< SUCCESS 0 to #7 PULL_MESSAGE body 2 B 0001",
    ),
    "a batch": (
        command(320, BATCH),
        None,
        f'> SEND_BATCH_MESSAGE 320 #7 JAVA V5_5_0 body {len(BATCH)} B batch of "one" TAGS=x, ff',
    ),
    "a lock": (
        command(
            41,
            b'{"clientId":"c","consumerGroup":"g","mqSet":['
            b'{"brokerName":"b","queueId":1,"topic":"T"},{"brokerName":"b","queueId":0,"topic":"T"}]}',
        ),
        None,
        "> LOCK_BATCH_MQ 41 #7 JAVA V5_5_0 body 132 B g of c: T/b/0, T/b/1",
    ),
    "a lock that was not given": (
        answer(0, b'{"lockOKMQSet":[]}'),
        41,
        "< SUCCESS 0 to #7 LOCK_BATCH_MQ body 18 B holds nothing",
    ),
    "offsets": (
        answer(0, STATS),
        208,
        f"< SUCCESS 0 to #7 GET_CONSUME_STATS body {len(STATS)} B offsets: T/b/1 1 of 6",
    ),
    "all offsets": (
        answer(0, b'{"offsetTable":{"T@g":{0:5,1:6}}}'),
        43,
        "< SUCCESS 0 to #7 GET_ALL_CONSUMER_OFFSET body 33 B offsets: T@g 0:5, 1:6",
    ),
    "a text": (
        command(25, "flush=é\n".encode()),
        None,
        '> UPDATE_BROKER_CONFIG 25 #7 JAVA V5_5_0 body 9 B "flush=é\\n"',
    ),
    "a signed request": (
        command(34, ext_fields={"AccessKey": "me", "Signature": "c2lnbmVk", "SecurityToken": "t"}),
        None,
        "> HEART_BEAT 34 #7 JAVA V5_5_0 {AccessKey=me, Signature=********, SecurityToken=*}",
    ),
    "a signed request with a binary header": (
        command(34, ext_fields={"a": "e", "secretKey": "e"}, serialize_type=1),
        None,
        "> HEART_BEAT 34 #7 JAVA V5_5_0 binary {a=e, secretKey=*}",
    ),
    "a password": (
        command(3001, b'{"username":"pw","password":"pw\\"d"}'),
        None,
        '> AUTH_CREATE_USER 3001 #7 JAVA V5_5_0 body 36 B {"username":"pw","password":"*****"}',
    ),
    "a secret in a configuration": (
        command(25, b"aclSecretKey = abc def\nx=1"),
        None,
        '> UPDATE_BROKER_CONFIG 25 #7 JAVA V5_5_0 body 26 B "aclSecretKey = *** def\\nx=1"',
    ),
    "no frame": (
        b"GET / HTTP/1.1\r\n",
        None,
        "> (no frame) 16 B at 0: " + b"GET / HTTP/1.1\r\n".hex(),
    ),
}


@pytest.mark.parametrize("name", LINES)
def test_a_line(name: str) -> None:
    data, request_code, line = LINES[name]
    assert frame_line(data, request_code=request_code) == line


def test_a_frame_that_a_relay_told_of_has_time_and_connection() -> None:
    seen = SeenFrame(answer(0), 0, False, connection=3, at_ms=1_700_000_000_045)
    assert frame_line(seen) == f"{clock_text(seen.at_ms)} c3 < SUCCESS 0 to #7"
    assert clock_text(seen.at_ms).endswith(".045")
    cut = SeenFrame(b"\0\0", 9, True, is_frame=False, connection=3)
    assert frame_line(cut) == "c3 > (no frame) 2 B at 9: 0000"


def test_what_is_long_is_cut_short() -> None:
    fields = {f"name{number}" * 50: "v" * 300 for number in range(200)}
    line = frame_line(command(10, b"x" * 100_000, ext_fields=fields, remark="r" * 1000))
    assert len(line) < LINE_CHARS_MAX
    assert f"{200 - FIELDS_MAX} more" in line
    beat = HeartbeatData(producer_data_set=[ProducerData("p" * 5000)])
    assert len(frame_line(command(34, beat.to_body()))) < 100 + BODY_CHARS_MAX
    many = b"".join(record(number) for number in range(100))
    line = frame_line(answer(0, many), request_code=11)
    assert "100 records" in line
    assert len(line) < LINE_CHARS_MAX
    short = b"".join(record(number, b"") for number in range(ITEMS_MAX + 2))
    assert frame_line(answer(0, short), request_code=11).endswith(", 2 more")


def test_secrets_are_not_in_the_json_form() -> None:
    for serialize_type in (0, 1):
        data = command(
            34,
            b'{"password" : "hidden3"}',
            ext_fields={"Signature": "hidden1", "SecretKey": "hidden2"},
            serialize_type=serialize_type,
        )
        found = frame_object(data)
        assert found["ext_fields"] == {"Signature": "*******", "SecretKey": "*******"}
        assert b"hidden" not in bytes.fromhex(found["frame_hex"])
        assert len(found["frame_hex"]) == 2 * len(data)
        assert "hidden" not in json.dumps(found)
        assert b"hidden" not in base64.b64decode(found["body"])


# ---- damage --------------------------------------------------------------------------------------


@st.composite
def damaged(draw: st.DrawFn, whole: list[bytes]) -> bytes:
    data = bytearray(draw(st.sampled_from(whole)))
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, len(data) - 1))
        data[at] = draw(st.integers(0, 255))
    return bytes(data[: draw(st.integers(1, len(data)))]) if draw(st.booleans()) else bytes(data)


@pytest.mark.slow
def test_damaged_frames_never_raise(golden: Path) -> None:
    whole = [data_of(frame) for frame in recordings(golden) if frame["body_len"] < 2000]
    codes = sorted({frame["request_code"] for frame in recordings(golden)})

    @given(damaged(whole), st.none() | st.sampled_from(codes), st.booleans())
    def check(data: bytes, request_code: int | None, to_server: bool) -> None:
        seen = SeenFrame(data, 0, to_server, request_code=request_code, connection=1, at_ms=1)
        for frame in (data, seen):
            line = frame_line(frame, request_code=request_code)
            assert line.isprintable()
            assert len(line) < LINE_CHARS_MAX
            json.dumps(frame_object(frame, request_code=request_code))

    check()


@pytest.mark.slow
@given(st.binary(max_size=300), st.sampled_from([11, 34, 41, 43, 105, 106, 208, 310, 320]))
def test_bodies_of_any_bytes_never_raise(body: bytes, code: int) -> None:
    for data in (command(code, body), answer(0, body)):
        assert frame_line(data, request_code=code).isprintable()


@pytest.mark.slow
@given(
    st.recursive(
        st.none() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner)
            | (
                st.dictionaries(
                    st.sampled_from(
                        [
                            "brokerDatas",
                            "brokerAddrs",
                            "brokerAddrTable",
                            "offsetTable",
                            "mqSet",
                            "clientID",
                        ]
                    )
                    | st.text(),
                    inner,
                )
            )
        ),
        max_leaves=12,
    ),
    st.sampled_from([34, 38, 41, 43, 105, 106, 208]),
)
def test_bodies_of_any_json_never_raise(tree: Any, code: int) -> None:
    body = json.dumps(tree, ensure_ascii=True).encode()
    for data in (command(code, body), answer(0, body)):
        assert frame_line(data, request_code=code).isprintable()


# ---- streams -------------------------------------------------------------------------------------


def pieces(data: bytes, sizes: list[int]) -> Iterator[bytes]:
    position = 0
    for size in sizes:
        yield data[position : position + size]
        position += size
    yield data[position:]


@given(st.lists(st.integers(1, 60), max_size=20), st.binary(max_size=20))
def test_frames_are_cut_out_however_the_bytes_come(sizes: list[int], rest: bytes) -> None:
    frames = [command(34), command(310, b"body"), answer(0)]
    stream = b"".join(frames) + b"\xff\xff\xff\xff" + rest
    splitter = FrameSplitter()
    found = [each for piece in pieces(stream, sizes) for each in splitter.receive_data(piece)]
    found += splitter.receive_eof()
    assert b"".join(data for _, data, _ in found) == stream
    assert [data for _, data, is_frame in found if is_frame] == frames
    assert splitter.position == len(stream)
    position = 0
    for offset, data, _ in found:
        assert offset == position
        position += len(data)


def test_answers_belong_to_the_requests_of_the_other_direction() -> None:
    """Both sides count for themselves: the same opaque is used by both."""
    talk = Conversation()
    asked = talk.receive_data(True, command(RequestCode.PULL_MESSAGE))
    checked = talk.receive_data(False, command(RequestCode.GET_CONSUMER_RUNNING_INFO))
    answered = talk.receive_data(True, answer(0))
    pulled = talk.receive_data(False, answer(19))
    again = talk.receive_data(False, answer(19))
    codes = [frames[0].request_code for frames in (asked, checked, answered, pulled, again)]
    assert codes == [11, 307, 307, 11, None]
    assert decode_frame(pulled[0].data).code == 19
