"""Recorded ext fields and bodies become typed structures and come back the same.

Covers the request codes of the first issue on everything that was recorded between Apache's own
programs, 4.9.7 and 5.5.0, in both header serializations; the codec has its own test.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from trocket.remoting import bodies, fastjson, headers
from trocket.remoting.bodies import Body
from trocket.remoting.headers import Header, decode, encode_header
from trocket.remoting.request_codes import RequestCode
from trocket.remoting.response_codes import ResponseCode

from ..constructs import REGISTER_BROKER_BODY

REQUEST_HEADERS: dict[int, type[Header]] = {
    10: headers.SendMessageRequestHeader,
    11: headers.PullMessageRequestHeader,
    12: headers.QueryMessageRequestHeader,
    14: headers.QueryConsumerOffsetRequestHeader,
    15: headers.UpdateConsumerOffsetRequestHeader,
    17: headers.CreateTopicRequestHeader,
    18: headers.CreateTopicListRequestHeader,
    21: headers.GetAllTopicConfigRequestHeader,
    29: headers.SearchOffsetRequestHeader,
    30: headers.GetMaxOffsetRequestHeader,
    31: headers.GetMinOffsetRequestHeader,
    32: headers.GetEarliestMsgStoretimeRequestHeader,
    33: headers.ViewMessageRequestHeader,
    34: headers.HeartbeatRequestHeader,
    35: headers.UnregisterClientRequestHeader,
    38: headers.GetConsumerListByGroupRequestHeader,
    40: headers.NotifyConsumerIdsChangedRequestHeader,
    41: headers.LockBatchMqRequestHeader,
    42: headers.UnlockBatchMqRequestHeader,
    100: headers.PutKVConfigRequestHeader,
    101: headers.GetKVConfigRequestHeader,
    102: headers.DeleteKVConfigRequestHeader,
    103: headers.RegisterBrokerRequestHeader,
    104: headers.UnregisterBrokerRequestHeader,
    105: headers.GetRouteInfoRequestHeader,
    106: Header,
    200: Header,
    201: headers.GetAllSubscriptionGroupRequestHeader,
    205: headers.WipeWritePermOfBrokerRequestHeader,
    206: Header,
    207: headers.DeleteSubscriptionGroupRequestHeader,
    215: headers.DeleteTopicRequestHeader,
    216: headers.DeleteTopicFromNamesrvRequestHeader,
    225: Header,
    310: headers.SendMessageRequestHeaderV2,
    318: Header,
    319: Header,
    320: headers.SendMessageRequestHeaderV2,
    322: headers.QueryDataVersionRequestHeader,
    327: headers.AddWritePermOfBrokerRequestHeader,
    351: headers.GetTopicConfigRequestHeader,
    361: headers.PullMessageRequestHeader,
}

RESPONSE_HEADERS: dict[int, type[Header]] = {
    10: headers.SendMessageResponseHeader,
    11: headers.PullMessageResponseHeader,
    12: headers.QueryMessageResponseHeader,
    14: headers.QueryConsumerOffsetResponseHeader,
    21: headers.GetAllTopicConfigResponseHeader,
    29: headers.SearchOffsetResponseHeader,
    30: headers.GetMaxOffsetResponseHeader,
    31: headers.GetMinOffsetResponseHeader,
    32: headers.GetEarliestMsgStoretimeResponseHeader,
    34: headers.HeartbeatResponseHeader,
    101: headers.GetKVConfigResponseHeader,
    103: headers.RegisterBrokerResponseHeader,
    201: headers.GetAllSubscriptionGroupResponseHeader,
    205: headers.WipeWritePermOfBrokerResponseHeader,
    310: headers.SendMessageResponseHeader,
    320: headers.SendMessageResponseHeader,
    322: headers.QueryDataVersionResponseHeader,
    327: headers.AddWritePermOfBrokerResponseHeader,
    361: headers.PullMessageResponseHeader,
}

BODIES: dict[tuple[str, int], type[Body]] = {
    ("request", 18): bodies.CreateTopicListRequestBody,
    ("response", 21): bodies.TopicConfigSerializeWrapper,
    ("request", 34): bodies.HeartbeatData,
    ("response", 38): bodies.GetConsumerListByGroupResponseBody,
    ("request", 41): bodies.LockBatchRequestBody,
    ("response", 41): bodies.LockBatchResponseBody,
    ("request", 42): bodies.UnlockBatchRequestBody,
    ("request", 46): bodies.CheckClientRequestBody,
    ("request", 103): bodies.RegisterBrokerBody,
    ("response", 103): bodies.KVTable,
    ("response", 105): bodies.TopicRouteData,
    ("response", 106): bodies.ClusterInfo,
    ("request", 200): bodies.SubscriptionGroupConfig,
    ("response", 201): bodies.SubscriptionGroupWrapper,
    ("response", 206): bodies.TopicList,
    ("request", 225): bodies.SubscriptionGroupList,
    ("response", 28): bodies.KVTable,
    ("response", 305): bodies.TopicList,
    ("request", 322): bodies.DataVersion,
    ("response", 322): bodies.DataVersion,
    ("response", 351): bodies.TopicConfig,
}
"""Also some bodies of later issues, where the class is the same."""

BARE_KEYS = {("request", 103), ("response", 21)}
"""Bodies that Apache writes with bare keys, and we with quoted ones, which its tools prefer."""

NOT_JSON = {10, 11, 12, 33, 310, 318, 319, 320, 361}
"""Request codes covered here whose bodies are messages or properties text."""

IGNORED_FIELDS = {"ReqT"}
"""Says that a "stream" client sent it; no processor looks at it, so no header has it."""

ADDED_BY_5: dict[str, object] = {
    "attributes": {},
    "consumeMessageOrderly": False,
    "consumeTimeoutMinute": 15,
    "enableActingMaster": False,
    "forbiddenTable": {},
    "groupRetryPolicy": {"type": "CUSTOMIZED"},
    "groupSysFlag": 0,
    "heartbeatFingerprint": 0,
    "onlyThisBroker": False,
    "stateVersion": 0,
    "withoutSub": False,
}
"""Members that 5.x added: a body from 4.9.7 comes back with them, as from Apache's own 5.5.0."""

SETS = {"tagsSet", "codeSet"}


@dataclass(frozen=True)
class Frame:
    """One recorded frame."""

    where: str
    direction: str
    peer: str
    request_code: int
    code: int
    ext_fields: dict[str, str]
    body: bytes


def frames(golden: Path) -> Iterator[Frame]:
    for path in sorted((golden / "wire").glob("*.jsonl")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            record = json.loads(line)
            frame = bytes.fromhex(record["frame_hex"])
            header_size = int.from_bytes(frame[5:8], "big")
            yield Frame(
                where=f"{path.name}:{number}",
                direction=record["dir"],
                peer=record["peer"],
                request_code=record["request_code"],
                code=record["code"],
                ext_fields=json.loads(record["header_text"]).get("extFields") or {},
                body=frame[8 + header_size :],
            )


def header_class(frame: Frame) -> type[Header] | None:
    if frame.request_code not in REQUEST_HEADERS:
        return None
    if frame.direction == "request":
        return REQUEST_HEADERS[frame.request_code]
    if frame.code != ResponseCode.SUCCESS and not frame.ext_fields:
        return Header  # refused before there was anything to say
    return RESPONSE_HEADERS.get(frame.request_code, Header)


def test_every_recorded_header_comes_back_the_same(golden: Path) -> None:
    checked = set()
    for frame in frames(golden):
        made = header_class(frame)
        if made is None:
            continue
        known = {k: v for k, v in frame.ext_fields.items() if k not in IGNORED_FIELDS}
        assert encode_header(decode(made, frame.ext_fields)) == known, frame.where
        checked.add((frame.direction, frame.request_code))
    requests = {code for direction, code in checked if direction == "request"}
    assert requests == set(REQUEST_HEADERS)


def test_every_recorded_body_comes_back_the_same(golden: Path) -> None:
    checked = set()
    for frame in frames(golden):
        key = (frame.direction, frame.request_code)
        if key not in BODIES or not frame.body or frame.body[:1] == b"\x78":
            continue
        body = BODIES[key].from_body(frame.body)
        written = body.to_body(quote_int_keys=False) if key in BARE_KEYS else body.to_body()
        same = comparable(fastjson.loads(written))
        expected = comparable(fastjson.loads(frame.body))
        if "4.9.7" in frame.peer:
            same = without_added(same, expected)
        assert same == expected, frame.where
        checked.add(key)
    assert checked == set(BODIES)


def test_every_recorded_body_of_the_codes_covered_has_a_type(golden: Path) -> None:
    for frame in frames(golden):
        if frame.body and frame.request_code in REQUEST_HEADERS.keys() - NOT_JSON:
            assert (frame.direction, frame.request_code) in BODIES, frame.where


@pytest.mark.parametrize(
    ("file_name", "version"), [("json-4.9.7.jsonl", 407), ("register-compressed", 513)]
)
def test_recorded_deflated_registrations_come_back_the_same(
    golden: Path, file_name: str, version: int
) -> None:
    checked = 0
    for frame in frames(golden):
        if not frame.where.startswith(file_name) or frame.body[:1] != b"\x78":
            continue
        body = bodies.RegisterBrokerBody.from_body(frame.body)
        assert body.topic_config_serialize_wrapper.topic_config_table
        again = body.to_compressed_body(version=version)
        pieces, golden_pieces = (
            REGISTER_BROKER_BODY.parse(zlib.decompress(data)) for data in (again, frame.body)
        )
        for name in ("data_version", "filter_servers"):
            assert fastjson.loads(pieces[name]) == fastjson.loads(golden_pieces[name])
        assert list(pieces.topic_configs) == list(golden_pieces.topic_configs)
        assert pieces.mappings == golden_pieces.mappings
        checked += 1
    assert checked


def test_every_recorded_json_body_is_written_as_it_was_read(golden: Path) -> None:
    codes = set()
    for frame in frames(golden):
        if frame.body[:1] == b"{":
            assert fastjson.dumps(fastjson.loads(frame.body), quote_int_keys=False) == frame.body
            codes.add(frame.request_code)
    # Those with whole objects as keys, and those with bare integers.
    assert codes >= {202, 208, 222, 307, 317} | {106, 513}


def test_every_recorded_code_has_its_name(golden: Path) -> None:
    for frame in frames(golden):
        if frame.direction == "response":
            ResponseCode(frame.code)
        elif frame.code not in CUT_CODES:
            RequestCode(frame.code)


CUT_CODES = {3442, 3443, 3448, 3466}
"""Codes of pop requests as they arrive in a ROCKETMQ header."""


def comparable(value: object, name: object = None) -> object:
    """The same, with the arrays that are sets in sorted order."""
    if isinstance(value, dict):
        return {key: comparable(member, key) for key, member in value.items()}
    if isinstance(value, list):
        items = [comparable(item) for item in value]
        return sorted(items) if name in SETS else items  # type: ignore[type-var]
    return value


def without_added(value: object, expected: object) -> object:
    """The same without what 5.x added and a 4.9.7 body does not have."""
    if isinstance(value, dict) and isinstance(expected, dict):
        return {
            key: without_added(member, expected.get(key))
            for key, member in value.items()
            if key in expected or key not in ADDED_BY_5 or member != ADDED_BY_5[key]
        }
    if isinstance(value, list) and isinstance(expected, list) and len(value) == len(expected):
        return [without_added(item, other) for item, other in zip(value, expected, strict=True)]
    return value
