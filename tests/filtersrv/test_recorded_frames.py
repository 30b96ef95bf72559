"""Frames recorded from 4.2.0's filter server, broker and clients read and write alike."""

from __future__ import annotations

import json

import pytest

from trocket.filtersrv.filter_class_manager import crc_of
from trocket.remoting.bodies import RegisterBrokerBody, SubscriptionData, TopicRouteData
from trocket.remoting.codec import FrameDecoder, encode
from trocket.remoting.headers import (
    RegisterFilterServerRequestHeader,
    RegisterFilterServerResponseHeader,
    RegisterMessageFilterClassRequestHeader,
    decode,
    encode_header,
)
from trocket.remoting.request_codes import RequestCode

REGISTER = (
    b"\x00\x00\x00\x99\x00\x00\x00\x95"
    b'{"code":301,"extFields":{"filterServerAddr":"127.0.0.1:40747"},"flag":0,"language":"JAVA",'
    b'"opaque":61,"serializeTypeCurrentRPC":"JSON","version":252}'
)
UPLOAD_FIELDS = {
    "topic": "T",
    "classCRC": "1747692868",
    "className": "trocket.check.KeepFifth",
    "consumerGroup": "G",
}


def test_a_recorded_registration_reads_and_writes_alike():
    (command,) = FrameDecoder().receive_data(REGISTER)
    assert (command.code, command.opaque) == (RequestCode.REGISTER_FILTER_SERVER, 61)
    header = decode(RegisterFilterServerRequestHeader, command.ext_fields)
    assert header.filter_server_addr == "127.0.0.1:40747"
    assert encode_header(header) == command.ext_fields
    again = encode(command)
    assert again[:8] == REGISTER[:8]
    assert json.loads(again[8:]) == json.loads(REGISTER[8:])


def test_its_recorded_answer():
    fields = {"brokerName": "broker-f", "brokerId": "0"}
    header = decode(RegisterFilterServerResponseHeader, fields)
    assert (header.broker_name, header.broker_id) == ("broker-f", 0)
    assert encode_header(header) == fields


def test_a_recorded_upload():
    header = decode(RegisterMessageFilterClassRequestHeader, UPLOAD_FIELDS)
    assert header.class_name == "trocket.check.KeepFifth"
    assert header.class_crc == 1_747_692_868
    assert header.source_language is None
    assert encode_header(header) == UPLOAD_FIELDS


@pytest.mark.parametrize("source", [b"", b"x", "class Größe {}".encode(), bytes(range(256)) * 9])
def test_a_crc_has_31_bits(source):
    assert 0 <= crc_of(source) < 1 << 31


def test_a_recorded_list_of_filter_servers():
    body = b'{"filterServerList":["127.0.0.1:40747"],"topicConfigSerializeWrapper":{}}'
    assert RegisterBrokerBody.from_body(body).filter_server_list == ["127.0.0.1:40747"]


def test_a_recorded_route():
    table = {"127.0.0.1:41911": ["127.0.0.1:40747"]}
    body = json.dumps({"filterServerTable": table, "brokerDatas": [], "queueDatas": []}).encode()
    route = TopicRouteData.from_body(body)
    assert route.filter_server_table == table
    assert json.loads(route.to_body())["filterServerTable"] == table


def test_a_recorded_subscription():
    body = (
        b'{"classFilterMode":true,"codeSet":[],"subString":"trocket.check.KeepFifth",'
        b'"subVersion":1758000000000,"tagsSet":[],"topic":"T"}'
    )
    subscription = SubscriptionData.from_body(body)
    assert subscription.class_filter_mode
    assert subscription.sub_string == "trocket.check.KeepFifth"
    written = json.loads(subscription.to_body())
    assert written.items() >= json.loads(body).items()
