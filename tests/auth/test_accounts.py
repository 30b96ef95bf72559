"""The table of users and access control lists: RocketMQ's checks, and the file."""

from __future__ import annotations

import stat

import pytest

from trocket.auth.accounts import ACCOUNTS_FILE, Accounts
from trocket.auth.model import (
    Acl,
    Action,
    Decision,
    Policy,
    PolicyEntry,
    PolicyType,
    Resource,
    ResourcePattern,
    ResourceType,
    User,
    UserStatus,
    UserType,
)
from trocket.remoting.errors import RequestRefused
from trocket.remoting.response_codes import ResponseCode
from trocket.store.disk.os_disk import OsDisk
from trocket.store.errors import CorruptRecordError
from trocket.store.state.state_files import StateFiles


def rule(resource, *actions, decision=Decision.ALLOW):
    return PolicyEntry(Resource.parse(resource), actions or (Action.ALL,), (), decision)


def acl(subject, *entries, policy_type=PolicyType.CUSTOM):
    return Acl(subject, (Policy(policy_type, entries),))


@pytest.fixture
def accounts():
    table = Accounts()
    table.create_user(User("alice", "secret-of-alice"))
    return table


def refusal(call, *args, **kwargs):
    with pytest.raises(RequestRefused) as caught:
        call(*args, **kwargs)
    assert caught.value.code == ResponseCode.NO_PERMISSION
    return caught.value.remark


@pytest.mark.parametrize(
    ("text", "resource"),
    [
        ("*", Resource(ResourceType.ANY, "", ResourcePattern.ANY)),
        ("Topic:*", Resource(ResourceType.TOPIC, "", ResourcePattern.ANY)),
        ("Topic:a*", Resource(ResourceType.TOPIC, "a", ResourcePattern.PREFIXED)),
        ("Group:a:b", Resource(ResourceType.GROUP, "a:b")),
        ("cluster:DefaultCluster", Resource(ResourceType.CLUSTER, "DefaultCluster")),
        ("Namespace:n", Resource(ResourceType.NAMESPACE, "n")),
    ],
)
def test_the_text_of_a_resource(text, resource):
    assert Resource.parse(text) == resource
    assert Resource.parse(str(resource)) == resource


@pytest.mark.parametrize("text", [None, "", " ", "topics", "Queue:a"])
def test_other_texts_are_no_resource(text):
    assert Resource.parse(text) is None


def test_users_have_the_refusals_of_rocketmq(accounts):
    assert refusal(accounts.create_user, User("alice", "other")) == "The user is existed"
    assert refusal(accounts.create_user, User(" ", "x")) == "username can not be blank"
    assert refusal(accounts.create_user, User("bob", "")) == "password can not be blank"
    assert refusal(accounts.update_user, "bob", password="x") == "The user is not exist"
    assert refusal(accounts.delete_user, "") == "username can not be blank"
    accounts.delete_user("nobody")


def test_an_update_changes_what_is_given(accounts):
    accounts.update_user("alice", password=" ", user_status=UserStatus.DISABLE)
    assert accounts.users["alice"] == User(
        "alice", "secret-of-alice", UserType.NORMAL, UserStatus.DISABLE
    )


def test_rules_are_merged_by_resource(accounts):
    accounts.put_acl(acl("User:alice", rule("Topic:a", Action.PUB), rule("Group:g", Action.SUB)))
    accounts.put_acl(acl("User:alice", rule("Topic:a", Action.SUB)))
    accounts.put_acl(acl("User:alice", rule("*"), policy_type=PolicyType.DEFAULT))
    found = accounts.get_acl("User:alice")
    assert found.entries(PolicyType.CUSTOM) == (
        rule("Topic:a", Action.SUB),
        rule("Group:g", Action.SUB),
    )
    assert found.entries(PolicyType.DEFAULT) == (rule("*"),)
    accounts.delete_acl("User:alice", PolicyType.CUSTOM, Resource.parse("Topic:a"))
    accounts.delete_acl("User:alice", PolicyType.CUSTOM, Resource.parse("Group:g"))
    assert [each.type for each in accounts.get_acl("User:alice").policies] == [PolicyType.DEFAULT]
    accounts.delete_acl("User:alice")
    assert accounts.get_acl("User:alice") is None
    assert refusal(accounts.delete_acl, "User:alice") == "The acl is not exist."
    assert refusal(accounts.get_acl, "User:bob") == "The subject is not exist."
    assert refusal(accounts.put_acl, acl("User:bob", rule("*"))) == (
        "The subject of User:bob is not exist."
    )


def test_a_users_rules_go_with_it(accounts):
    accounts.put_acl(acl("User:alice", rule("*")))
    accounts.delete_user("alice")
    assert accounts.acls == {}


def test_a_snapshot_makes_the_same_accounts(accounts):
    accounts.put_acl(acl("User:alice", rule("Topic:a*", Action.PUB, decision=Decision.DENY)))
    other = Accounts()
    other.ensure_super("inner", "secret-of-inner")
    changes = []
    other.subscribe(lambda: changes.append(other.version))
    assert other.replace(accounts.snapshot())
    assert other.acls == accounts.acls
    assert set(other.users) == {"alice", "inner"}
    assert len(changes) == 1
    assert not other.replace(accounts.snapshot())
    assert len(changes) == 1


def test_the_file_is_private_and_read_again(tmp_path):
    files = StateFiles(OsDisk(), str(tmp_path), secret=(ACCOUNTS_FILE,))
    accounts = Accounts(files.save)
    for name in ("alice", "bob"):
        accounts.create_user(User(name, f"secret-of-{name}"))
    for path in tmp_path.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path.name
    assert {each.name for each in tmp_path.iterdir()} == {ACCOUNTS_FILE, f"{ACCOUNTS_FILE}.bak"}
    again = Accounts(files.save)
    assert StateFiles(OsDisk(), str(tmp_path)).load(ACCOUNTS_FILE, again.decode) == 2
    assert again.users == accounts.users


@pytest.mark.parametrize(
    "text",
    [
        b"[]",
        b'{"users":[{"username":"a"}]}',
        b'{"users":[{"username":"a","password":"secret"},{"username":"a","password":"secret"}]}',
        b'{"acls":[{"subject":"a"}]}',
    ],
)
def test_a_damaged_file_is_refused_without_a_secret(tmp_path, text):
    (tmp_path / ACCOUNTS_FILE).write_bytes(text)
    accounts = Accounts()
    with pytest.raises(CorruptRecordError) as caught:
        StateFiles(OsDisk(), str(tmp_path)).load(ACCOUNTS_FILE, accounts.decode)
    assert ACCOUNTS_FILE in str(caught.value)
    assert "secret" not in str(caught.value)
    assert accounts.users == {}


def test_no_repr_shows_a_password(accounts):
    assert "secret" not in repr(accounts.users)
    assert "secret" not in repr(accounts)
