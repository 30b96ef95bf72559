"""Messages of gRPC clients by chance, and the comparison of the C extension with protobuf."""

from __future__ import annotations

import hashlib
from random import Random
from typing import Any, Final

from google.protobuf.message import DecodeError

from trocket.common.message_properties import properties_from_string, properties_to_bytes
from trocket.grpc_protocol.fields import milliseconds, set_resource
from trocket.grpc_protocol.schema import Messages
from trocket.grpc_server.handle import Handle
from trocket.grpc_server.messages import (
    WRITTEN_NAMES,
    received_message,
    send_properties,
    sys_flag_of,
    type_of,
)
from trocket.grpc_server.rules import Rules
from trocket.native import Extension
from trocket.remoting.message import MessageExt
from trocket.remoting.receipt import TopicForm

from ..fuzz.material import mutated

MESSAGES: Final = Messages()
RULES: Final = Rules(user_property_max_num=4, max_user_property_size=60)
NOW_MS: Final = 1_795_239_529_771

_TEXTS: Final = (
    "", " ", "a", "colour", "TagA", "a|b", "KEYS", "__SHARDINGKEY", "TRACE_CONTEXT", "ä", "\u0085",
    "\u00a0", "x" * 63, "x" * 64, "y" * 200, "a\tb", "a\x7fb", "é\u2028", "01" * 17, "A B", "0",
)  # fmt: skip


def text(random: Random) -> str:
    """A text that a field may have."""
    if random.random() < 0.8:
        return random.choice(("a", "TagA", "colour", "01F5B2C3D4E5F607", "order-7", "red"))
    return random.choice(_TEXTS)


def send_request(random: Random) -> bytes:
    """An encoded SendMessageRequest, most of them usual ones."""
    count = random.choice((1, 1, 1, 1, 1, 0, 2))
    request = MESSAGES.SendMessageRequest(messages=[_message(random) for _ in range(count)])
    data: bytes = request.SerializeToString()
    if random.random() < 0.2:  # a field that comes again, or one of the future
        data += random.choice((b"\x0a\x00", b"\x12\x00", b"\x18\x01", b"\x0a\x02\x22\x00"))
    return data


def _message(random: Random) -> Any:
    message = MESSAGES.Message(body=random.choice((b"body", b"", b"\0\1\2", b"x" * 300)))
    message.topic.name = text(random)
    if random.random() < 0.2:
        message.topic.resource_namespace = text(random)
    for _ in range(random.choice((0, 0, 1, 2, 5))):
        message.user_properties[text(random)] = text(random)
    system = message.system_properties
    system.message_id = text(random)
    system.keys.extend(text(random) for _ in range(random.choice((0, 0, 1, 3))))
    system.born_timestamp.seconds = 1_795_239_529
    for name, odds in (("tag", 0.5), ("born_host", 0.5), ("message_group", 0.3)):
        if random.random() < odds:
            setattr(system, name, text(random))
    for name in ("trace_context", "lite_topic"):
        if random.random() < 0.1:
            setattr(system, name, text(random))
    for name, values in (
        ("body_encoding", (0, 1, 2, 3)),
        ("message_type", (0, 1, 2, 3, 4, 9)),
        ("queue_id", (0, 3, -1)),
        ("priority", (0, 3, -1)),
        ("delivery_attempt", (0, 2)),
    ):
        if random.random() < 0.15:
            setattr(system, name, random.choice(values))
    if random.random() < 0.3:
        system.body_digest.type = random.choice((1, 2))
        system.body_digest.checksum = text(random)
    if random.random() < 0.1:
        system.delivery_timestamp.seconds = 1_795_239_600
    return message


def check_send(data: bytes, extension: Extension) -> bool:
    """Compare what is read of a request; returns whether the extension read it."""
    ours = extension.grpc_send(data, RULES.send_limits)
    if ours is None:
        return False
    topic, type_, sys_flag, message_id, group, properties, body, born_ms = ours
    try:
        request = MESSAGES.SendMessageRequest.FromString(data)
    except DecodeError as error:
        raise AssertionError(f"protobuf does not read {data!r}") from error
    assert len(request.messages) == 1, data
    message = request.messages[0]
    system = message.system_properties
    assert topic == message.topic.name, data
    assert born_ms == milliseconds(system.born_timestamp), data
    assert (type_, sys_flag) == (type_of(system), sys_flag_of(system)), data
    assert (message_id, body) == (system.message_id, message.body), data
    assert (group or "") == system.message_group, data
    pure = send_properties(message, system, topic, RULES, NOW_MS)  # raises if it is refused
    assert len(properties) == len(properties_to_bytes(pure)), (data, properties, pure)
    # Protobuf gives the user's properties in no order that is promised.
    expected = {name: value for name, value in pure.items() if value}
    assert properties_from_string(properties.decode()) == expected, (data, properties, pure)
    return True


_HOST: Final = bytes((127, 0, 0, 1, 0, 0, 42, 159))


def record(random: Random) -> MessageExt:
    """A record of a plain queue, with any properties."""
    names = (
        "TAGS", "KEYS", "UNIQ_KEY", "__SHARDINGKEY", "TRACE_CONTEXT", "__BORNHOST", "PGROUP",
        "colour", "a", "TIMER_DELIVER_MS", "TRAN_MSG", "_SYS_MSG_PRIORITY_", "CLUSTER", "é",
    )  # fmt: skip
    items = [("UNIQ_KEY", "01AB")] if random.random() < 0.9 else []
    items += [(random.choice(names), text(random)) for _ in range(random.choice((0, 1, 2, 4)))]
    properties = "".join(f"{name}\1{value}\2" for name, value in items).encode()
    if random.random() < 0.1:
        properties = mutated(random, properties)
    return MessageExt(
        topic="T", queue_id=random.choice((0, 1, 1023)),
        queue_offset=random.choice((0, 300, 2**40)),
        physical_offset=7, body=random.choice((b"", b"body", b"x" * 300)),
        properties_bytes=properties, flag=0, sys_flag=0,
        born_timestamp_ms=random.choice((0, 999, NOW_MS)), born_host=_HOST,
        store_timestamp_ms=NOW_MS, store_host=random.choice((_HOST, bytes(8), b"\xff" * 8)),
        reconsume_times=random.choice((0, 2)), prepared_transaction_offset=0, store_size=0,
        magic=0, body_crc=0,
    )  # fmt: skip


def check_received(random: Random, extension: Extension) -> bool:
    """Compare a record for a client; returns whether the extension wrote it."""
    found = record(random)
    invisible_ms = random.choice((0, 1, 60_000))
    handle = f"1 2 {invisible_ms} 4 0 broker-a 6 7 8"
    digest = hashlib.md5(found.body).hexdigest().upper()
    topic = random.choice(("T", "ns%T"))
    resource = MESSAGES.Resource()
    set_resource(resource, topic)
    ours = extension.grpc_message(
        WRITTEN_NAMES, resource.SerializeToString(), found.body, found.properties_bytes,
        found.queue_id, found.born_timestamp_ms, found.born_host, found.store_timestamp_ms,
        found.store_host, digest, handle, found.queue_offset, found.reconsume_times + 1,
    )  # fmt: skip
    if ours is None:
        return False
    pure = received_message(MESSAGES, found, topic, attempt=found.reconsume_times + 1)
    pure.system_properties.receipt_handle = handle
    expected = MESSAGES.ReceiveMessageResponse(message=pure)
    assert MESSAGES.ReceiveMessageResponse.FromString(ours) == expected, found
    return True


def ack_request(random: Random) -> bytes:
    """An encoded AckMessageRequest, most of them usual ones."""
    request = MESSAGES.AckMessageRequest()
    for resource in (request.group, request.topic):
        resource.name = text(random)
        if random.random() < 0.2:
            resource.resource_namespace = text(random)
    numbers = ["0", "7", "1795239529771", "60000", "-1", "01", "9" * 18, "9" * 19, "", "x"]
    for _ in range(random.choice((1, 1, 1, 1, 0, 2))):
        known = numbers[: random.choice((4, 4, 4, 10))]
        fields = [random.choice(known) for _ in range(9)]
        fields[4] = random.choice("00012x")
        fields[5] = random.choice(("broker-a", "broker-a", "", "é"))
        del fields[random.choice((9, 9, 9, 9, 8)) :]
        handle = " ".join(fields)
        request.entries.add(message_id=text(random), receipt_handle=handle)
        if random.random() < 0.1:
            request.entries[-1].lite_topic = "l"
    data: bytes = request.SerializeToString()
    return data


def check_ack(data: bytes, extension: Extension) -> bool:
    """Compare what is read of a request; returns whether the extension read it."""
    ours = extension.grpc_ack(data)
    if ours is None:
        return False
    group, topic, message_id, text_of_handle, numbers = ours
    request = MESSAGES.AckMessageRequest.FromString(data)
    (entry,) = request.entries
    assert (group, topic) == (request.group.name, request.topic.name), data
    assert (message_id, text_of_handle) == (entry.message_id, entry.receipt_handle), data
    assert not entry.HasField("lite_topic")
    if numbers[4] < len(TopicForm):
        handle = Handle.from_text(text_of_handle)
        form = tuple(TopicForm)[numbers[4]]
        assert (*handle.receipt, handle.physical_offset) == (*numbers[:4], form, *numbers[5:])
    status = MESSAGES.Status(code=20000, message="OK")
    answer = extension.grpc_acked(status.SerializeToString(), message_id, text_of_handle)
    result = MESSAGES.AckMessageResultEntry(
        message_id=message_id, receipt_handle=text_of_handle, status=status
    )
    expected = MESSAGES.AckMessageResponse(status=status, entries=[result])
    assert MESSAGES.AckMessageResponse.FromString(answer) == expected
    return True
