"""Registrations of brokers in both forms."""

from __future__ import annotations

import struct
import zlib

import construct
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trocket.remoting.bodies import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
    registration,
)
from trocket.remoting.errors import RemoteProtocolError
from trocket.remoting.mq_version import V4_9_7, V5_5_0

from ...constructs import REGISTER_BROKER_BODY

NAMES = st.text(alphabet="abcXYZ%_-é", min_size=1, max_size=8)
TOPICS = st.builds(
    TopicConfig,
    topic_name=NAMES,
    read_queue_nums=st.integers(0, 2**31 - 1),
    write_queue_nums=st.integers(0, 2**31 - 1),
    perm=st.integers(0, 15),
    attributes=st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=2),
)
REGISTRATIONS = st.builds(
    lambda topics, version, servers, mappings: RegisterBrokerBody(
        TopicConfigSerializeWrapper(
            topic_config_table={topic.topic_name: topic for topic in topics},
            data_version=version,
            topic_queue_mapping_info_map={
                name: {"topic": name, "epoch": 1, "currIdMap": {}} for name in mappings
            },
        ),
        servers,
    ),
    st.lists(TOPICS, max_size=4),
    st.builds(DataVersion, *[st.integers(0, 2**63 - 1)] * 3),
    st.lists(st.text(max_size=10), max_size=2),
    st.lists(NAMES, max_size=2),
)


def deflated(*pieces: bytes | int) -> bytes:
    """A registration of these pieces: bytes with their length, numbers as they are."""
    packed = [
        struct.pack(">I", piece)
        if isinstance(piece, int)
        else struct.pack(">I", len(piece)) + piece
        for piece in pieces
    ]
    return zlib.compress(b"".join(packed))


@given(REGISTRATIONS)
def test_both_forms_come_back_the_same(body: RegisterBrokerBody) -> None:
    assert RegisterBrokerBody.from_body(body.to_body()) == body
    assert RegisterBrokerBody.from_body(body.to_compressed_body()) == body


@given(REGISTRATIONS)
def test_the_deflated_form_is_what_the_declaration_says(body: RegisterBrokerBody) -> None:
    wrapper = body.topic_config_serialize_wrapper
    for version in (V4_9_7, V5_5_0):
        data = zlib.decompress(body.to_compressed_body(version=version))
        pieces = REGISTER_BROKER_BODY.parse(data)
        assert len(pieces.topic_configs) == len(wrapper.topic_config_table)
        assert REGISTER_BROKER_BODY.build(pieces) == data
        assert (pieces.mappings is None) == (version == V4_9_7)
        assert (b"stateVersion" in pieces.data_version) == (version == V5_5_0)


@given(st.binary(max_size=60).map(zlib.compress) | st.binary(max_size=60).map(b"x".__add__))
def test_any_deflated_bytes_give_a_registration_or_the_documented_error(body: bytes) -> None:
    try:
        RegisterBrokerBody.from_body(body)
    except RemoteProtocolError:
        return
    REGISTER_BROKER_BODY.parse(zlib.decompress(body))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"x", "is not a zlib stream|ends in the middle"),
        (b"xyz", "is not a zlib stream"),
        (deflated(b"{}", 0, b"[]")[:-3], "ends in the middle"),
        (deflated(), "is cut off"),
        (deflated(b"{}"), "is cut off"),
        (deflated(b"{}", 0), "is cut off"),
        (deflated(b"{}", 2, b"t 1 1 6 SINGLE_TAG"), "is cut off"),
        (deflated(b"{}", 2**32 - 1), "is cut off"),
        (deflated(b"", 0, b"[]"), "a value is expected"),
        (deflated(b"{}", 1, b"t 1", b"[]"), "not a topic's settings"),
        (deflated(b"{}", 1, b"\xff 1 1 6 SINGLE_TAG", b"[]"), "is not UTF-8"),
        (deflated(b"{}", 0, b"{}"), "are not a list"),
        (deflated(b"{}", 0, b"[]", 1, b"{}"), "names no topic"),
        (deflated(b"{}", 0, b"[]", 1, b"[]"), "names no topic"),
        (deflated(b"{}", 0, b"[]", 1), "is cut off"),
    ],
)
def test_a_broken_registration_is_refused(body: bytes, reason: str) -> None:
    with pytest.raises(RemoteProtocolError, match=reason):
        RegisterBrokerBody.from_body(body)


@pytest.mark.slow
def test_a_registration_that_inflates_too_far_is_refused() -> None:
    bomb = zlib.compress(b"\0" * (registration.INFLATED_SIZE_MAX + 1))
    assert len(bomb) < 40_000
    with pytest.raises(RemoteProtocolError, match="is too long"):
        RegisterBrokerBody.from_body(bomb)


def test_the_reader_refuses_what_the_declaration_refuses() -> None:
    body = deflated(b"{}", 3, b"t 1 1 6 SINGLE_TAG")
    with pytest.raises(construct.StreamError):
        REGISTER_BROKER_BODY.parse(zlib.decompress(body))
    with pytest.raises(RemoteProtocolError):
        RegisterBrokerBody.from_body(body)
