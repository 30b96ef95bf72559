"""Health and reflection, as tools ask for them."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from trocket.grpc_protocol.schema import Messages
from trocket.grpc_server.methods import introspection
from trocket.testing import Broker

METHODS = introspection.methods(Messages())
CHECK, WATCH = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"
REFLECT = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"


@pytest.mark.parametrize(("service", "is_known"), [("", True), (introspection.MESSAGING, True),
                                                   ("unknown", False)])  # fmt: skip
def test_health(broker: Broker, service: str, is_known: bool) -> None:
    method = METHODS[CHECK]
    with grpc.insecure_channel(broker.broker_address) as channel:
        request = method.request(service=service)
        check = channel.unary_unary(
            CHECK, method.request.SerializeToString, method.answer.FromString
        )
        if is_known:
            assert check(request, 10).status == 1
        else:
            with pytest.raises(grpc.RpcError) as caught:
                check(request, 10)
            assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        watch = channel.unary_stream(
            WATCH, method.request.SerializeToString, method.answer.FromString
        )
        watching = watch(request, 10)
        assert next(watching).status == (1 if is_known else 3)
        watching.cancel()


@pytest.mark.parametrize("path", [REFLECT, REFLECT.replace("v1", "v1alpha")])
def test_reflection(broker: Broker, path: str) -> None:
    method = METHODS[path]
    asked: list[dict[str, Any]] = [
        {"list_services": "*"},
        {"file_containing_symbol": introspection.MESSAGING},
        {"file_by_filename": "google/protobuf/timestamp.proto"},
        {"file_by_filename": "nowhere.proto"},
        {"file_containing_symbol": "other.Service"},
        {"all_extension_numbers_of_type": "x"},
        {},
    ]
    with grpc.insecure_channel(broker.broker_address) as channel:
        reflect = channel.stream_stream(
            path, method.request.SerializeToString, method.answer.FromString
        )
        answers = list(reflect(iter([method.request(**each) for each in asked]), 10))
    services, symbol, file, *errors = answers
    names = [each.name for each in services.list_services_response.service]
    assert introspection.MESSAGING in names
    files = [
        FileDescriptorProto.FromString(each)
        for each in symbol.file_descriptor_response.file_descriptor_proto
    ]
    assert "SendMessage" in [each.name for each in files[0].service[0].method]
    assert len(file.file_descriptor_response.file_descriptor_proto) == 1
    assert [each.error_response.error_code for each in errors] == [5] * 4
