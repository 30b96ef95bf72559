"""remoting/send_template.py: the quick frames are the slow frames."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trocket.client.core.topics import PROPERTIES_SIZE_MAX
from trocket.remoting import codec, send_template
from trocket.remoting.codec import FRAME_SIZE_MAX, RemotingCommand, decode_frame, encode
from trocket.remoting.errors import LocalProtocolError
from trocket.remoting.headers import encode_header
from trocket.remoting.headers.message import SendMessageRequestHeaderV2, decode_send_message_v2
from trocket.remoting.send_template import (
    CONSTANTS_SIZE_MAX,
    PREFIXES_COUNT_MAX,
    SendPayload,
    SendTemplate,
)
from trocket.remoting.signature import Credentials, sign

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
BORN_MS = 1_795_239_529_771
TEXTS = st.text(max_size=12)
CREDENTIALS = st.none() | st.builds(
    Credentials, st.text(min_size=1), st.text(min_size=1), st.none() | TEXTS
)
PROPERTIES = TEXTS | st.integers(500, 530).map("x".__mul__)


def message(**changed):
    """A message and its way, as `framed` takes them."""
    return {
        "opaque": 7,
        "queue_id": 3,
        "sys_flag": 0,
        "born_timestamp_ms": BORN_MS,
        "flag": 0,
        "properties": b"TAGS\x01TagA\x02",
        "body": b"body",
    } | changed


def framed(template, *, queue_id, opaque, broker_name=None, oneway=False, batch=False, **payload):
    payload = SendPayload(is_batch=batch, **payload)
    return template.encode(payload, queue_id, broker_name, opaque, oneway=oneway)


MESSAGES = st.builds(
    dict,
    opaque=INT32,
    queue_id=INT32 | st.integers(0, 8),
    sys_flag=INT32 | st.just(0),
    born_timestamp_ms=INT64 | st.just(BORN_MS),
    flag=INT32 | st.just(0),
    properties=PROPERTIES.map(lambda text: text.encode("utf-8", "replace")),
    body=st.binary(max_size=50),
    batch=st.booleans(),
    broker_name=st.none() | TEXTS,
    reconsume_times=INT32 | st.just(0),
    max_reconsume_times=st.none() | INT32,
    oneway=st.booleans(),
)
TEMPLATES = st.builds(
    dict,
    topic=TEXTS,
    producer_group=TEXTS,
    default_topic=TEXTS | st.just("TBW102"),
    default_topic_queue_nums=INT32,
    unit_mode=st.booleans(),
    ext=st.dictionaries(st.text("oyABZz%_", min_size=1, max_size=3), TEXTS, max_size=3),
    credentials=CREDENTIALS,
)


def slow_command(template, message) -> RemotingCommand:
    """The same request by way of a header object."""
    given = dict(message)
    body, oneway = given.pop("body"), given.pop("oneway", False)
    opaque = given.pop("opaque")
    header = SendMessageRequestHeaderV2(
        producer_group=template["producer_group"],
        topic=template["topic"],
        default_topic=template.get("default_topic", "TBW102"),
        default_topic_queue_nums=template.get("default_topic_queue_nums", 4),
        unit_mode=template.get("unit_mode", False),
        born_timestamp=given.pop("born_timestamp_ms"),
        properties=given.pop("properties").decode(),
        batch=given.pop("batch", False),
        **{"reconsume_times": 0, **given},
    )
    fields = encode_header(header) | template.get("ext", {})
    fields = {name: value for name, value in fields.items() if value}
    known = template.get("credentials")
    if known is not None:
        sign(fields, body, known.access_key, known.secret_key, known.security_token)
    code = 320 if header.batch else 310
    flag = codec.ONEWAY_FLAG if oneway else 0
    return RemotingCommand(code, fields, body, opaque=opaque, flag=flag, serialize_type=1)


@given(made=TEMPLATES, messages=st.lists(MESSAGES, min_size=1, max_size=4))
@example(made={"topic": "T", "producer_group": "G"}, messages=[message()])
@example(
    made={"topic": "T", "producer_group": "G", "credentials": Credentials("AK", "secret", "t")},
    messages=[message(body=b"\xff\x00"), message(queue_id=4), message(broker_name="b", batch=True)],
)
def test_a_frame_is_what_the_slow_way_gives(made, messages):
    check_frames(made, messages)


def test_no_properties_are_no_field_whatever_the_time():
    check_frames(
        {"topic": "T", "producer_group": "G"},
        [message(properties=b"", born_timestamp_ms=born) for born in (BORN_MS, -(10**17), 10**18)],
    )


def test_the_longest_properties_are_framed_too():
    longest = message(properties=b"y" * PROPERTIES_SIZE_MAX)
    check_frames({"topic": "T", "producer_group": "G"}, [longest])


def check_frames(made, messages):
    template = SendTemplate(**made)
    for each in [*messages, *messages]:
        frame = framed(template, **each)
        slow = encode(slow_command(made, each))
        assert decode_frame(frame) == decode_frame(slow)
        assert len(frame) == len(slow)


def test_a_broker_reads_every_field():
    template = SendTemplate("T", "G", "D", 5, unit_mode=True)
    payload = SendPayload(b"a\x01b\x02", b"body", 9, BORN_MS, 11, True, 2, 16)
    frame = template.encode(payload, 3, "broker-a", 7, oneway=True)
    command = decode_frame(frame)
    assert (command.code, command.opaque, command.flag) == (320, 7, 2)
    assert (command.language, command.version) == (3, 513)
    assert (command.body, command.serialize_type) == (b"body", 1)
    header = decode_send_message_v2(command.ext_fields)
    assert header == SendMessageRequestHeaderV2(
        producer_group="G",
        topic="T",
        default_topic="D",
        default_topic_queue_nums=5,
        queue_id=3,
        sys_flag=9,
        born_timestamp=BORN_MS,
        flag=11,
        properties="a\x01b\x02",
        reconsume_times=2,
        unit_mode=True,
        batch=True,
        max_reconsume_times=16,
        broker_name="broker-a",
    )


def test_the_properties_stand_last():
    """So readers that remember places need no new layout for properties of another size."""
    fields = decode_frame(framed(SendTemplate("T", "G"), **message())).ext_fields
    assert list(fields)[-2:] == ["g", "i"]


@pytest.mark.parametrize("credentials", [None, Credentials("AK", "secret")])
def test_a_field_without_a_value_is_left_out(credentials):
    """Apache would read null, and sign the text "null" in its place."""
    template = SendTemplate("T", "G", ext={"x": ""}, credentials=credentials)
    fields = decode_frame(framed(template, **message(properties=b"", broker_name=""))).ext_fields
    assert all(fields.values())
    assert not {"i", "n", "x"} & fields.keys()


@pytest.mark.parametrize("number", [-(2**31) - 1, 2**31])
@pytest.mark.parametrize(
    "name",
    ["opaque", "queue_id", "sys_flag", "flag", "reconsume_times", "max_reconsume_times"],
)
def test_a_number_that_is_no_int32_is_refused(name, number):
    template = SendTemplate("T", "G")
    with pytest.raises(LocalProtocolError, match=f"{name} {number} is no int32"):
        framed(template, **message(**{name: number}))
    framed(template, **message())  # and it goes on


@pytest.mark.parametrize("number", [-(2**63) - 1, 2**63, 10**30])
def test_a_time_that_is_no_int64_is_refused(number):
    with pytest.raises(LocalProtocolError, match=f"born_timestamp_ms {number} is no int64"):
        framed(SendTemplate("T", "G"), **message(born_timestamp_ms=number))


def test_a_number_of_queues_that_is_no_int32_is_refused():
    with pytest.raises(LocalProtocolError, match="default_topic_queue_nums"):
        SendTemplate("T", "G", default_topic_queue_nums=2**31)


def test_properties_that_fit_no_record_are_refused():
    with pytest.raises(LocalProtocolError, match="properties of 32768 bytes, at most 32767"):
        framed(SendTemplate("T", "G"), **message(properties=bytes(PROPERTIES_SIZE_MAX + 1)))


def test_a_frame_may_be_as_long_as_a_peer_takes_it_and_no_longer():
    template = SendTemplate("T", "G")
    fixed = len(framed(template, **message(body=b""))) - 4
    largest = bytes(FRAME_SIZE_MAX - fixed)
    assert decode_frame(framed(template, **message(body=largest))).body == largest
    with pytest.raises(LocalProtocolError, match=f"the request has {FRAME_SIZE_MAX + 1} bytes"):
        framed(template, **message(body=largest + b"x"))


@pytest.mark.parametrize("name", ["a", "i", "n", "Signature"])
def test_a_constant_field_cannot_be_one_of_the_headers_own(name):
    with pytest.raises(LocalProtocolError, match=f"'{name}' belongs to the header of a send"):
        SendTemplate("T", "G", ext={name: "x"})


def test_constant_fields_are_bounded():
    with pytest.raises(LocalProtocolError, match=f"at most {CONSTANTS_SIZE_MAX} are allowed"):
        SendTemplate("T", "G", ext={"x": "y" * CONSTANTS_SIZE_MAX})
    with pytest.raises(LocalProtocolError, match="a broker name of 40000 characters"):
        framed(SendTemplate("T", "G"), **message(broker_name="b" * 40_000))


def test_prepared_queues_are_bounded(monkeypatch):
    monkeypatch.setattr(send_template, "PREFIXES_COUNT_MAX", 4)
    assert PREFIXES_COUNT_MAX >= 1024
    template = SendTemplate("T", "G")
    for queue_id in [*range(20), *range(20)]:
        frame = framed(template, **message(queue_id=queue_id))
        assert decode_frame(frame).ext_fields["e"] == str(queue_id)
        assert len(template._prepared) <= 4
