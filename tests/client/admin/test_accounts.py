"""Users and access control lists, at a broker and a name server with accounts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import anyio
import pytest

from trocket.client import (
    Admin,
    ConfigurationError,
    Message,
    NotFoundError,
    PolicyEntryInfo,
    Producer,
    SendError,
    ServerError,
)
from trocket.remoting.signature import Credentials
from trocket.testing import Broker

from .conftest import DEADLINE_S

SECURED = {
    "authenticationEnabled": True,
    "authorizationEnabled": True,
    "initAuthenticationUser": '{"username":"root","password":"rootpassword"}',
    "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"innerpassword"}',
}
ROOT = Credentials("root", "rootpassword")
ALICE = Credentials("alice", "secret12")
WRITE = PolicyEntryInfo(resource="Topic:Ord*", actions=["Pub"], decision="Allow")


@pytest.fixture
def secured() -> Iterator[Broker]:
    with Broker(config=SECURED, namesrv_config=SECURED) as broker:
        yield broker


def run(
    broker: Broker,
    verb: Callable[[Admin], Awaitable[Any]],
    credentials: Credentials | None = ROOT,
    backend: str = "trio",
) -> Any:
    async def main() -> Any:
        options = {} if credentials is None else {"credentials": credentials}
        with anyio.fail_after(DEADLINE_S):
            async with Admin(broker.url, **options) as admin:
                return await verb(admin)

    return anyio.run(main, backend=backend)


@pytest.mark.parametrize("backend", ["trio", "asyncio"])
def test_a_user_is_created_changed_shown_and_deleted(secured: Broker, backend: str) -> None:
    async def verb(admin: Admin) -> None:
        assert await admin.create_user("alice", "secret12") == ["broker-a"]
        assert [u.username for u in (await admin.users())["broker-a"]] == ["alice", "inner", "root"]
        assert await admin.update_user("alice", user_status="disable") == ["broker-a"]
        found = (await admin.user("alice", cluster="DefaultCluster"))["broker-a"]
        assert (found.user_type, found.user_status) == ("Normal", "disable")
        assert found.password == "secret12"
        assert "secret12" not in repr(found)
        await admin.delete_user("alice", broker="broker-a")
        with pytest.raises(NotFoundError, match="there is no user 'alice'"):
            await admin.user("alice")
        assert [u.username for u in (await admin.users("roo"))["broker-a"]] == ["root"]

    run(secured, verb, backend=backend)


def test_what_policies_allow_is_what_a_client_may_do(secured: Broker) -> None:
    async def allow(admin: Admin) -> None:
        for name_servers in (False, True):
            await admin.create_user("alice", "secret12", name_servers=name_servers)
        await admin.create_topic("Orders", 1)
        await admin.create_topic("Other", 1)
        # Its route comes from the name server, which has accounts, too.
        read = PolicyEntryInfo(resource="Topic:*", actions=["Pub"], decision="Allow")
        await admin.set_acl("alice", [read], name_servers=True)
        assert await admin.set_acl("alice", [WRITE]) == ["broker-a"]

    async def send(admin: Admin) -> None:
        async with Producer(admin.client) as producer:
            await producer.send(Message("Orders", "x"))
            with pytest.raises(SendError, match="no permission to access Topic:Other from"):
                await producer.send(Message("Other", "x"))

    run(secured, allow)
    run(secured, send, ALICE)


def test_policies_are_shown_and_deleted_entry_by_entry(secured: Broker) -> None:
    async def verb(admin: Admin) -> None:
        await admin.create_user("alice", "secret12")
        assert (await admin.acl("alice"))["broker-a"].policies == []
        more = PolicyEntryInfo(resource="Group:g", actions=["Sub"], decision="Deny")
        await admin.set_acl("User:alice", [WRITE, more])
        await admin.set_acl("alice", [WRITE], policy_type="Default")
        acl = (await admin.acl("alice"))["broker-a"]
        assert acl.policies is not None
        assert [(p.policy_type, p.entries) for p in acl.policies] == [
            ("Custom", [WRITE, more]),
            ("Default", [WRITE]),
        ]
        (only,) = (await admin.acls("ali", "Group"))["broker-a"]
        assert [p.entries for p in only.policies or ()] == [[more]]
        await admin.delete_acl("alice", "Topic:Ord*", policy_type="Default")
        await admin.delete_acl("alice", "Topic:Ord*")
        (left,) = (await admin.acl("alice"))["broker-a"].policies or ()
        assert left.entries == [more]
        await admin.delete_acl("alice")
        assert (await admin.acls())["broker-a"] == []
        with pytest.raises(ServerError, match="The acl is not exist"):
            await admin.delete_acl("alice")

    run(secured, verb)


def test_a_name_servers_users_are_its_own(secured: Broker) -> None:
    async def verb(admin: Admin) -> None:
        address = secured.namesrv_address
        assert await admin.create_user("ns", "secret12", name_servers=True) == [address]
        names = [u.username for u in (await admin.users(name_servers=True))[address]]
        assert names == ["inner", "ns", "root"]
        assert "ns" not in [u.username for u in (await admin.users())["broker-a"]]
        assert await admin.copy_accounts(address, "broker-a", ["ns"]) == ["ns"]
        assert (await admin.user("ns"))["broker-a"].password == "secret12"

    run(secured, verb)


def test_a_copy_has_passwords_and_policies(secured: Broker) -> None:
    with Broker(config={**SECURED, "brokerClusterName": "Other"}) as other:

        async def verb(admin: Admin) -> None:
            await admin.create_user("alice", "secret12")
            await admin.set_acl("alice", [WRITE])
            target = other.broker_address
            assert await admin.copy_accounts("broker-a", target) == ["alice", "inner", "root"]
            assert (await admin.user("alice", broker=target))[target].password == "secret12"
            assert await admin.acl("alice", broker=target) == {
                target: (await admin.acl("alice"))["broker-a"]
            }
            with pytest.raises(NotFoundError, match="has no user 'bob'"):
                await admin.copy_accounts("broker-a", target, ["bob"])

        run(secured, verb)


def test_a_user_with_the_clusters_rights_gets_no_passwords(secured: Broker) -> None:
    async def allow(admin: Admin) -> None:
        entry = PolicyEntryInfo(resource="Cluster:*", actions=["All"], decision="Allow")
        for name_servers in (False, True):
            await admin.create_user("alice", "secret12", name_servers=name_servers)
            await admin.set_acl("alice", [entry], name_servers=name_servers)

    async def look(admin: Admin) -> None:
        assert {u.password for u in (await admin.users())["broker-a"]} == {None}
        with pytest.raises(ConfigurationError, match="use the account of a super user"):
            await admin.copy_accounts("broker-a", secured.namesrv_address)
        with pytest.raises(ServerError, match="can only be create by super user"):
            await admin.create_user("evil", "secret12", user_type="Super")

    run(secured, allow)
    run(secured, look, ALICE)


def test_without_a_valid_account_nothing_is_told(secured: Broker) -> None:
    async def verb(admin: Admin) -> None:
        with pytest.raises(ServerError, match=r"cannot be null|signature failed"):
            await admin.users(broker=secured.broker_address)

    run(secured, verb, None)
    run(secured, verb, Credentials("root", "wrongpassword"))


def test_a_broker_without_accounts_says_so() -> None:
    async def verb(admin: Admin) -> None:
        with pytest.raises(ServerError, match="this server has no accounts"):
            await admin.create_user("alice", "secret12")
        with pytest.raises(ServerError) as caught:
            await admin.users(name_servers=True)
        assert caught.value.code == 3

    with Broker() as broker:
        run(broker, verb, None)


def test_wrong_arguments_are_refused_before_anything_is_sent(secured: Broker) -> None:
    async def verb(admin: Admin) -> None:
        for wrong in (
            admin.create_user(" ", "x"),
            admin.create_user("a", " "),
            admin.update_user("a"),
            admin.update_user("a", password=" "),
            admin.set_acl("a", []),
            admin.delete_acl("a", " "),
            admin.users(broker="b", cluster="c"),
            admin.users(broker="b", name_servers=True),
        ):
            with pytest.raises(ConfigurationError):
                await wrong

    run(secured, verb)
