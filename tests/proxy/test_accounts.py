"""Accounts: the proxy learns secrets from brokers, which check what the calls ask."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest

from trocket import Credentials
from trocket.blocking import Admin as BlockingAdmin
from trocket.client import Admin
from trocket.remoting.bodies import PolicyEntryInfo

from ..grpc_server.caller import Caller, message, receive_fields
from .proxied import ROOT_USER, ProxiedBroker

CONFIG = {
    "authenticationEnabled": True,
    "authorizationEnabled": True,
    "initAuthenticationUser": ROOT_USER,
}
ROOT = Credentials("root", "rootsecret")


@pytest.fixture(scope="module")
def guarded() -> Iterator[ProxiedBroker]:
    with ProxiedBroker(config=CONFIG) as broker:
        broker.create_topic("Open", queues=1)
        broker.create_topic("Closed", queues=1)
        yield broker


@pytest.fixture
async def user(guarded: ProxiedBroker) -> None:
    """A user that may send to Open and consume it in the group Readers."""
    async with Admin(guarded.url, credentials=ROOT) as admin:
        await admin.create_user("user", "usersecret")
        entries = [
            PolicyEntryInfo(resource="Topic:Open", actions=["Pub", "Sub"], decision="Allow"),
            PolicyEntryInfo(resource="Group:Readers", actions=["Sub"], decision="Allow"),
        ]
        await admin.set_acl("user", entries)


def test_who_does_not_sign_is_refused(guarded: ProxiedBroker) -> None:
    for credentials in (None, ("unknown", "x" * 10), ("root", "wrongsecret"), ("x" * 300, "x")):
        with Caller(guarded.broker_address, credentials=credentials) as caller:
            assert caller.call("QueryRoute", topic={"name": "Open"}).status.code == 40100
            assert caller.call("SendMessage", messages=[message("Open")]).status.code == 40100
            with pytest.raises(grpc.RpcError):
                list(caller.telemetry([caller.producer_settings("Open")]))


async def test_brokers_decide_by_the_account_of_the_call(
    guarded: ProxiedBroker, user: None
) -> None:
    keys = ("user", "usersecret")
    with Caller(guarded.broker_address, "u", credentials=keys) as caller:
        assert caller.finds_nothing("Open", "Readers")
        assert caller.send("Open", b"allowed").status.code == 20000
        (found,) = caller.receive("Open", "Readers")
        system = found.system_properties
        entry = {"message_id": system.message_id, "receipt_handle": system.receipt_handle}
        answer = caller.call(
            "AckMessage", topic={"name": "Open"}, group={"name": "Readers"}, entries=[entry]
        )
        assert answer.status.code == 20000
        answer = caller.call("SendMessage", messages=[message("Closed")])
        assert answer.status.code == 40300
        status, _ = caller.call("ReceiveMessage", **receive_fields("Open", "Others"))
        assert status.status.code == 40300
        stream = iter(caller.telemetry([caller.producer_settings("Open")]))
        assert next(stream).status.code == 20000


def test_a_user_that_was_disabled_is_refused_after_a_refresh() -> None:
    with ProxiedBroker(config=CONFIG) as broker:
        broker.create_topic("Open", queues=1)
        with BlockingAdmin(broker.url, credentials=ROOT) as admin:
            admin.create_user("user", "usersecret")
            keys = ("user", "usersecret")
            with Caller(broker.broker_address, "u", credentials=keys) as caller:
                assert caller.call("QueryRoute", topic={"name": "Open"}).status.code == 20000
                admin.update_user("user", user_status="disable")
                codes = {20000}
                while 40100 not in codes:  # some 20 calls in a second, or the test times out
                    codes.add(caller.call("QueryRoute", topic={"name": "Open"}).status.code)
                assert codes == {20000, 40100}


def test_a_first_call_waits_for_the_secret_and_is_served_then() -> None:
    keys = ("root", "rootsecret")
    with ProxiedBroker(config=CONFIG) as broker:
        broker.create_topic("Open", queues=1)
        with Caller(broker.own_address, credentials=keys) as caller:
            assert caller.finds_nothing("Open", "Readers")
            caller.send("Open", b"1")
            (found,) = caller.receive("Open", "Readers")
        system = found.system_properties
        entry = {"message_id": system.message_id, "receipt_handle": system.receipt_handle}
        fields = {"topic": {"name": "Open"}, "group": {"name": "Readers"}, "entries": [entry]}
        with Caller(broker.broker_address, credentials=keys) as caller:
            assert caller.call("AckMessage", timeout_s=5, **fields).status.code == 20000


def test_a_proxy_without_accounts_passes_calls_on_and_brokers_refuse_them() -> None:
    with (
        ProxiedBroker(config=CONFIG, knows_accounts=False) as broker,
        Caller(broker.broker_address, credentials=("root", "rootsecret")) as caller,
    ):
        broker.create_topic("Open", queues=1)
        answer = caller.call("QueryRoute", topic={"name": "Open"})
        assert answer.status.code == 40300
        assert caller.call("SendMessage", messages=[message("Open")]).status.code == 40300
