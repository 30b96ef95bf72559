"""Health and reflection: what tools ask any gRPC server, without a client id or an account.

Source: github.com/grpc/grpc-proto, grpc/health/v1/health.proto, grpc/reflection/v1/reflection.proto
(v1alpha has the same messages).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, Final

from google.protobuf import duration_pb2, message_factory, timestamp_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from ...grpc_protocol.schema import FILE, PACKAGE, SERVICE, Fields, Messages, add_fields
from ...grpc_protocol.schema import file_descriptor as rocketmq_file
from ...grpc_protocol.session import GrpcStatus
from ..exchange import Exchange, Function, Method, Refuse
from ..refused import Refused

HEALTH: Final = "grpc.health.v1"
REFLECTIONS: Final = ("grpc.reflection.v1", "grpc.reflection.v1alpha")

MESSAGING: Final = f"{PACKAGE}.{SERVICE}"
_HEALTH_SERVICE: Final = f"{HEALTH}.Health"
_SERVED: Final = ("", MESSAGING)
"""The services whose health is known; the empty name is that of the whole server."""

_HEALTH_MESSAGES: Final[Mapping[str, Fields]] = {
    "HealthCheckRequest": {"service": (1, "string")},
    "HealthCheckResponse": {"status": (1, "int32")},  # an enumeration, which has the same bytes
}
_REFLECTION_MESSAGES: Final[Mapping[str, Fields]] = {
    "ExtensionRequest": {"containing_type": (1, "string"), "extension_number": (2, "int32")},
    "ServerReflectionRequest": {
        "host": (1, "string"),
        "file_by_filename": (3, "string@message_request"),
        "file_containing_symbol": (4, "string@message_request"),
        "file_containing_extension": (5, "ExtensionRequest@message_request"),
        "all_extension_numbers_of_type": (6, "string@message_request"),
        "list_services": (7, "string@message_request"),
    },
    "FileDescriptorResponse": {"file_descriptor_proto": (1, "*bytes")},
    "ServiceResponse": {"name": (1, "string")},
    "ListServiceResponse": {"service": (1, "*ServiceResponse")},
    "ErrorResponse": {"error_code": (1, "int32"), "error_message": (2, "string")},
    "ServerReflectionResponse": {
        "valid_host": (1, "string"),
        "original_request": (2, "ServerReflectionRequest"),
        "file_descriptor_response": (4, "FileDescriptorResponse@message_response"),
        "list_services_response": (6, "ListServiceResponse@message_response"),
        "error_response": (7, "ErrorResponse@message_response"),
    },
}

_FILES: Final = {
    FILE: rocketmq_file().SerializeToString(),
    timestamp_pb2.DESCRIPTOR.name: timestamp_pb2.DESCRIPTOR.serialized_pb,
    duration_pb2.DESCRIPTOR.name: duration_pb2.DESCRIPTOR.serialized_pb,
}
"""What reflection shows, by name."""


class Serving(enum.IntEnum):
    """The health of a service."""

    SERVING = 1
    SERVICE_UNKNOWN = 3


def check(exchange: Exchange, request: Any) -> None:
    """Say whether a service is served."""
    if request.service in _SERVED:
        exchange.answer(exchange.method.answer(status=Serving.SERVING))
    else:
        exchange.finish(GrpcStatus.NOT_FOUND, f"there is no service {request.service[:200]}")


def watch(exchange: Exchange, request: Any) -> None:
    """Say so, and would say when that changes: the stream ends with the server."""
    known = request.service in _SERVED
    status = Serving.SERVING if known else Serving.SERVICE_UNKNOWN
    exchange.send(exchange.method.answer(status=status))


def reflect(exchange: Exchange, request: Any) -> None:
    """Answer one question for the services and their messages."""
    answer = exchange.method.answer(valid_host=request.host, original_request=request)
    kind = request.WhichOneof("message_request")
    wanted = "" if kind is None else getattr(request, kind)
    if kind == "list_services":
        for name in (MESSAGING, _HEALTH_SERVICE):
            answer.list_services_response.service.add(name=name)
    elif kind == "file_by_filename" and wanted in _FILES:
        answer.file_descriptor_response.file_descriptor_proto.append(_FILES[wanted])
    elif kind == "file_containing_symbol" and f"{wanted}.".startswith(f"{PACKAGE}."):
        answer.file_descriptor_response.file_descriptor_proto.extend(_FILES.values())
    else:
        answer.error_response.error_code = GrpcStatus.NOT_FOUND
        answer.error_response.error_message = f"nothing is known of {str(wanted)[:200]!r}"
    exchange.send(answer)


def refuse(exchange: Exchange, refused: Refused) -> None:
    """End a call that cannot be served."""
    exchange.finish(GrpcStatus.INTERNAL, refused.text)


def methods(messages: Messages) -> dict[str, Method]:
    """The methods of health and reflection, by path.

    Args:
      messages: its pool gets their messages, too.
    """
    pool = messages.pool

    def made(package: str, declared: Mapping[str, Fields]) -> dict[str, type[Any]]:
        file = FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
        for name, fields in declared.items():
            add_fields(file.message_type.add(name=name), fields, package)
        pool.Add(file)
        return {
            name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}"))
            for name in declared
        }

    health = made(HEALTH, _HEALTH_MESSAGES)
    classes = health["HealthCheckRequest"], health["HealthCheckResponse"]
    table = {
        f"/{_HEALTH_SERVICE}/Check": _open(check, *classes),
        f"/{_HEALTH_SERVICE}/Watch": _open(watch, *classes),
    }
    for package in REFLECTIONS:
        found = made(package, _REFLECTION_MESSAGES)
        classes = found["ServerReflectionRequest"], found["ServerReflectionResponse"]
        table[f"/{package}.ServerReflection/ServerReflectionInfo"] = _open(reflect, *classes)
    return table


def _open(function: Function, request: type[Any], answer: type[Any]) -> Method:
    refusal: Refuse = refuse
    return Method(function, refusal, request, answer, needs_client=False)


STREAMS: Final = frozenset(
    f"/{package}.ServerReflection/ServerReflectionInfo" for package in REFLECTIONS
)
"""Methods to which a client may send several messages."""
