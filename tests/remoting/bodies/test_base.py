"""The rules by which bodies are read and written."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trocket.remoting import bodies
from trocket.remoting.bodies import Body, ClusterInfo, KVTable, TopicConfig, TopicRouteData
from trocket.remoting.bodies.base import Int32, Int64, name_of_ordinal
from trocket.remoting.bodies.heartbeat import MessageModel
from trocket.remoting.errors import RemoteProtocolError


class Sample(Body):
    """Members of several kinds."""

    some_text: str = "default"
    some_int: Int32 = 5
    some_long: Int64 = 0
    some_list: list[Int32] = msgspec.field(default_factory=list)
    some_map: dict[Int64, str] = msgspec.field(default_factory=dict)
    other_text: str | None = None


BODIES = [
    made
    for made in (getattr(bodies, name) for name in bodies.__all__)
    if isinstance(made, type) and issubclass(made, Body) and made is not Body
]

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


def test_members_have_camel_case_names_and_unknown_ones_are_ignored() -> None:
    body = Sample.from_body(b'{"someText":"a","someInt":7,"unknown":{"x":[1]},"some_long":3}')
    assert body == Sample(some_text="a", some_int=7)


def test_missing_and_null_members_take_the_defaults() -> None:
    assert Sample.from_body(b"{}") == Sample()
    assert Sample.from_body(b'{"someText":null,"someInt":null,"someMap":null}') == Sample()


def test_members_that_are_none_are_not_written_but_defaults_are() -> None:
    assert Sample().to_body() == (
        b'{"someText":"default","someInt":5,"someLong":0,"someList":[],"someMap":{}}'
    )


def test_integer_keys_are_read_bare_and_quoted_and_written_as_asked() -> None:
    body = Sample.from_body(b'{"someMap":{0:"a","1":"b"}}')
    assert body.some_map == {0: "a", 1: "b"}
    assert b'{"0":"a","1":"b"}' in body.to_body()
    assert b'{0:"a",1:"b"}' in body.to_body(quote_int_keys=False)


def test_texts_are_taken_for_numbers_as_fastjson_does() -> None:
    body = Sample.from_body(b'{"someInt":"7","someList":["1",2]}')
    assert (body.some_int, body.some_list) == (7, [1, 2])


def test_a_tree_is_read_like_a_body() -> None:
    assert Sample.from_tree({"someText": None, "someMap": {0: "a"}}) == Sample(some_map={0: "a"})


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "a value is expected"),
        (b"null", "not a Sample: Expected `object`, got `null`"),
        (b"[]", "not a Sample: Expected `object`, got `array`"),
        (b'{"someInt":"x"}', r"not a Sample: Expected `int`, got `str` - at `\$.someInt`"),
        (b'{"someInt":2147483648}', r"not a Sample: Expected `int` <= 2147483647"),
        (b'{"someLong":9223372036854775808}', "not a Sample: "),
        (b'{"someList":[1,{}]}', r"at `\$.someList\[1\]`"),
        (b'{"someMap":{{"a":1}:"x"}}', "not a Sample: "),
        (b'{"someText":"\xff"}', "not UTF-8"),
        (b'{"x":' + b"[" * 100_000, "nested deeper"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(body: bytes, reason: str) -> None:
    with pytest.raises(RemoteProtocolError, match=reason):
        Sample.from_body(body)


def test_a_refusal_stays_short_whatever_the_peer_sent() -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        TopicConfig.from_body(b'{"topicFilterType":"' + b"x" * 100_000 + b'"}')
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("body_class", BODIES, ids=lambda made: made.__name__)
def test_every_body_comes_back_as_its_defaults(body_class: type[Body]) -> None:
    body = body_class()
    assert body_class.from_body(body.to_body()) == body
    assert body_class.from_body(b"{}") == body


@pytest.mark.slow
@given(
    st.sampled_from(BODIES).flatmap(
        lambda made: st.tuples(
            st.just(made),
            st.dictionaries(st.sampled_from(made.__struct_encode_fields__), JSON, max_size=4),
        )
    )
)
def test_every_body_takes_any_json_or_gives_the_documented_error(
    case: tuple[type[Body], dict[str, object]],
) -> None:
    body_class, members = case
    try:
        body = body_class.from_body(msgspec.json.encode(members))
    except RemoteProtocolError:
        return
    again = body_class.from_body(body.to_body())
    assert body_class.from_body(again.to_body()) == again


@given(st.binary(max_size=50))
def test_any_bytes_give_a_body_or_the_documented_error(data: bytes) -> None:
    for body_class in (KVTable, TopicRouteData, ClusterInfo):
        try:
            body_class.from_body(data)
        except RemoteProtocolError:
            continue


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (0, "BROADCASTING"),
        (1, "CLUSTERING"),
        (3, 3),
        (-1, -1),
        (True, True),
        ("CLUSTERING", "CLUSTERING"),
        (None, None),
    ],
)
def test_an_enum_may_be_given_by_its_number(value: object, name: object) -> None:
    assert name_of_ordinal(MessageModel, value) == name
