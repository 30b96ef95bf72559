"""The headers of brokers that register, and of clients that ask for routes."""

from __future__ import annotations

from trocket.remoting.headers import (
    BrokerHeartbeatRequestHeader,
    GetRouteInfoRequestHeader,
    NotifyMinBrokerIdChangeRequestHeader,
    RegisterBrokerRequestHeader,
    decode,
    encode_header,
)

BROKER = {"brokerName": "b", "brokerAddr": "1.2.3.4:10911", "clusterName": "c", "brokerId": "0"}


def test_a_4_9_registration_has_no_5_x_fields() -> None:
    fields = {**BROKER, "haServerAddr": "h:1", "compressed": "true", "bodyCrc32": "1667784686"}
    header = decode(RegisterBrokerRequestHeader, fields)
    assert (header.broker_id, header.compressed, header.body_crc32) == (0, True, 1667784686)
    assert header.enable_acting_master is None
    assert encode_header(header) == fields


def test_a_5_x_registration_may_bring_zone_and_timeout() -> None:
    fields = {
        **BROKER,
        "haServerAddr": "h:1",
        "heartbeatTimeoutMillis": "10000",
        "enableActingMaster": "true",
        "zoneName": "z",
    }
    header = decode(RegisterBrokerRequestHeader, fields)
    assert (header.heartbeat_timeout_millis, header.zone_name) == (10_000, "z")
    assert encode_header(header) == fields


def test_a_heartbeat_spells_its_timeout_as_rocketmq_does() -> None:
    fields = {**BROKER, "heartbeatTimeoutMills": "5000"}
    header = decode(BrokerHeartbeatRequestHeader, fields)
    assert header.heartbeat_timeout_mills == 5000
    assert encode_header(header) == fields


def test_a_client_may_ask_for_standard_json() -> None:
    fields = {"topic": "t", "acceptStandardJsonOnly": "true"}
    assert decode(GetRouteInfoRequestHeader, fields).accept_standard_json_only is True


def test_a_notice_of_another_least_broker_leaves_out_what_is_not_known() -> None:
    header = NotifyMinBrokerIdChangeRequestHeader(min_broker_id=1, broker_name="b")
    assert encode_header(header) == {"minBrokerId": "1", "brokerName": "b"}
