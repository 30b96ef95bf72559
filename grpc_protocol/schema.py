"""The messages of apache.rocketmq.v2, declared as data, and their classes.

A field is (number, type). A type is a name: a scalar of protobuf, an enumeration, or a message.
Before it, `*` means repeated, and `?` that presence is kept (proto3 optional); after it, `@NAME` is
the oneof that it belongs to.

The classes live in a descriptor pool of their own: a program may also import RocketMQ's Python
client, which registers the same names in protobuf's default pool.

Source: github.com/apache/rocketmq-apis, apache/rocketmq/v2/{definition,service}.proto; the
descriptors inside rocketmq-python-client 5.1.2.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from google.protobuf import descriptor_pool, duration_pb2, message_factory, timestamp_pb2
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

from .enums import ENUMS

PACKAGE: Final = "apache.rocketmq.v2"
FILE: Final = "apache/rocketmq/v2/service.proto"
"""The name of the one file that reflection shows."""

SERVICE: Final = "MessagingService"

Fields = Mapping[str, tuple[int, str]]

MESSAGES: Final[Mapping[str, Fields]] = {
    # What requests and answers are made of
    "FilterExpression": {"type": (1, "FilterType"), "expression": (2, "string")},
    "ExponentialBackoff": {
        "initial": (1, "Duration"),
        "max": (2, "Duration"),
        "multiplier": (3, "float"),
    },
    "CustomizedBackoff": {"next": (1, "*Duration")},
    "RetryPolicy": {
        "max_attempts": (1, "int32"),
        "exponential_backoff": (2, "ExponentialBackoff@strategy"),
        "customized_backoff": (3, "CustomizedBackoff@strategy"),
    },
    "Resource": {"resource_namespace": (1, "string"), "name": (2, "string")},
    "SubscriptionEntry": {"topic": (1, "Resource"), "expression": (2, "FilterExpression")},
    "Address": {"host": (1, "string"), "port": (2, "int32")},
    "Endpoints": {"scheme": (1, "AddressScheme"), "addresses": (2, "*Address")},
    "Broker": {"name": (1, "string"), "id": (2, "int32"), "endpoints": (3, "Endpoints")},
    "MessageQueue": {
        "topic": (1, "Resource"),
        "id": (2, "int32"),
        "permission": (3, "Permission"),
        "broker": (4, "Broker"),
        "accept_message_types": (5, "*MessageType"),
    },
    "Digest": {"type": (1, "DigestType"), "checksum": (2, "string")},
    "DeadLetterQueue": {"topic": (1, "string"), "message_id": (2, "string")},
    "SystemProperties": {
        "tag": (1, "?string"),
        "keys": (2, "*string"),
        "message_id": (3, "string"),
        "body_digest": (4, "Digest"),
        "body_encoding": (5, "Encoding"),
        "message_type": (6, "MessageType"),
        "born_timestamp": (7, "Timestamp"),
        "born_host": (8, "string"),
        "store_timestamp": (9, "?Timestamp"),
        "store_host": (10, "string"),
        "delivery_timestamp": (11, "?Timestamp"),
        "receipt_handle": (12, "?string"),
        "queue_id": (13, "int32"),
        "queue_offset": (14, "?int64"),
        "invisible_duration": (15, "?Duration"),
        "delivery_attempt": (16, "?int32"),
        "message_group": (17, "?string"),
        "trace_context": (18, "?string"),
        "orphaned_transaction_recovery_duration": (19, "?Duration"),
        "dead_letter_queue": (20, "?DeadLetterQueue"),
        "lite_topic": (21, "?string"),
        "priority": (22, "?int32"),
    },
    "Message": {
        "topic": (1, "Resource"),
        "user_properties": (2, "map"),
        "system_properties": (3, "SystemProperties"),
        "body": (4, "bytes"),
    },
    "Assignment": {"message_queue": (1, "MessageQueue")},
    "Status": {"code": (1, "Code"), "message": (2, "string")},
    "UA": {
        "language": (1, "Language"),
        "version": (2, "string"),
        "platform": (3, "string"),
        "hostname": (4, "string"),
    },
    "Publishing": {
        "topics": (1, "*Resource"),
        "max_body_size": (2, "int32"),
        "validate_message_type": (3, "bool"),
    },
    "Subscription": {
        "group": (1, "?Resource"),
        "subscriptions": (2, "*SubscriptionEntry"),
        "fifo": (3, "?bool"),
        "receive_batch_size": (4, "?int32"),
        "long_polling_timeout": (5, "?Duration"),
        "lite_subscription_quota": (6, "?int32"),
        "max_lite_topic_size": (7, "?int32"),
    },
    "Metric": {"on": (1, "bool"), "endpoints": (2, "?Endpoints")},
    "Settings": {
        "client_type": (1, "?ClientType"),
        "access_point": (2, "?Endpoints"),
        "backoff_policy": (3, "?RetryPolicy"),
        "request_timeout": (4, "?Duration"),
        "publishing": (5, "Publishing@pub_sub"),
        "subscription": (6, "Subscription@pub_sub"),
        "user_agent": (7, "UA"),
        "metric": (8, "Metric"),
        "client_properties": (9, "map"),
    },
    # Requests and answers
    "QueryRouteRequest": {"topic": (1, "Resource"), "endpoints": (2, "Endpoints")},
    "QueryRouteResponse": {"status": (1, "Status"), "message_queues": (2, "*MessageQueue")},
    "SendMessageRequest": {"messages": (1, "*Message")},
    "SendResultEntry": {
        "status": (1, "Status"),
        "message_id": (2, "string"),
        "transaction_id": (3, "string"),
        "offset": (4, "int64"),
        "recall_handle": (5, "string"),
    },
    "SendMessageResponse": {"status": (1, "Status"), "entries": (2, "*SendResultEntry")},
    "QueryAssignmentRequest": {
        "topic": (1, "Resource"),
        "group": (2, "Resource"),
        "endpoints": (3, "Endpoints"),
    },
    "QueryAssignmentResponse": {"status": (1, "Status"), "assignments": (2, "*Assignment")},
    "ReceiveMessageRequest": {
        "group": (1, "Resource"),
        "message_queue": (2, "MessageQueue"),
        "filter_expression": (3, "FilterExpression"),
        "batch_size": (4, "int32"),
        "invisible_duration": (5, "?Duration"),
        "auto_renew": (6, "bool"),
        "long_polling_timeout": (7, "?Duration"),
        "attempt_id": (8, "?string"),
    },
    "ReceiveMessageResponse": {
        "status": (1, "Status@content"),
        "message": (2, "Message@content"),
        "delivery_timestamp": (3, "Timestamp@content"),
    },
    "AckMessageEntry": {
        "message_id": (1, "string"),
        "receipt_handle": (2, "string"),
        "lite_topic": (3, "?string"),
    },
    "AckMessageRequest": {
        "group": (1, "Resource"),
        "topic": (2, "Resource"),
        "entries": (3, "*AckMessageEntry"),
    },
    "AckMessageResultEntry": {
        "message_id": (1, "string"),
        "receipt_handle": (2, "string"),
        "status": (3, "Status"),
    },
    "AckMessageResponse": {"status": (1, "Status"), "entries": (2, "*AckMessageResultEntry")},
    "ForwardMessageToDeadLetterQueueRequest": {
        "group": (1, "Resource"),
        "topic": (2, "Resource"),
        "receipt_handle": (3, "string"),
        "message_id": (4, "string"),
        "delivery_attempt": (5, "int32"),
        "max_delivery_attempts": (6, "int32"),
        "lite_topic": (7, "?string"),
    },
    "ForwardMessageToDeadLetterQueueResponse": {"status": (1, "Status")},
    "HeartbeatRequest": {"group": (1, "?Resource"), "client_type": (2, "ClientType")},
    "HeartbeatResponse": {"status": (1, "Status")},
    "EndTransactionRequest": {
        "topic": (1, "Resource"),
        "message_id": (2, "string"),
        "transaction_id": (3, "string"),
        "resolution": (4, "TransactionResolution"),
        "source": (5, "TransactionSource"),
        "trace_context": (6, "string"),
    },
    "EndTransactionResponse": {"status": (1, "Status")},
    "NotifyClientTerminationRequest": {"group": (1, "?Resource")},
    "NotifyClientTerminationResponse": {"status": (1, "Status")},
    "ChangeInvisibleDurationRequest": {
        "group": (1, "Resource"),
        "topic": (2, "Resource"),
        "receipt_handle": (3, "string"),
        "invisible_duration": (4, "Duration"),
        "message_id": (5, "string"),
        "lite_topic": (6, "?string"),
        "suspend": (7, "?bool"),
    },
    "ChangeInvisibleDurationResponse": {"status": (1, "Status"), "receipt_handle": (2, "string")},
    "RecallMessageRequest": {"topic": (1, "Resource"), "recall_handle": (2, "string")},
    "RecallMessageResponse": {"status": (1, "Status"), "message_id": (2, "string")},
    "PullMessageRequest": {
        "group": (1, "Resource"),
        "message_queue": (2, "MessageQueue"),
        "offset": (3, "int64"),
        "batch_size": (4, "int32"),
        "filter_expression": (5, "FilterExpression"),
        "long_polling_timeout": (6, "Duration"),
    },
    "PullMessageResponse": {
        "status": (1, "Status@content"),
        "message": (2, "Message@content"),
        "next_offset": (3, "int64@content"),
    },
    "UpdateOffsetRequest": {
        "group": (1, "Resource"),
        "message_queue": (2, "MessageQueue"),
        "offset": (3, "int64"),
    },
    "UpdateOffsetResponse": {"status": (1, "Status")},
    "GetOffsetRequest": {"group": (1, "Resource"), "message_queue": (2, "MessageQueue")},
    "GetOffsetResponse": {"status": (1, "Status"), "offset": (2, "int64")},
    "QueryOffsetRequest": {
        "message_queue": (1, "MessageQueue"),
        "query_offset_policy": (2, "QueryOffsetPolicy"),
        "timestamp": (3, "?Timestamp"),
    },
    "QueryOffsetResponse": {"status": (1, "Status"), "offset": (2, "int64")},
    "OffsetOption": {
        "policy": (1, "int32@offset_type"),  # 0 last, 1 minimum, 2 maximum
        "offset": (2, "int64@offset_type"),
        "tail_n": (3, "int64@offset_type"),
        "timestamp": (4, "int64@offset_type"),
    },
    "SyncLiteSubscriptionRequest": {
        "action": (1, "LiteSubscriptionAction"),
        "topic": (2, "Resource"),
        "group": (3, "Resource"),
        "lite_topic_set": (4, "*string"),
        "version": (5, "?int64"),
        "offset_option": (6, "?OffsetOption"),
    },
    "SyncLiteSubscriptionResponse": {"status": (1, "Status")},
    # The stream of commands in both directions
    "ThreadStackTrace": {"nonce": (1, "string"), "thread_stack_trace": (2, "?string")},
    "VerifyMessageResult": {"nonce": (1, "string")},
    "RecoverOrphanedTransactionCommand": {
        "message": (1, "Message"),
        "transaction_id": (2, "string"),
    },
    "PrintThreadStackTraceCommand": {"nonce": (1, "string")},
    "VerifyMessageCommand": {"nonce": (1, "string"), "message": (2, "Message")},
    "ReconnectEndpointsCommand": {"nonce": (1, "string")},
    "NotifyUnsubscribeLiteCommand": {"lite_topic": (1, "string")},
    "TelemetryCommand": {
        "status": (1, "?Status"),
        "settings": (2, "Settings@command"),
        "thread_stack_trace": (3, "ThreadStackTrace@command"),
        "verify_message_result": (4, "VerifyMessageResult@command"),
        "recover_orphaned_transaction_command": (5, "RecoverOrphanedTransactionCommand@command"),
        "print_thread_stack_trace_command": (6, "PrintThreadStackTraceCommand@command"),
        "verify_message_command": (7, "VerifyMessageCommand@command"),
        "reconnect_endpoints_command": (8, "ReconnectEndpointsCommand@command"),
        "notify_unsubscribe_lite_command": (9, "NotifyUnsubscribeLiteCommand@command"),
    },
}

METHODS: Final[Mapping[str, tuple[str, str]]] = {
    name: (f"{name}Request", f"{name}Response")
    for name in (
        "QueryRoute", "Heartbeat", "SendMessage", "QueryAssignment", "ReceiveMessage", "AckMessage",
        "ForwardMessageToDeadLetterQueue", "PullMessage", "UpdateOffset", "GetOffset",
        "QueryOffset", "EndTransaction", "NotifyClientTermination", "ChangeInvisibleDuration",
        "RecallMessage", "SyncLiteSubscription",
    )
} | {"Telemetry": ("TelemetryCommand", "TelemetryCommand")}  # fmt: skip
"""The types of a method's request and answer, by its name."""

SERVER_STREAMS: Final = frozenset({"ReceiveMessage", "PullMessage", "Telemetry"})
"""Methods with more than one answer to a request."""

CLIENT_STREAMS: Final = frozenset({"Telemetry"})

_FIELD: Final = re.compile(r"([*?]?)(\w+)(?:@(\w+))?")
_SCALARS: Final = ("string", "bytes", "int32", "int64", "bool", "float")
_ENUM_NAMES: Final = frozenset(each.__name__ for each in ENUMS)
_GOOGLE: Final = {"Timestamp", "Duration"}


def file_descriptor() -> FileDescriptorProto:
    """The package as one file."""
    file = FileDescriptorProto(
        name=FILE,
        package=PACKAGE,
        syntax="proto3",
        dependency=[timestamp_pb2.DESCRIPTOR.name, duration_pb2.DESCRIPTOR.name],
    )
    for each in ENUMS:
        enum_type = file.enum_type.add(name=each.__name__)
        for member in each:
            enum_type.value.add(name=member.name, number=member.value)
    for name, fields in MESSAGES.items():
        add_fields(file.message_type.add(name=name), fields)
    service = file.service.add(name=SERVICE)
    for name, (request, answer) in METHODS.items():
        service.method.add(
            name=name,
            input_type=f".{PACKAGE}.{request}",
            output_type=f".{PACKAGE}.{answer}",
            client_streaming=name in CLIENT_STREAMS,
            server_streaming=name in SERVER_STREAMS,
        )
    return file


def add_fields(message: DescriptorProto, fields: Fields, package: str = PACKAGE) -> None:
    """Give a message its fields.

    Args:
      package: of the messages that they may name.
    """
    kept: list[FieldDescriptorProto] = []
    oneofs: dict[str, int] = {}
    for name, (number, declared) in fields.items():
        found = _FIELD.fullmatch(declared)
        if found is None:
            raise ValueError(f"the type {declared!r} of {message.name}.{name} cannot be read")
        mark, kind, oneof = found.groups()
        field = message.field.add(
            name=name, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL
        )
        if mark == "*" or kind == "map":
            field.label = FieldDescriptorProto.LABEL_REPEATED
        if kind == "map":
            _make_map(message, field)
        elif kind in _SCALARS:
            field.type = FieldDescriptorProto.Type.Value(f"TYPE_{kind.upper()}")
        else:
            of_kind = "google.protobuf" if kind in _GOOGLE else package
            field.type_name = f".{of_kind}.{kind}"
            field.type = (
                FieldDescriptorProto.TYPE_ENUM
                if kind in _ENUM_NAMES
                else FieldDescriptorProto.TYPE_MESSAGE
            )
        if oneof:
            if oneof not in oneofs:
                oneofs[oneof] = len(oneofs)
                message.oneof_decl.add(name=oneof)
            field.oneof_index = oneofs[oneof]
        if mark == "?":
            kept.append(field)
    # Each is the only member of a oneof, and those come after all others.
    for field in kept:
        field.proto3_optional = True
        field.oneof_index = len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{field.name}")


def _make_map(message: DescriptorProto, field: FieldDescriptorProto) -> None:
    """Give a field the type of a map from strings to strings."""
    entry = message.nested_type.add(
        name="".join(part.capitalize() for part in field.name.split("_")) + "Entry"
    )
    entry.options.map_entry = True
    for number, name in enumerate(("key", "value"), start=1):
        entry.field.add(
            name=name,
            number=number,
            label=FieldDescriptorProto.LABEL_OPTIONAL,
            type=FieldDescriptorProto.TYPE_STRING,
        )
    field.type = FieldDescriptorProto.TYPE_MESSAGE
    field.type_name = f".{PACKAGE}.{message.name}.{entry.name}"


class Messages:
    """The classes of all messages, by name: `messages.Status(code=20000)`."""

    def __init__(self) -> None:
        self.pool = descriptor_pool.DescriptorPool()
        for google in (timestamp_pb2, duration_pb2):
            self.pool.AddSerializedFile(google.DESCRIPTOR.serialized_pb)
        self.pool.Add(file_descriptor())
        self._classes = dict(self._made())

    def _made(self) -> Iterator[tuple[str, type[Any]]]:
        for name in MESSAGES:
            found = self.pool.FindMessageTypeByName(f"{PACKAGE}.{name}")
            yield name, message_factory.GetMessageClass(found)

    def __getattr__(self, name: str) -> type[Any]:
        try:
            return self._classes[name]
        except KeyError:
            raise AttributeError(f"{PACKAGE} has no message {name}") from None
