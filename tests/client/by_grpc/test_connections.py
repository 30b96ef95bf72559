"""Connections of a client that speaks gRPC: TLS, accounts, restarts, and what it refuses."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
import trustme

import trocket.blocking
from trocket import (
    AccessDeniedError,
    Admin,
    Client,
    ConfigurationError,
    ConnectError,
    Credentials,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    SimpleConsumer,
    TlsOptions,
)
from trocket.remoting.cluster_url import parse_url
from trocket.testing import Broker

from ..conftest import Play
from ..support import until

URL = "rocketmq+grpc://192.0.2.1"


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, Path]]:
    """A broker with TLS, and the file with its authority."""
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    own = authority.issue_cert("127.0.0.1")
    own.private_key_pem.write_to_path(folder / "key.pem")
    own.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    config = {
        "tls.server.mode": "permissive",
        "tls.server.keyPath": str(folder / "key.pem"),
        "tls.server.certPath": str(folder / "cert.pem"),
        "tls.test.mode.enable": False,
    }
    with Broker(config=config) as broker:
        broker.create_topic("T", queues=1)
        yield broker, folder / "ca.pem"


def test_tls_by_the_url_and_by_the_option(play: Play, secure: tuple[Broker, Path]):
    broker, ca = secure
    address = broker.broker_address

    async def main() -> None:
        async with Producer(f"rocketmq+grpcs://{address}?tls_ca={ca}") as producer:
            await producer.send(Message("T", "by URL"))
        options = TlsOptions(ca_file=ca)
        async with Producer(f"rocketmq+grpc://{address}", tls=options) as producer:
            await producer.send(Message("T", "by option"))
        url = f"rocketmq+grpcs://{address}"
        async with Producer(url, wait_for_broker_s=0) as producer:
            with pytest.raises(ConnectError, match="not signed by an authority of the system"):
                await producer.send(Message("T", "not trusted"))

    play(main)


def test_an_account_may_do_what_its_rules_say(play: Play):
    config = {
        "authenticationEnabled": True,
        "authorizationEnabled": True,
        "initAuthenticationUser": '{"username":"root","password":"rootsecret"}',
    }
    with Broker(config=config) as broker:
        broker.create_topic("T", queues=1)
        address = broker.broker_address

        async def main() -> None:
            async with (
                Producer(f"rocketmq+grpc://root:rootsecret@{address}") as producer,
                SimpleConsumer(
                    f"rocketmq+grpc://{address}",
                    group="G",
                    subscriptions={"T": "*"},
                    credentials=Credentials("root", "rootsecret"),
                ) as consumer,
            ):
                await producer.send(Message("T", "signed"))
                (message,) = await consumer.receive()
                assert message.text == "signed"
            wrong = f"rocketmq+grpc://root:wrongsecret@{address}"
            async with Producer(wrong, wait_for_broker_s=0) as producer:
                with pytest.raises(AccessDeniedError):
                    await producer.send(Message("T", "not signed"))

        play(main)


def test_a_restart_is_outlived(play: Play):
    with Broker() as broker:
        broker.create_topic("T", queues=1)
        url = f"rocketmq+grpc://{broker.broker_address}"
        received: list[str] = []

        async def main() -> None:
            async with (
                Producer(url) as producer,
                PushConsumer(url, group="G", subscriptions={"T": "*"}) as consumer,
                anyio.create_task_group() as tasks,
            ):
                tasks.start_soon(consumer.run, lambda message: received.append(message.text))
                await producer.send(Message("T", "before"))
                await until(lambda: received == ["before"])
                await anyio.to_thread.run_sync(broker.restart)
                await producer.send(Message("T", "after"))
                await until(lambda: received[-1] == "after")
                consumer.stop()

        play(main)


def test_a_server_that_does_not_speak_grpc_is_named(play: Play):
    async def main() -> None:
        async def serve(stream: Any) -> None:
            async with stream:
                await stream.receive()
                await stream.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, serve)
            port = listener.extra(anyio.abc.SocketAttribute.local_port)
            url = f"rocketmq+grpc://127.0.0.1:{port}"
            async with Producer(url, wait_for_broker_s=0) as producer:
                with pytest.raises(ConnectError, match="does not speak HTTP/2, and so no gRPC"):
                    await producer.send(Message("T", "body"))
            tasks.cancel_scope.cancel()

    play(main)


def test_a_receive_that_is_cancelled_takes_no_message(
    play: Play, broker: Broker, topic: str, group: str
):
    url = f"rocketmq+grpc://{broker.broker_address}"

    async def main() -> None:
        async with SimpleConsumer(url, group=group, subscriptions={topic: "*"}) as consumer:
            with anyio.move_on_after(0.5):
                await consumer.receive(wait_s=15)
            async with Producer(url) as producer:
                await producer.send(Message(topic, "for the next one"))
            (message,) = await consumer.receive()
            assert message.text == "for the next one"

    play(main)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Admin(URL), "an Admin does not work by gRPC: give the address of a name server"),
        (lambda: PullConsumer(URL, group="G"), "a PullConsumer does not work by gRPC: use a S"),
        (lambda: Producer(URL, trace=True), "trace does not work by gRPC"),
        (lambda: push(mode="pull"), "mode='pull' does not work by gRPC: leave it out"),
        (lambda: push(message_model="broadcasting"), "message_model='broadcasting' does not"),
        (lambda: push(is_orderly=True), "is_orderly=True does not work by gRPC: leave it out"),
        (lambda: push(consume_from_where="first"), "consume_from_where=CONSUME_FROM_FIRST_OFFSET"),
        (lambda: push(pop_invisible_s=5), "give 10 to 300 seconds"),
        (lambda: simple(consume_from_where="first"), "groups begin at the end there"),
        (lambda: simple(trace=True), "trace does not work by gRPC"),
        (lambda: Client("rocketmq+grpcs://h?tls=false"), "tls=false, and rocketmq+grpcs://"),
        (lambda: trocket.blocking.Admin(URL), "an Admin does not work by gRPC"),
    ],
)  # fmt: skip
def test_what_grpc_has_not_is_refused_at_creation(make: Any, text: str):
    with pytest.raises(ConfigurationError) as refusal:
        make()
    assert text in str(refusal.value)


def push(**options: Any) -> Any:
    return PushConsumer(URL, group="G", subscriptions={"T": "*"}, **options)


def simple(**options: Any) -> Any:
    return SimpleConsumer(URL, group="G", subscriptions={"T": "*"}, **options)


def test_a_push_consumer_pops_whether_or_not_it_is_said():
    for consumer in (push(), push(mode="pop")):
        # Without the retry topic, which pops read by themselves.
        assert [each.topic for each in consumer.subscriptions] == ["T"]


def test_a_url_names_endpoints():
    plain = parse_url("rocketmq+grpc://a;b:80?namespace=ns")
    assert (plain.name_servers, plain.speaks_grpc, plain.tls) == (("a:8081", "b:80"), True, False)
    assert plain.namespace == "ns"
    secure = parse_url("rocketmq+grpcs://a")
    assert secure.tls is True
    assert not parse_url("rocketmq://a").speaks_grpc


def test_without_the_packages_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    for name in ("client_ngh2", "client_h2"):
        monkeypatch.setitem(sys.modules, f"trocket.grpc_protocol.{name}", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'trocket\[grpc\]'"):
        Producer(URL)
