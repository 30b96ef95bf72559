"""The C extension reads and writes messages of gRPC clients as protobuf does, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trocket import native

from ..fuzz.material import mutated
from .grpc_twins import (
    MESSAGES,
    RULES,
    ack_request,
    check_ack,
    check_received,
    check_send,
    send_request,
)

extension: Any = native.extension
pytestmark = pytest.mark.skipif(extension is None, reason=native.choice.description)


@given(st.integers(0, 1 << 32))
def test_what_is_read_is_what_protobuf_reads(seed: int) -> None:
    random = Random(seed)
    data = send_request(random)
    check_send(data, extension)
    check_send(mutated(random, data), extension)


@given(st.integers(0, 1 << 32))
def test_what_is_written_is_what_protobuf_writes(seed: int) -> None:
    check_received(Random(seed), extension)


@given(st.integers(0, 1 << 32))
def test_acknowledgements(seed: int) -> None:
    random = Random(seed)
    data = ack_request(random)
    check_ack(data, extension)
    check_ack(mutated(random, data), extension)


def test_most_messages_and_acknowledgements_are_usual() -> None:
    assert sum(check_received(Random(seed), extension) for seed in range(500)) > 100
    assert sum(check_ack(ack_request(Random(seed)), extension) for seed in range(500)) > 30


def test_most_requests_are_read() -> None:
    assert sum(check_send(send_request(Random(seed)), extension) for seed in range(1_000)) > 100


def usual() -> Any:
    request = MESSAGES.SendMessageRequest()
    message = request.messages.add()
    message.topic.name = "T"
    message.body = b"body"
    message.system_properties.message_id = "01A"
    message.user_properties["colour"] = "red"
    return request


def test_a_usual_one() -> None:
    request = usual()
    system = request.messages[0].system_properties
    system.tag, system.message_group, system.body_encoding = "A", "G", 2
    system.keys.extend(["k", "l"])
    properties = b"colour\1red\2TAGS\1A\2KEYS\1k l\2UNIQ_KEY\x0101A\2PGROUP\1T\2__SHARDINGKEY\1G\2"
    found = extension.grpc_send(request.SerializeToString(), RULES.send_limits)
    assert found == ("T", 2, 1, "01A", "G", properties, b"body", 0)


def set_system(**fields: Any) -> Callable[[Any], None]:
    def change(request: Any) -> None:
        for name, value in fields.items():
            setattr(request.messages[0].system_properties, name, value)

    return change


def set_property(name: str, value: str = "v") -> Callable[[Any], None]:
    def change(request: Any) -> None:
        request.messages[0].user_properties[name] = value

    return change


LEFT: list[Callable[[Any], None]] = [
    lambda request: request.messages.add(),
    lambda request: request.messages[0].ClearField("topic"),
    lambda request: request.messages[0].ClearField("body"),
    lambda request: request.messages[0].system_properties.ClearField("message_id"),
    lambda request: request.messages[0].system_properties.keys.append(" "),
    lambda request: request.messages[0].system_properties.delivery_timestamp.FromSeconds(1),
    set_system(message_type=4),
    set_system(priority=1),
    set_system(lite_topic="l"),
    set_system(delivery_attempt=1),
    set_system(tag="a|b"),
    set_system(tag=" "),
    set_system(message_group="g" * 64),
    set_system(message_group="a\tb"),
    set_system(born_host="a\x85b"),
    set_property("KEYS"),
    set_property("__transactionId__"),
    set_property(""),
    set_property("a\x7f"),
    set_property("a", "\n"),
    set_property("a", "x" * 60),
]


@pytest.mark.parametrize("change", LEFT)
def test_what_is_special_or_refused_is_left_to_protobuf(change: Callable[[Any], None]) -> None:
    request = usual()
    change(request)
    assert extension.grpc_send(request.SerializeToString(), RULES.send_limits) is None


def test_names_that_come_twice_are_left_to_protobuf() -> None:
    entry = b"\x12\x06\x0a\x01a\x12\x01b"
    message = b"\x0a\x03\x12\x01T\x1a\x05\x1a\x0301A\x22\x01b"
    limits = RULES.send_limits
    for entries, is_read in ((entry, True), (2 * entry, False)):
        data = b"\x0a" + bytes((len(message + entries),)) + message + entries
        assert (extension.grpc_send(data, limits) is not None) == is_read


def test_wrong_arguments_are_errors() -> None:
    for arguments in ((b"",), ("", RULES.send_limits), (b"", ()), (b"", ([], 1, 1, 1))):
        with pytest.raises(TypeError):
            extension.grpc_send(*arguments)
    for arguments in ((b"", "a"), (b"", b"a", 1), (b"", "a", -1), ("", "a", 1)):
        with pytest.raises(TypeError):
            extension.grpc_sent(*arguments)
