"""The controller's requests and answers, recorded from Apache 5.5.0, come back the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trocket.remoting import bodies, fastjson, headers
from trocket.remoting.bodies import Body, SyncStateSet, out_of_range
from trocket.remoting.errors import RemoteProtocolError, RequestRefused
from trocket.remoting.headers import Header, decode, encode_header
from trocket.remoting.response_codes import ResponseCode

HEADERS: dict[tuple[str, int], type[Header]] = {
    ("request", 904): headers.BrokerHeartbeatRequestHeader,
    ("request", 1001): headers.AlterSyncStateSetRequestHeader,
    ("response", 1001): headers.AlterSyncStateSetResponseHeader,
    ("request", 1002): headers.ElectMasterRequestHeader,
    ("response", 1002): headers.ElectMasterResponseHeader,
    ("request", 1003): headers.RegisterBrokerToControllerRequestHeader,
    ("response", 1003): headers.RegisterBrokerToControllerResponseHeader,
    ("request", 1004): headers.GetReplicaInfoRequestHeader,
    ("response", 1004): headers.GetReplicaInfoResponseHeader,
    ("response", 1005): headers.GetMetaDataResponseHeader,
    ("request", 1008): headers.NotifyBrokerRoleChangedRequestHeader,
    ("request", 1011): headers.CleanBrokerDataRequestHeader,
    ("request", 1012): headers.GetNextBrokerIdRequestHeader,
    ("response", 1012): headers.GetNextBrokerIdResponseHeader,
    ("request", 1013): headers.ApplyBrokerIdRequestHeader,
    ("response", 1013): headers.ApplyBrokerIdResponseHeader,
}

BODIES: dict[tuple[str, int], type[Body]] = {
    ("request", 1001): SyncStateSet,
    ("response", 1001): SyncStateSet,
    ("response", 1002): bodies.ElectMasterResponseBody,
    ("response", 1003): SyncStateSet,
    ("response", 1004): SyncStateSet,
    ("response", 1006): bodies.BrokerReplicasInfo,
    ("response", 1007): bodies.EpochEntryCache,
    ("request", 1008): SyncStateSet,
}

OTHERS = {("request", 1006), ("request", 1009), ("response", 1010)}
"""A list of names, and properties text."""

NO_FIELDS = {("request", 1007)}
"""Fields that the recording's own client sent, and that the broker does not use."""


def frames(golden: Path) -> Iterator[tuple[tuple[str, int], dict[str, str], bytes, int]]:
    for path in sorted((golden / "controller").glob("*_rpc.jsonl")):
        for line in path.read_text().splitlines():
            record = json.loads(line)
            frame = bytes.fromhex(record["hex"])
            end = 8 + int.from_bytes(frame[5:8], "big")
            header = json.loads(frame[8:end])
            key = (record["dir"], record["code"])
            if key[1] == 904 or key[1] > 1000:
                yield key, header.get("extFields") or {}, frame[end:], header["code"]


def test_every_recorded_header_comes_back_the_same(golden: Path) -> None:
    checked = set()
    for key, fields, _, code in frames(golden):
        if key[0] == "response":
            ResponseCode(code)
        if key not in HEADERS:
            assert not fields or key in NO_FIELDS, key
            continue
        written = encode_header(decode(HEADERS[key], fields))
        defaults = {"designateElect": "false", "isCleanLivingBroker": "false"}
        assert {**defaults, **written} == {**defaults, **fields}, key
        checked.add(key)
    assert checked == set(HEADERS)


def test_every_recorded_body_comes_back_the_same(golden: Path) -> None:
    checked = set()
    for key, _, data, _ in frames(golden):
        if not data or key in OTHERS:
            continue
        body = BODIES[key].from_body(data)
        assert fastjson.loads(body.to_body(quote_int_keys=False)) == fastjson.loads(data), key
        assert out_of_range(body) is None
        checked.add(key)
    assert checked == set(BODIES)


@given(st.sets(st.integers(1, 2**63 - 1)), st.integers(0, 2**31 - 1))
def test_a_set_of_brokers_comes_back_the_same(ids: set[int], epoch: int) -> None:
    body = SyncStateSet(ids, epoch)
    assert SyncStateSet.from_request(body.to_body()) == body
    assert out_of_range(body) is None


@pytest.mark.parametrize("text", ["[]", '{"syncStateSet":[1,null]}', '{"syncStateSetEpoch":1e99}'])
def test_what_is_no_set_of_brokers_is_refused(text: str) -> None:
    with pytest.raises(RemoteProtocolError):
        SyncStateSet.from_request(text.encode())


def test_ids_and_epochs_out_of_range_are_named() -> None:
    assert "syncStateSet[0] is 0" in (out_of_range(SyncStateSet({0})) or "")
    assert "syncStateSetEpoch is -1" in (out_of_range(SyncStateSet({1}, -1)) or "")


def test_a_set_of_a_million_brokers_is_refused_before_it_is_read() -> None:
    with pytest.raises(RemoteProtocolError, match="the limit is"):
        SyncStateSet.from_request(SyncStateSet(set(range(1, 1_000_001))).to_body())


@pytest.mark.parametrize("made", [HEADERS[key] for key in HEADERS if key[0] == "request"])
def test_a_request_without_its_fields_is_refused(made: type[Header]) -> None:
    with pytest.raises(RequestRefused, match="is null"):
        decode(made, {})


def test_an_election_is_answered_with_quoted_keys() -> None:
    group = bodies.BrokerMemberGroup("C", "a", {1: "h:1"})
    body = bodies.ElectMasterResponseBody(group, {1})
    assert b'"brokerAddrs":{"1":"h:1"}' in body.to_body()
    assert bodies.ElectMasterResponseBody.from_body(body.to_body(quote_int_keys=False)) == body
