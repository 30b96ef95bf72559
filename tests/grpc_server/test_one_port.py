"""One port for everything: gRPC with and without TLS, remoting, and what is not installed."""

from __future__ import annotations

import sys
from pathlib import Path

import grpc
import pytest
import trustme

from trocket import Message
from trocket.blocking import Producer
from trocket.testing import Broker

from .caller import Caller, message


def test_grpc_by_tls_and_remoting_without_it_on_one_port(tmp_path: Path) -> None:
    authority = trustme.CA()
    own = authority.issue_cert("127.0.0.1")
    own.private_key_pem.write_to_path(tmp_path / "key.pem")
    own.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    config = {
        "tls.server.mode": "permissive",
        "tls.server.keyPath": str(tmp_path / "key.pem"),
        "tls.server.certPath": str(tmp_path / "cert.pem"),
        "tls.test.mode.enable": False,
    }
    trust = grpc.ssl_channel_credentials(authority.cert_pem.bytes())
    with (
        Broker(config=config) as broker,
        Caller(broker.broker_address, trust=trust) as encrypted,
        Caller(broker.broker_address) as plain,
        Producer(broker.url, group="P") as producer,
    ):
        broker.create_topic("T", queues=1)
        assert encrypted.send("T", b"1").offset == 0
        assert plain.send("T", b"2").offset == 1
        assert producer.send(Message("T", b"3")).queue_offset == 2


def test_without_the_packages_a_grpc_client_is_refused_and_the_log_says_why(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with Broker() as other:
        other.create_topic("T")
        monkeypatch.setitem(sys.modules, "trocket.broker.grpc_clients", None)
        with Caller(other.broker_address) as caller, pytest.raises(grpc.RpcError) as caught:
            caller.call("SendMessage", 5, messages=[message("T")])
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert "pip install 'trocket[grpc]'" in caplog.text
        with Producer(other.url, group="P") as producer:
            producer.send(Message("T", b"as before"))
        assert [each.body for each in other.messages("T")] == [b"as before"]


def test_a_name_server_says_where_to_connect(caplog: pytest.LogCaptureFixture) -> None:
    with (
        Broker() as broker,
        Caller(broker.namesrv_address) as caller,
        pytest.raises(grpc.RpcError),
    ):
        caller.call("SendMessage", 5, messages=[message("T")])
    assert "let the client connect to a broker's address" in caplog.text
