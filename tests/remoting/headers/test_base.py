"""The rules by which ext fields become headers and back."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trocket.remoting import headers
from trocket.remoting.errors import RequestRefused
from trocket.remoting.headers import Header, Int32, Int64, TopicRequestHeader, decode, encode_header
from trocket.remoting.response_codes import ResponseCode


class Sample(TopicRequestHeader, frozen=True, kw_only=True):
    """One field of each kind, required and not."""

    some_text: str
    some_int: Int32
    some_long: Int64
    some_flag: bool
    other_text: str | None = None
    other_int: Int32 | None = None
    other_long: Int64 | None = None
    other_flag: bool | None = None


FIELDS = {"someText": "t", "someInt": "-1", "someLong": "9007199254740993", "someFlag": "true"}
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
SAMPLES = st.builds(
    Sample,
    namespace=st.none() | st.text(),
    namespaced=st.none() | st.booleans(),
    broker_name=st.none() | st.text(),
    oneway=st.none() | st.booleans(),
    logical=st.none() | st.booleans(),
    some_text=st.text(),
    some_int=INT32,
    some_long=INT64,
    some_flag=st.booleans(),
    other_text=st.none() | st.text(),
    other_int=st.none() | INT32,
    other_long=st.none() | INT64,
    other_flag=st.none() | st.booleans(),
)


def all_header_classes() -> list[type[Header]]:
    exported = (getattr(headers, name) for name in headers.__all__)
    return [made for made in exported if isinstance(made, type) and issubclass(made, Header)]


def refusal(ext_fields: dict[str, str]) -> str:
    with pytest.raises(RequestRefused) as caught:
        decode(Sample, ext_fields)
    assert caught.value.code == ResponseCode.SYSTEM_ERROR
    return caught.value.remark


def test_fields_are_read_by_their_wire_names_and_unknown_ones_are_ignored() -> None:
    header = decode(Sample, {**FIELDS, "ReqT": "0", "bname": "b", "lo": "TRUE", "some_int": "5"})
    assert header == Sample(
        some_text="t",
        some_int=-1,
        some_long=9007199254740993,
        some_flag=True,
        broker_name="b",
        logical=True,
    )


def test_fields_that_are_none_are_not_written() -> None:
    header = decode(Sample, FIELDS)
    assert encode_header(header) == FIELDS


@given(SAMPLES)
def test_what_is_written_is_read_back_the_same(header: Sample) -> None:
    assert decode(Sample, encode_header(header)) == header


@given(
    st.dictionaries(
        st.sampled_from(Sample.__struct_encode_fields__),
        st.text() | INT64.map(str) | st.sampled_from(["true", "False", "1", "", "null", "1e3"]),
    )
)
def test_any_texts_give_a_header_or_a_refusal(ext_fields: dict[str, str]) -> None:
    try:
        header = decode(Sample, ext_fields)
    except RequestRefused:
        assert refusal(ext_fields).startswith("the custom field <")
        return
    assert header.some_text == ext_fields["someText"]
    assert -(2**31) <= header.some_int < 2**31


@pytest.mark.parametrize("name", FIELDS)
def test_a_missing_required_field_is_refused_in_rocketmqs_words(name: str) -> None:
    fields = {key: text for key, text in FIELDS.items() if key != name}
    assert refusal(fields) == f"the custom field <{name}> is null"


@pytest.mark.parametrize(
    ("name", "bits", "text"),
    [
        ("someInt", 32, "2147483648"),
        ("someInt", 32, "-2147483649"),
        ("someInt", 32, ""),
        ("someInt", 32, "1_0"),
        ("someInt", 32, " 1"),
        ("someInt", 32, "٣"),
        ("otherInt", 32, "x"),
        ("someLong", 64, "9223372036854775808"),
        ("otherLong", 64, "-9223372036854775809"),
        ("otherLong", 64, "0x10"),
    ],
)
def test_a_text_that_is_no_integer_of_its_size_is_refused(name: str, bits: int, text: str) -> None:
    remark = refusal({**FIELDS, name: text})
    assert remark == f"the custom field <{name}> is not an integer of {bits} bits: {text!r}"


def test_a_refusal_quotes_only_the_beginning_of_a_long_text() -> None:
    assert len(refusal({**FIELDS, "someInt": "9" * 1_000_000})) < 150


@pytest.mark.parametrize("text", ["2147483647", "-2147483648", "+7", "007"])
def test_java_integers_at_their_limits_and_with_signs_are_read(text: str) -> None:
    assert decode(Sample, {**FIELDS, "someInt": text}).some_int == int(text)


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("TrUe", True), ("false", False), ("yes", False)]
)
def test_only_true_in_any_case_is_true(text: str, value: bool) -> None:
    assert decode(Sample, {**FIELDS, "someFlag": text, "otherFlag": text}) == decode(
        Sample, {**FIELDS, "someFlag": str(value), "otherFlag": str(value)}
    )
    assert decode(Sample, {**FIELDS, "someFlag": text}).some_flag is value


def test_a_text_that_says_null_is_a_text() -> None:
    assert decode(Sample, {**FIELDS, "otherText": "null"}).other_text == "null"


@pytest.mark.parametrize("header_class", all_header_classes(), ids=lambda made: made.__name__)
def test_no_wire_name_stands_twice_in_a_header(header_class: type[Header]) -> None:
    names = header_class.__struct_encode_fields__
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("header_class", all_header_classes(), ids=lambda made: made.__name__)
def test_every_header_refuses_to_be_changed(header_class: type[Header]) -> None:
    assert header_class.__struct_config__.frozen
    required = [field for field in msgspec.structs.fields(header_class) if field.required]
    if required:
        with pytest.raises(RequestRefused, match=f"<{required[0].encode_name}> is null"):
            decode(header_class, {})
    else:
        # What a client leaves out begins as in Java.
        assert set(encode_header(decode(header_class, {})).values()) <= {"0", "false"}
