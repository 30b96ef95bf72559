"""Masks of `--mask`: what they hide, of which messages, and which of them are wrong."""

from __future__ import annotations

import gzip
import json
import time
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trocket.client import ConfigurationError
from trocket.console.masks import HIDDEN, BodyState, Masks
from trocket.remoting.body_compression import CompressionType

from .messages import received

TOO_DEEP = 250_000
"""Levels that no interpreter reads, and not too many values for a mask."""

BODY: dict[str, Any] = {
    "card": "4111",
    "items": [{"card": "4222", "price": 1}, {"price": 2}, [["4333"]]],
    "a b": {"card": ["4444"]},
}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("$.card", BODY | {"card": "***"}),
        ("$['card']", BODY | {"card": "***"}),
        ('$["card"]', BODY | {"card": "***"}),
        ("$.items", BODY | {"items": "***"}),
        ("$.items[1].price", BODY | {"items": [BODY["items"][0], {"price": "***"}, [["4333"]]]}),
        (
            "$.items[*].price",
            BODY | {"items": [{"card": "4222", "price": "***"}, {"price": "***"}, [["4333"]]]},
        ),
        ("$.items[-1]", BODY | {"items": [*BODY["items"][:2], "***"]}),
        ("$.items[2][0][0]", BODY | {"items": [*BODY["items"][:2], [["***"]]]}),
        ("$['a b'].*", BODY | {"a b": {"card": "***"}}),
        (
            "$..card",
            {
                "card": "***",
                "items": [{"card": "***", "price": 1}, {"price": 2}, [["4333"]]],
                "a b": {"card": "***"},
            },
        ),
        ("$..[0]", BODY | {"items": ["***", {"price": 2}, ["***"]], "a b": {"card": ["***"]}}),
        (
            "$..price",
            BODY | {"items": [{"card": "4222", "price": "***"}, {"price": "***"}, [["4333"]]]},
        ),
        ("$.items..card", BODY | {"items": [{"card": "***", "price": 1}, *BODY["items"][1:]]}),
        ("$.*", dict.fromkeys(BODY, "***")),
        ("$[*]", dict.fromkeys(BODY, "***")),
        ("$..*", dict.fromkeys(BODY, "***")),
    ],
)
def test_a_path_hides_what_it_names(path: str, expected: object) -> None:
    found = Masks([f"orders:{path}"]).masked(received(json.dumps(BODY).encode()))
    assert found.body is BodyState.MASKED
    assert json.loads(found.message.body) == expected


@pytest.mark.parametrize(
    "path", ["$.cards", "$.card.x", "$.items[9]", "$.items[-9]", "$[0]", "$.items.card"]
)
def test_a_path_to_nothing_leaves_the_body_as_it_is(path: str) -> None:
    message = received(json.dumps(BODY, indent=3).encode())
    found = Masks([f"orders:{path}"]).masked(message)
    assert (found.body, found.message.body) == (BodyState.SHOWN, message.body)


def test_what_is_not_hidden_stays_as_it_was_written() -> None:
    body = '{"n":1.10,"big":123456789012345678901234567890,"e":1e400,"k":"订","card":1}'
    found = Masks(["orders:$.card"]).masked(received(body.encode()))
    assert found.message.body.decode() == body.replace('"card":1', '"card":"***"')
    lone = Masks(["orders:$.card"]).masked(received(rb'{"k":"\ud800","card":1,"n":10}'))
    assert lone.message.body == rb'{"k":"\ud800","card":"***","n":10}'


def test_of_members_of_one_name_no_hidden_one_is_left() -> None:
    for body in (b'{"card":"4111","card":1}', b'{"a":{"card":"4111"},"a":{}}'):
        found = Masks(["orders:$..card"]).masked(received(body))
        assert found.body is BodyState.MASKED
        assert b"4111" not in found.message.body


@pytest.mark.parametrize(
    "body",
    [
        b"card=4111",
        b'"4111"',
        b"4111",
        b'{"card":4111',
        b'{"card":4111} ',
        b"\x81\xa4card\xa44111",
        "card 4111".encode("utf-16"),
        json.dumps({"card": "4111"}).encode("utf-16"),
        b'{"card":"4111\xff"}',
        b"[" * TOO_DEEP + b"4111" + b"]" * TOO_DEEP,
        b"[" + b"4111," * 400_000 + b"4111]",
        gzip.compress(b"card=4111"),
        gzip.compress(b'{"card":"4111"}')[:-3],
        gzip.compress(gzip.compress(gzip.compress(gzip.compress(b'{"card":"4111"}')))),
    ],
)
def test_a_body_that_cannot_be_masked_is_hidden_wholly(body: bytes) -> None:
    begin_s = time.process_time()
    found = Masks(["orders:$.card"]).masked(received(body))
    assert time.process_time() - begin_s < 2.0
    if body.endswith(b" "):
        assert found.message.body == b'{"card":"***"}'
    else:
        assert found.message.body == HIDDEN.encode()
        assert found.body in (BodyState.HIDDEN_NO_JSON, BodyState.HIDDEN_TOO_LARGE)


def test_a_compressed_body_is_masked_and_is_not_compressed_then() -> None:
    body = b'{"card":"4111"}'
    kind = CompressionType.ZLIB
    for message in (
        received(gzip.compress(body)),
        received(zlib.compress(body), sys_flag=kind.sys_flag),
        received(zlib.compress(gzip.compress(body)), sys_flag=kind.sys_flag),
    ):
        found = Masks(["orders:$.card"]).masked(message)
        assert (found.message.body, found.message.sys_flag & 1) == (b'{"card":"***"}', 0)
    for message in (
        received(b"junk", sys_flag=kind.sys_flag),
        received(zlib.compress(body), sys_flag=kind.sys_flag | 7 << 8),
    ):
        found = Masks(["orders:$.card"]).masked(message)
        assert (found.body, found.message.sys_flag & 1) == (BodyState.HIDDEN_NO_JSON, 0)


def test_a_whole_body_and_properties_can_be_hidden() -> None:
    properties = {"phone": "0123", "city": "X", "KEYS": "k1", "TAGS": "t"}
    message = received(b"secret", properties=properties)
    found = Masks(["orders:$", "orders:properties.phone", "orders:properties.none"]).masked(message)
    assert (found.message.body, found.body) == (b"***", BodyState.HIDDEN)
    assert found.hidden_properties == ("phone",)
    assert dict(found.message.properties) == properties | {"phone": "***"}
    everything = Masks(["orders:properties.*", "orders:properties.KEYS"]).masked(message)
    assert everything.hidden_properties == ("KEYS", "city", "phone")
    assert (everything.message.keys, everything.message.tags) == (("***",), "t")
    assert (everything.message.body, everything.body) == (b"secret", BodyState.SHOWN)
    assert received(b"").body == Masks(["orders:$.card"]).message(received(b"")).body


def test_a_checksum_does_not_betray_what_is_hidden() -> None:
    one, other = (
        Masks(["orders:$.card"]).message(received(b'{"card":%d}' % card)) for card in (4111, 4112)
    )
    assert repr(one) == repr(other)
    assert one._ext.body_crc == other._ext.body_crc


@pytest.mark.parametrize(
    ("pattern", "topic", "sent_to", "properties"),
    [
        ("orders", "orders", None, {}),
        ("order*", "orders", None, {}),
        ("*", "anything", None, {}),
        ("order?", "orders", None, {}),
        ("%DLQ%*", "%DLQ%billing", None, {}),
        ("orders", "%RETRY%billing", None, {"RETRY_TOPIC": "orders"}),
        ("orders", "%RETRY%billing", "orders", {}),
        ("orders", "%DLQ%billing", None, {"DLQ_ORIGIN_TOPIC": "orders"}),
        ("orders", "%DLQ%billing", None, {"RETRY_TOPIC": "orders"}),
        ("orders", "SCHEDULE_TOPIC_XXXX", None, {"REAL_TOPIC": "orders"}),
        ("orders", "RMQ_SYS_TRANS_HALF_TOPIC", None, {"REAL_TOPIC": "orders"}),
        ("orders", "SCHEDULE_TOPIC_XXXX", None, {"REAL_TOPIC": "%RETRY%billing+orders"}),
        ("orders", "%RETRY%billing+orders", None, {}),
        ("my_orders", "%RETRY%the_group_my_orders", None, {}),
    ],
)
def test_a_mask_holds_wherever_a_message_of_its_topic_is(
    pattern: str, topic: str, sent_to: str | None, properties: dict[str, str]
) -> None:
    message = received(b'{"card":1}', topic, properties, sent_to=sent_to)
    assert Masks([f"{pattern}:$.card"]).message(message).body == b'{"card":"***"}'


@pytest.mark.parametrize("pattern", ["order", "Orders", "rders", "order?s", "orders2", "%DLQ%*"])
def test_other_topics_are_left_alone(pattern: str) -> None:
    message = received(b"no json")
    assert Masks([f"{pattern}:$.card"]).message(message) is message


@pytest.mark.parametrize(
    ("expression", "at", "why"),
    [
        ("", 1, "a topic"),
        (":$.card", 1, "a topic"),
        ("or ders:$.card", 3, "a topic"),
        ("orders", 7, "missing"),
        ("orders$.card", 7, "a topic"),
        ("orders:", 8, "expected"),
        ("orders:card", 8, "'$'"),
        ("orders:$card", 9, "expected"),
        ("orders:$.", 9, "expected"),
        ("orders:$..", 9, "expected"),
        ("orders:$...card", 9, "expected"),
        ("orders:$.a b", 11, "expected"),
        ("orders:$.a[b]", 11, "expected"),
        ("orders:$.a[?(@.b)]", 11, "expected"),
        ("orders:$.a[1:2]", 11, "expected"),
        ("orders:$.a['b", 11, "expected"),
        ("orders:$.a[12345678901]", 11, "expected"),
        ("orders:$" + ".a" * 40, 73, "steps"),
        ("orders:$..a..b..c..d", 18, "'..'"),
        ("orders:$." + "a" * 1000, 1001, "characters"),
        ("orders:properties.", 19, "missing"),
        ("orders:properties.a\x01", 20, "has this"),
        ("\u202eorders:$.a", 1, "a topic"),
    ],
)
def test_a_wrong_mask_says_where_and_why(expression: str, at: int, why: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Masks(["orders:$.fine", expression])
    text = str(caught.value)
    assert f"at character {at}:" in text
    assert why in text.partition(f"at character {at}:")[2]
    assert text.isascii()


NAMES = st.sampled_from(["a", "b", "card", "订"])
SECRET = "4111"
TREES = st.recursive(
    st.sampled_from([1, None, "x", SECRET, [SECRET], {"card": SECRET}]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=15,
)


def without(tree: Any) -> Any:
    """A tree in which each member "card" is hidden, the plain way."""
    if isinstance(tree, dict):
        return {name: HIDDEN if name == "card" else without(each) for name, each in tree.items()}
    return [without(each) for each in tree] if isinstance(tree, list) else tree


@given(st.dictionaries(NAMES, TREES), st.booleans())
def test_a_name_is_hidden_at_every_depth(tree: dict[str, Any], is_packed: bool) -> None:
    body = json.dumps(tree).encode()
    found = Masks(["orders:$..card"]).message(received(gzip.compress(body) if is_packed else body))
    content = gzip.decompress(found.body) if found.body[:2] == b"\x1f\x8b" else found.body
    assert json.loads(content) == without(tree)


@given(st.binary(max_size=100), st.sampled_from([0, 1, 0x101, 0x201, 0x301, 0x701]))
def test_any_body_is_masked_or_hidden(body: bytes, sys_flag: int) -> None:
    Masks(["orders:$..card"]).message(received(body, sys_flag=sys_flag))


@given(st.text(st.sampled_from("$.[]*'\"-0a:?"), max_size=12))
def test_any_expression_is_a_mask_or_a_configuration_error(text: str) -> None:
    try:
        masks = Masks(["orders:" + text])
    except ConfigurationError:
        return
    masks.message(received(b'{"a":[{"a":1}],"":0}'))


@pytest.mark.slow
@pytest.mark.parametrize("path", ["$..card", "$..*..*..*", "$.*[*][*]..[0]"])
def test_a_large_body_is_masked_in_little_time(path: str) -> None:
    begin_s = time.process_time()
    for body in (
        b"[" + b"[]," * 140_000 + b"1]",
        (b"[" * 300 + b"]" * 300).join([b"[", b",0]"]),
        b"[" + b",".join([b"[" * 300 + b"]" * 300] * 400) + b"]",
        b'{"a":"' + b"x" * (4 << 20) + b'"}',
    ):
        found = Masks([f"orders:{path}"]).masked(received(body))
        assert found.body in BodyState
    assert time.process_time() - begin_s < 4.0
