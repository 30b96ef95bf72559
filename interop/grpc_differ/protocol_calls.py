"""The protocol below the methods: metadata, deadlines, unknown methods, compressed requests."""

from __future__ import annotations

from typing import Any

from ...grpc_protocol.schema import MESSAGES as FIELDS
from ...grpc_protocol.schema import METHODS
from .builders import producer_settings, resource, wrong_calls
from .call import Call, Raw, Script, Step, Talk, Topic

_TOPIC = "protocol"
_ROUTE = {"topic": resource(_TOPIC)}
_METADATA: dict[str, dict[str, str | None]] = {
    "no client id": {"x-mq-client-id": None},
    "an empty client id": {"x-mq-client-id": ""},
    "a blank client id": {"x-mq-client-id": "  "},
    "a long client id": {"x-mq-client-id": "c" * 200},
    "no language": {"x-mq-language": None},
    "an unknown language": {"x-mq-language": "KLINGON"},
    "a blank language": {"x-mq-language": " "},
    "no version": {"x-mq-client-version": None},
    "a strange version": {"x-mq-client-version": "new"},
    "an unknown protocol": {"x-mq-protocol": "v9"},
    "no date": {"x-mq-date-time": None},
    "a strange date": {"x-mq-date-time": "today"},
    "no request id": {"x-mq-request-id": None},
    "a namespace": {"x-mq-namespace": "ns"},
    "an authorization": {"authorization": "MQv2-HMAC-SHA1 x"},
    "a session token": {"x-mq-session-token": "t"},
    "an unknown header": {"x-mq-unknown": "t"},
}
_UNSERVED = ("PullMessage", "UpdateOffset", "GetOffset", "QueryOffset")


def _metadata() -> Script:
    steps: list[Step] = [Topic(_TOPIC)]
    for words, metadata in _METADATA.items():
        settings = producer_settings(_TOPIC)
        steps += (
            Call(words, "QueryRoute", _ROUTE, metadata=metadata, client=words),
            Call(words, "Heartbeat", {"client_type": 1}, metadata=metadata, client=words),
            Talk(words, (settings,), metadata=metadata, closes=True, client=words),
            Call(
                f"{words}, later", "Heartbeat", {"client_type": 1}, metadata=metadata, client=words
            ),
        )
    for method in METHODS:
        if method != "Telemetry":
            steps.append(Call("without a client id", method, metadata={"x-mq-client-id": None}))
            steps.append(Call("an empty request", method, client="empty"))
            steps.append(Call("bytes that are no request", method, body=b"\xff\xff\xff"))
            steps.append(Call("gzipped", method, is_gzipped=True, client="gzip"))
            steps.append(Call("with unknown fields", method, body=b"\xf2\x7d\x01a"))
    return Script("metadata", tuple(steps))


def _unserved() -> Script:
    steps: list[Step] = []
    for method in _UNSERVED:
        fields: dict[str, Any] = {"message_queue": {"topic": resource(_TOPIC)}}
        if "group" in FIELDS[f"{method}Request"]:
            fields["group"] = resource("group")
        steps.append(Call("a good one", method, fields))
        steps += wrong_calls(method, fields)[:20]
    steps += (
        Call("an unknown method", "Unknown"),
        Call("an empty method", ""),
        Call("a method in lower case", "queryRoute"),
        Call("an unknown service", "QueryRoute", service="apache.rocketmq.v2.Unknown"),
        Call("another package", "QueryRoute", service="rocketmq.MessagingService"),
        Call("the service of administrators", "ChangeLogLevel", service="apache.rocketmq.v2.Admin"),
    )
    return Script("unserved-methods", tuple(steps))


_PREFIX = b"\0\0\0\0\0"


def _raws() -> Script:
    timeouts = ("1", "S", "1x", "-1S", "1.5S", "123456789S", "99999999H", "0S", "1n", " 1S", "")
    steps: list[Step] = [
        *(Raw(f"the timeout {text!r}", {"grpc-timeout": text}, _PREFIX) for text in timeouts),
        Raw("an empty message", {}, _PREFIX),
        Raw("no message", {}),
        Raw("half a prefix", {}, b"\0\0"),
        Raw("half a message", {}, b"\0\0\0\0\x05a"),
        Raw("two messages", {}, _PREFIX * 2),
        Raw("a message with the wrong flag", {}, b"\x07\0\0\0\0"),
        Raw("a compressed message without an encoding", {}, b"\x01\0\0\0\0"),
        Raw("a compressed message", {"grpc-encoding": "gzip"}, b"\x01\0\0\0\0"),
        Raw("an encoding that is not used", {"grpc-encoding": "gzip"}, _PREFIX),
        Raw("the encoding identity", {"grpc-encoding": "identity"}, _PREFIX),
        Raw("an unknown encoding", {"grpc-encoding": "snappy"}, _PREFIX),
        Raw("an unknown encoding of a compressed one", {"grpc-encoding": "x"}, b"\x01\0\0\0\0"),
        Raw("too long a message", {}, b"\0\x7f\xff\xff\xff"),
        Raw("a negative length", {}, b"\0\xff\xff\xff\xff"),
        Raw("no content type", {"content-type": None}, _PREFIX),
        Raw("a content type of JSON", {"content-type": "application/json"}, _PREFIX),
        Raw("grpc+json", {"content-type": "application/grpc+json"}, _PREFIX),
        Raw("grpc+proto", {"content-type": "application/grpc+proto"}, _PREFIX),
        Raw("grpc with a charset", {"content-type": "application/grpc; charset=utf-8"}, _PREFIX),
        Raw("grpc-web", {"content-type": "application/grpc-web"}, _PREFIX),
        Raw("grpc and a letter", {"content-type": "application/grpcx"}, _PREFIX),
        Raw("GET", {":method": "GET"}, _PREFIX),
        Raw("PUT", {":method": "PUT"}, _PREFIX),
        Raw("no te", {"te": None}, _PREFIX),
        Raw("another te", {"te": "gzip"}, _PREFIX),
        Raw("no client id", {"x-mq-client-id": None}, _PREFIX),
        Raw("a path without a slash", {":path": "x"}, _PREFIX),
        Raw("a path of one part", {":path": "/x"}, _PREFIX),
        Raw("the path of the root", {":path": "/"}, _PREFIX),
        Raw("https", {":scheme": "https"}, _PREFIX),
        Raw("a binary header", {"x-bin": "AAAA"}, _PREFIX),
    ]
    return Script("http2", tuple(steps))


SCRIPTS = (_metadata(), _unserved(), _raws())
