"""`trocket auth`: users, policies, and the question what a user may do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from trocket.broker.settings.config import BrokerConfig
from trocket.broker.settings.config_checks import read_broker_config
from trocket.common.config import parse_properties
from trocket.store.config import MessageStoreConfig
from trocket.testing import Broker

from .conftest import Run

SECURED = {
    "authenticationEnabled": True,
    "authorizationEnabled": True,
    "initAuthenticationUser": '{"username":"root","password":"rootpassword"}',
    "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"innerpassword"}',
}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(config=SECURED, namesrv_config=SECURED) as broker:
        yield broker


@pytest.fixture(autouse=True)
def account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCKETMQ_ACCESS_KEY", "root")
    monkeypatch.setenv("ROCKETMQ_SECRET_KEY", "rootpassword")
    monkeypatch.delenv("TROCKET_USER_PASSWORD", raising=False)


def create(run: Run, name: str = "alice", *flags: str) -> None:
    ended = run("auth", "user", "create", name, "--password-stdin", *flags, stdin="geheim12\n")
    assert ended.status == 0, ended.err


@pytest.mark.slow
def test_a_user_is_created_listed_changed_and_deleted(broker: Broker, run: Run) -> None:
    create(run)
    row = {
        "username": "alice",
        "userType": "Normal",
        "userStatus": "enable",
        "servers": ["broker-a"],
    }
    assert row in run("auth", "user", "list", "--json").json
    assert run("auth", "user", "list", "--filter", "ali").rows == [
        ["alice", "Normal", "enable", "broker-a"]
    ]
    ended = run("auth", "user", "update", "alice", "--disable", "--type", "Super")
    assert ended.out == "changed alice on broker-a\n"
    assert run("auth", "user", "show", "alice").rows == [["alice", "Super", "disable", "broker-a"]]
    assert run("auth", "user", "delete", "alice").status == 2  # without --yes
    assert run("auth", "user", "delete", "alice", "--yes").status == 0
    ended = run("auth", "user", "show", "alice")
    assert (ended.status, ended.err) == (1, "trocket: there is no user 'alice'\n")


@pytest.mark.slow
def test_passwords_are_taken_from_three_places_and_shown_nowhere(
    broker: Broker, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = []
    ended = run("auth", "user", "create", "bob")
    assert ended.status == 2
    assert "no password: use --password-stdin, or set TROCKET_USER_PASSWORD" in ended.err
    monkeypatch.setenv("TROCKET_USER_PASSWORD", "geheim12")
    said.append(run("auth", "user", "create", "bob"))
    monkeypatch.delenv("TROCKET_USER_PASSWORD")
    words = ("auth", "user", "update", "bob", "--password-stdin", "--json")
    said.append(run(*words, stdin="geheim13\n"))
    monkeypatch.setenv("ROCKETMQ_ACCESS_KEY", "bob")
    monkeypatch.setenv("ROCKETMQ_SECRET_KEY", "geheim13")
    said.append(run("auth", "user", "show", "bob", "--broker", broker.broker_address))
    assert "has no permission to access Cluster:DefaultCluster" in said[-1].err  # it is signed
    monkeypatch.setenv("ROCKETMQ_ACCESS_KEY", "root")
    monkeypatch.setenv("ROCKETMQ_SECRET_KEY", "rootpassword")
    said.append(run("auth", "user", "show", "bob", "--json"))
    said.append(run("auth", "user", "list"))
    assert run("auth", "user", "create", "x", "--password-stdin", stdin="\n").status == 2
    for ended in said:
        assert "geheim" not in ended.out + ended.err
    assert [ended.status for ended in said] == [0, 0, 1, 0, 0]


@pytest.mark.slow
def test_policies_are_set_listed_and_deleted(broker: Broker, run: Run) -> None:
    create(run)
    words = ("auth", "acl", "set", "alice")
    ended = run(*words, "Topic:Ord*", "Group:g", "--allow", "Pub,Sub", "--source", "10.0.0.0/8")
    assert ended.out == "changed alice on broker-a\n"
    assert run(*words, "Cluster:*", "--deny", "All", "--default").status == 0
    rows = [
        ["alice", "Custom", "Topic:Ord*", "Pub,Sub", "10.0.0.0/8", "Allow", "broker-a"],
        ["alice", "Custom", "Group:g", "Pub,Sub", "10.0.0.0/8", "Allow", "broker-a"],
        ["alice", "Default", "Cluster:*", "All", "", "Deny", "broker-a"],
    ]
    assert run("auth", "acl", "show", "alice").rows == rows
    assert run("auth", "acl", "list", "--resource", "Group").rows == [rows[1]]
    none = run("auth", "acl", "list", "--resource", "Nosuch")
    assert (none.rows, none.err) == ([], "trocket: no server has such a policy\n")
    none = run("auth", "user", "list", "--filter", "nosuch")
    assert (none.rows, none.err) == ([], "trocket: no server has such a user\n")
    (found,) = run("auth", "acl", "list", "--user", "ali", "--resource", "Ord", "--json").json
    assert found == {
        "username": "alice",
        "policyType": "Custom",
        "resource": "Topic:Ord*",
        "actions": ["Pub", "Sub"],
        "sourceIps": ["10.0.0.0/8"],
        "decision": "Allow",
        "servers": ["broker-a"],
    }
    delete = ("auth", "acl", "delete", "alice", "--yes")
    assert run(*delete, "Cluster:*", "--default").status == 0
    assert run(*delete, "Group:g").status == 0
    assert run("auth", "acl", "show", "alice").rows == [rows[0]]
    assert run(*delete).status == 0
    assert run("auth", "acl", "show", "alice").rows == []
    ended = run(*delete)
    assert ended.status == 1
    assert "The acl is not exist." in ended.err


@pytest.mark.slow
def test_what_is_wrong_with_an_entry_is_said(broker: Broker, run: Run) -> None:
    create(run)
    words = ("auth", "acl", "set", "alice")
    assert run(*words, "Topic:T").status == 2  # neither --allow nor --deny
    assert run(*words, "Topic:T", "--allow", "Pub", "--deny", "Sub").status == 2
    for flags, text in (
        (("Topc:T", "--allow", "Pub"), "The resource is null."),
        (("Topic:T", "--allow", "Publish"), "The action is unknown: 'Publish'."),
        (("Topic:T", "--allow", "Pub", "--source", "10.0.0.1/33"), "The source ip is invalid."),
    ):
        ended = run(*words, *flags)
        assert ended.status == 1
        assert text in ended.err
    assert run("auth", "acl", "delete", "alice", "--default", "--yes").status == 2
    assert run("auth", "user", "list", "--broker", "b", "--cluster", "c").status == 2


@pytest.mark.slow
def test_the_question_has_an_answer_with_its_reason(broker: Broker, run: Run) -> None:
    create(run)
    run("auth", "acl", "set", "alice", "Topic:Ord*", "--allow", "Pub")
    run("auth", "acl", "set", "alice", "Topic:Ord*", "--allow", "Sub", "--default",
        "--source", "10.0.0.0/8")  # fmt: skip
    ask = ("auth", "test", "alice")
    ended = run(*ask, "Pub", "Topic:Orders")
    assert ended.rows == [["broker-a", "allowed", "the Custom entry for Topic:Ord* allows it"]]
    ended = run(*ask, "Sub", "Topic:Orders")
    assert ended.status == 1
    assert ended.out == "broker-a\tdenied\tnone of its 2 entries matches\n"
    (found,) = run(*ask, "sub", "Topic:Orders", "--source", "10.1.2.3", "--json").json
    assert found == {
        "server": "broker-a",
        "isAllowed": True,
        "reason": "the Default entry for Topic:Ord* allows it",
        "policyType": "Default",
        "entry": {
            "resource": "Topic:Ord*",
            "actions": ["Sub"],
            "sourceIps": ["10.0.0.0/8"],
            "decision": "Allow",
        },
    }
    assert run("auth", "test", "root", "Update", "Cluster:c").rows == [
        ["broker-a", "allowed", "a super user may do everything"]
    ]
    for wrong in (("Pub", "Orders"), ("Publish", "Topic:T"), ("All", "Topic:T"),
                  ("Pub", "Topic:a*"), ("Pub", "Topic:T", "--source", "here")):  # fmt: skip
        assert run(*ask, *wrong).status == 2


@pytest.mark.slow
def test_users_are_copied_from_server_to_server(broker: Broker, run: Run) -> None:
    create(run, "ns", "--name-servers")
    assert run("auth", "user", "list", "--name-servers", "--filter", "ns").rows == [
        ["ns", "Normal", "enable", broker.namesrv_address]
    ]
    ended = run("auth", "copy", broker.namesrv_address, "broker-a", "ns")
    assert ended.out == f"copied ns from {broker.namesrv_address} to broker-a\n"
    assert run("auth", "user", "show", "ns").status == 0


def test_init_prints_what_switches_access_control_on(run: Run) -> None:
    ended = run("auth", "init", "--user", "boss", "--password-stdin", stdin='a"b\\c\n')
    config, _, _ = read_broker_config(
        parse_properties(ended.out), BrokerConfig(), MessageStoreConfig()
    )
    assert config.authentication_enabled
    assert config.authorization_enabled
    user = json.loads(config.init_authentication_user)
    assert user == {"username": "boss", "password": 'a"b\\c'}
    inner = json.loads(config.inner_client_authentication_credentials)
    assert inner["accessKey"] == "inner"
    assert len(inner["secretKey"]) == 32
    again = run("auth", "init").out
    assert inner["secretKey"] not in again
    assert run("auth", "init", "--user", "x", "--inner", "x").status == 2


PLAIN_ACL = """
globalWhiteRemoteAddresses: [10.0.0.*]
accounts:
  - accessKey: administrator
    secretKey: geheim-admin
    admin: true
  - accessKey: orders-team
    secretKey: geheim-orders
    topicPerms: [Orders=PUB]
    defaultGroupPerm: SUB
"""


@pytest.mark.slow
def test_accounts_of_the_old_generation_move(broker: Broker, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "plain_acl.yml"
    path.write_text(PLAIN_ACL)
    ended = run("auth", "migrate", str(path), "--dry-run")
    assert ended.rows == [
        ["administrator", "Super", "0", "planned"],
        ["orders-team", "Normal", "3", "planned"],
    ]
    assert "white addresses 10.0.0.* are not migrated" in ended.err
    assert run("auth", "user", "list", "--filter", "orders").rows == []
    ended = run("auth", "migrate", str(tmp_path), "--json")
    assert [each["outcome"] for each in ended.json] == ["created", "created"]
    assert "geheim" not in ended.out + ended.err
    assert run("auth", "test", "orders-team", "Pub", "Topic:Orders").status == 0
    assert run("auth", "test", "orders-team", "Sub", "Group:any").status == 0
    assert run("auth", "test", "orders-team", "Sub", "Topic:Orders").status == 1
    assert [row[3] for row in run("auth", "migrate", str(path)).rows] == ["exists", "exists"]
    path.write_text("accounts: [{accessKey: a, secretKey: geheim}]")
    ended = run("auth", "migrate", str(path))
    assert ended.status == 1
    assert "geheim" not in ended.err
    assert run("auth", "migrate", str(tmp_path / "missing.yml")).status == 1
