"""grpc_protocol/schema.py: the classes, and the descriptors that others have."""

from __future__ import annotations

import enum

import pytest
from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from trocket.grpc_protocol import schema
from trocket.grpc_protocol.enums import ENUMS, Code
from trocket.grpc_protocol.schema import MESSAGES, METHODS, PACKAGE, Messages, file_descriptor


@pytest.fixture(scope="module")
def messages() -> Messages:
    return Messages()


def test_a_send_survives_its_bytes(messages: Messages) -> None:
    request = messages.SendMessageRequest()
    message = request.messages.add()
    message.topic.name = "orders"
    message.user_properties["city"] = "Hangzhou"
    message.system_properties.tag = "created"
    message.system_properties.keys.extend(["a", "b"])
    message.system_properties.born_timestamp.FromMilliseconds(1_700_000_000_123)
    message.body = b"body"
    again = messages.SendMessageRequest.FromString(request.SerializeToString())
    assert again == request
    system = again.messages[0].system_properties
    assert system.HasField("tag")
    assert not system.HasField("message_group")
    assert system.born_timestamp.ToMilliseconds() == 1_700_000_000_123


def test_the_bytes_of_a_status_are_those_of_the_protocol(messages: Messages) -> None:
    status = messages.Status(code=Code.TOPIC_NOT_FOUND, message="no")
    assert status.SerializeToString() == b"\x08\xd2\xbb\x02\x12\x02no"


def test_a_oneof_has_one_member(messages: Messages) -> None:
    answer = messages.ReceiveMessageResponse(status=messages.Status(code=Code.OK))
    assert answer.WhichOneof("content") == "status"
    answer.message.body = b"x"
    assert answer.WhichOneof("content") == "message"


def test_there_is_no_other_message(messages: Messages) -> None:
    with pytest.raises(AttributeError, match="has no message Reply"):
        messages.Reply  # noqa: B018


def test_the_default_pool_is_left_to_others(messages: Messages) -> None:
    with pytest.raises(KeyError):
        descriptor_pool.Default().FindMessageTypeByName(f"{PACKAGE}.Status")
    assert messages.pool.FindMessageTypeByName(f"{PACKAGE}.Status") is not None


def test_each_method_has_its_messages() -> None:
    assert {name for pair in METHODS.values() for name in pair} <= MESSAGES.keys()
    assert METHODS.keys() >= schema.SERVER_STREAMS | schema.CLIENT_STREAMS
    assert len(METHODS) == 17


@pytest.mark.parametrize("kind", ENUMS)
def test_the_first_value_of_an_enumeration_is_0(kind: type[enum.IntEnum]) -> None:
    assert next(iter(kind)) == 0


@pytest.mark.parametrize("declared", ["", "* string", "string@", "?map<a,b>", "Nothing"])
def test_a_type_that_cannot_be_read_is_an_error(
    declared: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "MESSAGES", {**MESSAGES, "Bad": {"field": (1, declared)}})
    with pytest.raises((ValueError, TypeError)):
        descriptor_pool.DescriptorPool().Add(file_descriptor())


def test_the_file_is_one_that_reflection_can_show() -> None:
    file = file_descriptor()
    again = FileDescriptorProto.FromString(file.SerializeToString())
    (service,) = again.service
    assert service.name == "MessagingService"
    assert [each.name for each in service.method if each.client_streaming] == ["Telemetry"]
