"""Names that are asked for without a client: of whatever answers, and in time."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from trocket.cli.names import Cluster, NamesError
from trocket.testing import Broker

DEADLINE_S = 20.0
"""Of questions that are answered; only a broken one takes so long."""


@pytest.fixture(scope="module")
def broker(broker: Broker) -> Broker:
    broker.create_topic("Orders", 1)
    broker.create_topic("shop%Bills", 1)
    broker.create_group("billing")
    broker.create_group("shop%audit")
    return broker


@contextmanager
def answering(answer: bytes | None) -> Iterator[str]:
    """A server that gives this answer to everyone, or none at all; its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        kept = []

        def serve() -> None:
            try:
                while True:
                    connection, _ = listener.accept()
                    kept.append(connection)
                    if answer is not None:
                        connection.recv(65_536)
                        connection.sendall(answer)
                        connection.close()
            except OSError:
                return

        threading.Thread(target=serve, daemon=True).start()
        host, port = listener.getsockname()
        yield f"{host}:{port}"
        listener.shutdown(socket.SHUT_RDWR)
        for each in kept:
            each.close()


def frame(header: object, body: bytes = b"") -> bytes:
    head = json.dumps(header).encode()
    return struct.pack(">ii", 4 + len(head) + len(body), len(head)) + head + body


def test_topics_groups_and_brokers_of_programs(broker: Broker) -> None:
    cluster = Cluster.of(broker.url, {}, DEADLINE_S)
    assert cluster.topics() == ["Orders", "shop%Bills"]
    assert cluster.groups() == ["billing", "shop%audit"]
    assert (cluster.brokers(), cluster.clusters()) == (["broker-a"], ["DefaultCluster"])
    assert {"TBW102", "Orders"} <= set(cluster.topics(is_all=True))
    assert {"TOOLS_CONSUMER", "billing"} <= set(cluster.groups(is_all=True))


def test_a_namespace_has_its_own_names(broker: Broker) -> None:
    cluster = Cluster.of(f"{broker.url}?namespace=shop", {}, DEADLINE_S)
    assert (cluster.topics(), cluster.groups()) == (["Bills"], ["audit"])
    assert {"Bills", "TBW102"} <= set(cluster.topics(is_all=True))


def test_a_name_server_that_hangs_does_not_keep_another_from_answering(broker: Broker) -> None:
    with answering(None) as hanging:
        cluster = Cluster.of(f"{hanging};{broker.namesrv_address}", {}, DEADLINE_S)
        began_s = time.monotonic()
        assert cluster.brokers() == ["broker-a"]
        assert time.monotonic() - began_s < DEADLINE_S / 2


@pytest.mark.slow
def test_a_question_without_an_answer_ends_at_its_deadline() -> None:
    with answering(None) as hanging, pytest.raises(NamesError, match="in time"):
        Cluster.of(hanging, {}, 0.2).topics()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"",
        b"\x00\x00",
        struct.pack(">i", -1),
        struct.pack(">i", 2**31 - 1),
        struct.pack(">ii", 4, 100),
        struct.pack(">ii", 4, 0x01000000),
        frame({"code": 1, "remark": "no"}),
        frame([]),
        frame({"code": 0}, b"[1"),
        frame({"code": 0}, b"\xff\xfe"),
        frame({"code": 0}, b"[" * 100_000),
        struct.pack(">ii", 100_004, 100_000) + b"[" * 100_000,
    ],
    ids=lambda answer: repr(answer[:60]),
)
@pytest.mark.parametrize("ask", [Cluster.topics, Cluster.groups, Cluster.brokers])
def test_a_wrong_answer_is_an_error_and_no_crash(
    answer: bytes, ask: Callable[[Cluster], list[str]]
) -> None:
    with answering(answer) as address, pytest.raises(NamesError):
        ask(Cluster.of(address, {}, DEADLINE_S))


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"topicList":[1,null,{}]}', b"null"])
def test_a_body_without_names_has_none(body: bytes) -> None:
    with answering(frame({"code": 0}, body or b"{}")) as address:
        assert Cluster.of(address, {}, DEADLINE_S).topics() == []


def test_groups_of_some_masters_are_not_those_of_all(broker: Broker) -> None:
    masters = {"a": {"brokerAddrs": {"0": broker.broker_address}}}
    masters |= {"b": {"brokerAddrs": {"0": "127.0.0.1:1"}}}
    body = json.dumps({"brokerAddrTable": masters, "clusterAddrTable": {}}).encode()
    with answering(frame({"code": 0}, body)) as address:
        assert Cluster.of(address, {}, DEADLINE_S).groups() == ["billing", "shop%audit"]
        with pytest.raises(NamesError, match="1 of 2 masters"):
            Cluster.of(address, {}, DEADLINE_S).groups(is_all=True)


def test_a_body_of_fastjson_is_read() -> None:
    body = b'{"brokerAddrTable":{"b":{"brokerAddrs":{0:"127.0.0.1:1"}}},"clusterAddrTable":{}}'
    with answering(frame({"code": 0}, body)) as address:
        assert Cluster.of(address, {}, DEADLINE_S).brokers() == ["b"]


@pytest.mark.parametrize("url", ["", "http://x", "a:b:c", "rocketmq://k@h"])
def test_a_wrong_url_is_an_error(url: str) -> None:
    with pytest.raises(NamesError):
        Cluster.of(url, {}, DEADLINE_S)


def test_a_file_of_tls_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_bytes(b"")
    for path, text in ((tmp_path / "none.pem", "No such file"), (empty, "no certificate")):
        url = f"rocketmq://127.0.0.1:1?tls=true&tls_ca={path}"
        with pytest.raises(NamesError, match=f"ca_file {path} .*{text}"):
            Cluster.of(url, {}, 1.0)
