"""Accounts: calls are signed, and served as far as their account's rules allow."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest
import trio

from trocket import Credentials
from trocket.client import Admin
from trocket.grpc_server.refused import Refused
from trocket.grpc_server.signing import is_genuine, read_authorization
from trocket.remoting.bodies import PolicyEntryInfo
from trocket.testing import Broker

from .caller import MESSAGES, Caller, message, receive_fields

ROOT = '{"username":"root","password":"rootsecret"}'
CONFIG = {
    "authenticationEnabled": True,
    "authorizationEnabled": True,
    "initAuthenticationUser": ROOT,
}


@pytest.fixture(scope="module")
def guarded() -> Iterator[Broker]:
    with Broker(config=CONFIG) as broker:
        broker.create_topic("Open", queues=1)
        broker.create_topic("Closed", queues=1)
        trio.run(create_users, broker)
        yield broker


def allowed(resource: str, action: str) -> PolicyEntryInfo:
    return PolicyEntryInfo(resource=resource, actions=[action], decision="Allow")


async def create_users(guarded: Broker) -> None:
    """Two users: `sender` may send to Open, `reader` may consume it in the group Readers."""
    root = Credentials("root", "rootsecret")
    async with Admin(guarded.url, credentials=root) as admin:
        for name in ("sender", "reader"):
            await admin.create_user(name, f"{name}secret")
        await admin.set_acl("sender", [allowed("Topic:Open", "Pub")])
        entries = [allowed(each, "Sub") for each in ("Topic:Open", "Group:Readers")]
        await admin.set_acl("reader", entries)


def test_who_does_not_sign_is_refused(guarded: Broker) -> None:
    for credentials in (None, ("nobody", "x" * 10), ("root", "wrongsecret")):
        with Caller(guarded.broker_address, credentials=credentials) as caller:
            answer = caller.call("QueryRoute", topic={"name": "Open"})
            assert answer.status.code == 40100
            assert caller.call("SendMessage", messages=[message("Open")]).status.code == 40100
            status, _ = caller.call("ReceiveMessage", **receive_fields("Open", "Readers"))
            assert status.status.code == 40100
            with pytest.raises(grpc.RpcError):
                list(caller.telemetry([caller.producer_settings("Open")]))


async def test_a_user_may_do_what_the_rules_say(guarded: Broker) -> None:
    with (
        Caller(guarded.broker_address, "s", credentials=("sender", "sendersecret")) as sender,
        Caller(guarded.broker_address, "r", credentials=("reader", "readersecret")) as reader,
    ):
        for caller in (sender, reader):
            assert caller.call("QueryRoute", topic={"name": "Open"}).status.code == 20000
            assert caller.call("QueryRoute", topic={"name": "Closed"}).status.code == 40300
        assert reader.finds_nothing("Open", "Readers")
        assert sender.send("Open", b"allowed").status.code == 20000
        assert [each.body for each in reader.receive("Open", "Readers")] == [b"allowed"]
        for caller, topic in ((sender, "Closed"), (reader, "Open")):
            answer = caller.call("SendMessage", messages=[message(topic)])
            assert answer.status.code == 40300
        for caller, group in ((sender, "Readers"), (reader, "Others")):
            status, _ = caller.call("ReceiveMessage", **receive_fields("Open", group))
            assert status.status.code == 40300
        stream = iter(sender.telemetry([sender.producer_settings("Open")]))
        assert next(stream).status.code == 20000
        with pytest.raises(grpc.RpcError) as caught:
            list(reader.telemetry([reader.producer_settings("Open")]))
        assert "reader" in caught.value.details()


@pytest.mark.parametrize(
    "text",
    ["", "Basic x", "MQv2-HMAC-SHA1", "MQv2-HMAC-SHA1 Credential=/x, Signature=AB",
     "MQv2-HMAC-SHA1 Credential=a, SignedHeaders=x-mq-date-time"],
)  # fmt: skip
def test_what_is_no_signature_is_refused(text: str) -> None:
    with pytest.raises(Refused):
        read_authorization(text)


def test_a_signature_of_gos_client_is_read() -> None:
    text = "MQv2-HMAC-SHA1 Credential=AK//Rocketmq, SignedHeaders=x-mq-date-time, Signature=AB"
    signed = read_authorization(text)
    assert signed.access_key == "AK"
    assert not is_genuine(signed, "secret", {})
    assert MESSAGES.Status(code=20000).code == 20000


async def test_an_account_cannot_speak_for_the_client_of_another(guarded: Broker) -> None:
    with (
        Caller(guarded.broker_address, "same@1", credentials=("sender", "sendersecret")) as sender,
        Caller(guarded.broker_address, "same@1", credentials=("reader", "readersecret")) as reader,
    ):
        commands = [sender.producer_settings("Open")]
        assert next(iter(sender.telemetry(commands))).status.code == 20000
        for method in ("Heartbeat", "NotifyClientTermination"):
            assert reader.call(method).status.code == 40015
        assert sender.call("Heartbeat").status.code == 20000
