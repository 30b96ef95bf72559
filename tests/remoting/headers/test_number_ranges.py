"""Every number of every request header: declared in a range, and refused outside of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from trocket import broker
from trocket.remoting import bodies, headers
from trocket.remoting.bodies import Body, out_of_range
from trocket.remoting.errors import RequestRefused
from trocket.remoting.headers import Header, Int32, Int64, decode
from trocket.remoting.number_fields import INT32, INT64, Range, parse_integer, range_of
from trocket.remoting.response_codes import ResponseCode

NO_INTEGERS = [
    "", " 5", "5 ", "0x10", "1_000", "٣", "²", "five", "--1", "1.5", "NaN", "9" * 5_000,
    "5\x00", "\uff11",
]  # fmt: skip
"""Texts that are no integers to Java, some of which Python's `int` reads."""

HOSTILE = [2**31, -(2**31) - 1, 2**63, -(2**63), -(2**63) - 1, 10**30, -1, 0, 2**31 - 1, 10**15]


def request_headers() -> list[type[Header]]:
    """The exported header classes that a request brings; a base of such classes is one, too."""
    exported = (getattr(headers, name) for name in headers.__all__)
    found = [made for made in exported if isinstance(made, type) and issubclass(made, Header)]
    return [made for made in found if not made.__name__.endswith("ResponseHeader")]


def holds_a_number(field: msgspec.structs.FieldInfo) -> bool:
    return any(
        isinstance(kind, msgspec.inspect.IntType)
        for kind in _leaves(msgspec.inspect.type_info(field.type))
    )


def _leaves(kind: msgspec.inspect.Type) -> Iterator[msgspec.inspect.Type]:
    if isinstance(kind, msgspec.inspect.Metadata):
        yield from _leaves(kind.type)
    elif isinstance(kind, msgspec.inspect.UnionType):
        for each in kind.types:
            yield from _leaves(each)
    else:
        yield kind


NUMBERS = [
    pytest.param(made, field, id=f"{made.__name__}.{field.encode_name}")
    for made in request_headers()
    for field in msgspec.structs.fields(made)
    if holds_a_number(field)
]


def declared_range(field: msgspec.structs.FieldInfo) -> Range:
    declared = range_of(field.type)
    assert declared is not None
    return declared


def fields_of(header_class: type[Header], **change: str) -> dict[str, str]:
    """Texts for all required fields: of a number the least one that is not negative."""
    texts = {}
    for field in msgspec.structs.fields(header_class):
        if not field.required:
            continue
        declared = range_of(field.type)
        texts[field.encode_name] = "t" if declared is None else str(max(declared.low, 0))
    return texts | change


def refusal(header_class: type[Header], name: str, text: str) -> RequestRefused:
    with pytest.raises(RequestRefused) as caught:
        decode(header_class, fields_of(header_class, **{name: text}))
    return caught.value


def test_there_are_numbers_to_look_at() -> None:
    assert len(NUMBERS) > 70
    assert len({param.values[0] for param in NUMBERS}) > 25


@pytest.mark.parametrize(("header_class", "field"), NUMBERS)
def test_each_number_declares_what_it_is_and_in_which_range(
    header_class: type[Header], field: msgspec.structs.FieldInfo
) -> None:
    """A new field of a request cannot be forgotten: Int32 and Int64 are for answers."""
    declared = range_of(field.type)
    assert declared is not None, f"{field.encode_name} declares no range of `remoting.numbers`"
    assert declared not in (INT32, INT64), f"{field.encode_name} has the type of an answer"
    assert declared.java.low <= declared.low < declared.high <= declared.java.high


@pytest.mark.parametrize(("header_class", "field"), NUMBERS)
def test_each_number_is_read_at_its_ends_and_refused_outside(
    header_class: type[Header], field: msgspec.structs.FieldInfo
) -> None:
    declared = declared_range(field)
    for number in {declared.low, declared.low + 1, declared.high - 1, declared.high, *HOSTILE}:
        for text in (f"{number}", f"{number:+d}", f"{number:+025d}"):
            if declared.has(number):
                header = decode(header_class, fields_of(header_class, **{field.encode_name: text}))
                assert getattr(header, field.name) == number
                continue
            refused = refusal(header_class, field.encode_name, text)
            assert f"<{field.encode_name}>" in refused.remark
            if declared.java.has(number):
                assert refused.code == ResponseCode.INVALID_PARAMETER
                assert f"is {number}, and " in refused.remark
                assert f"is in {declared.low}..{declared.high}" in refused.remark
            else:
                assert refused.code == ResponseCode.SYSTEM_ERROR
                assert f"not an integer of {declared.bits} bits" in refused.remark
    for number in (declared.low - 1, declared.high + 1):
        assert (
            f"<{field.encode_name}>" in refusal(header_class, field.encode_name, str(number)).remark
        )


@pytest.mark.parametrize(("header_class", "field"), NUMBERS)
def test_what_is_no_integer_to_java_is_refused_and_named(
    header_class: type[Header], field: msgspec.structs.FieldInfo
) -> None:
    for text in NO_INTEGERS:
        refused = refusal(header_class, field.encode_name, text)
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert f"<{field.encode_name}> is not an integer" in refused.remark
        assert len(refused.remark) < 200


@pytest.mark.parametrize(("header_class", "field"), NUMBERS)
@pytest.mark.parametrize("text", ["1e3", "1e30", "-1e3", "1.0", "1e999", "null"])
def test_a_float_that_is_an_integer_is_in_its_range_or_refused(
    header_class: type[Header], field: msgspec.structs.FieldInfo, text: str
) -> None:
    """The quick reader takes these where Java does not; no number gets out of its range by it."""
    number, remark = None, ""
    try:
        header = decode(header_class, fields_of(header_class, **{field.encode_name: text}))
        number = getattr(header, field.name)
    except RequestRefused as refused:
        remark = refused.remark
    if remark:
        assert f"<{field.encode_name}>" in remark
    else:
        assert number is None or (type(number) is int and declared_range(field).has(number))


@pytest.mark.parametrize("text", NO_INTEGERS)
def test_no_integer_is_made_of_other_texts(text: str) -> None:
    assert parse_integer(text) is None


# ---- bodies ------------------------------------------------------------------------------

READ_BODY = re.compile(r"read_body\(\s*request,\s*(\w+)\.from_(?:body|request)")

REQUEST_BODIES = [
    bodies.CheckClientRequestBody,
    bodies.CreateTopicListRequestBody,
    bodies.DataVersion,
    bodies.HeartbeatData,
    bodies.LockBatchRequestBody,
    bodies.QueryAssignmentRequestBody,
    bodies.QueueData,  # what a name server keeps of a registration's topics
    bodies.SetMessageRequestModeRequestBody,
    bodies.SubscriptionGroupConfig,
    bodies.SubscriptionGroupList,
    bodies.SyncStateSet,
    bodies.TopicQueueMappingDetail,
    bodies.UnlockBatchRequestBody,
]


def test_every_body_that_the_broker_reads_is_among_them() -> None:
    sources = Path(broker.__path__[0]).rglob("*.py")
    read = {name for path in sources for name in READ_BODY.findall(path.read_text())}
    assert len(read) > 5
    assert read <= {made.__name__ for made in REQUEST_BODIES}


def numbers_in(made: type[msgspec.Struct], path: str = "") -> Iterator[tuple[str, object]]:
    for field in msgspec.structs.fields(made):
        yield from _numbers_in(field.type, f"{path}.{field.encode_name}")


def _numbers_in(kind: object, path: str) -> Iterator[tuple[str, object]]:
    found = msgspec.inspect.type_info(kind)
    if holds_int(found):
        yield path, kind
        return
    for part in getattr(kind, "__args__", ()) if not isinstance(kind, type) else ():
        yield from _numbers_in(part, path)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield from numbers_in(kind, path)


def holds_int(kind: msgspec.inspect.Type) -> bool:
    return any(isinstance(leaf, msgspec.inspect.IntType) for leaf in _leaves(kind))


BODY_NUMBERS = [
    pytest.param(kind, id=f"{made.__name__}{path}")
    for made in REQUEST_BODIES
    for path, kind in numbers_in(made)
]


def test_there_are_numbers_of_bodies_to_look_at() -> None:
    assert len(BODY_NUMBERS) > 30


@pytest.mark.parametrize("kind", BODY_NUMBERS)
def test_each_number_of_a_requests_body_declares_its_range(kind: object) -> None:
    declared = range_of(kind)
    assert declared is not None
    assert declared not in (INT32, INT64)
    # Files and answers of other versions are read by the same classes.
    assert range_of(Int32 if declared.bits == 32 else Int64) is declared.java


@pytest.mark.parametrize("made", REQUEST_BODIES)
def test_a_body_as_its_class_makes_it_is_in_range(made: type[Body]) -> None:
    assert out_of_range(made()) is None


@pytest.mark.parametrize("number", [-(2**31), -1, 2**31 - 1])
def test_the_member_that_is_out_of_range_is_named_with_its_place(number: int) -> None:
    topic = bodies.TopicConfig(topic_name="T", write_queue_nums=number)
    body = bodies.CreateTopicListRequestBody(topic_config_list=[bodies.TopicConfig(), topic])
    assert out_of_range(body) == (
        f"the member topicConfigList[1].writeQueueNums is {number}, "
        "and a number of queues is in 0..65536"
    )
    again = bodies.CreateTopicListRequestBody.from_body(body.to_body())
    assert again == body, "a file with that number can be read"
