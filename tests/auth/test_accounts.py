"""The table of users and access control lists: RocketMQ's checks, and the file."""

from __future__ import annotations

import stat

import pytest

from trocket.auth.accounts import ACCOUNTS_FILE, ENTRIES_MAX, USERS_MAX, Accounts
from trocket.auth.conversion import SOURCE_IPS_MAX, acl_info, acl_of, user_info, user_of
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
from trocket.common.steps import at_once
from trocket.disk.errors import CorruptRecordError
from trocket.disk.os_disk import OsDisk
from trocket.disk.state_files import StateFiles
from trocket.remoting.bodies import AccountsInfo, AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from trocket.remoting.errors import RequestRefused
from trocket.remoting.response_codes import ResponseCode


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
    info = AccountsInfo.from_body(accounts.snapshot())
    assert at_once(other.replace(info.users, info.acls))
    assert other.acls == accounts.acls
    assert set(other.users) == {"alice", "inner"}
    assert len(changes) == 1
    assert not at_once(other.replace(info.users, info.acls))
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


def test_a_copied_file_that_others_may_read_is_warned_of(tmp_path, caplog):
    files = StateFiles(OsDisk(), str(tmp_path), secret=(ACCOUNTS_FILE,))
    accounts = Accounts(files.save)
    for name in ("alice", "bob"):
        accounts.create_user(User(name, f"secret-of-{name}"))
    files.load(ACCOUNTS_FILE, accounts.decode)
    assert caplog.text == ""
    spare = tmp_path / f"{ACCOUNTS_FILE}.bak"
    spare.chmod(0o640)
    files.load(ACCOUNTS_FILE, accounts.decode)
    assert f"{spare} holds secrets, and other users of this machine may read it" in caplog.text


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


# Conversion.


def entry_info(**changed):
    return PolicyEntryInfo(
        **{"resource": "Topic:T", "actions": ["Pub"], "decision": "Allow"} | changed
    )


@pytest.mark.parametrize(
    ("info", "text"),
    [
        (entry_info(resource=None), "The resource is null."),
        (entry_info(resource="Queue:T"), "The resource is null."),
        (entry_info(actions=[]), "The actions is empty."),
        (entry_info(actions=None), "The actions is empty."),
        (entry_info(actions=["Any"]), "The actions can not be Any."),
        (entry_info(actions=["Pub", "Subb"]), "The action is unknown: 'Subb'."),
        (entry_info(source_ips=[" "]), "The source ip is empty."),
        (entry_info(source_ips=["10.0.0"]), "The source ip is invalid."),
        (entry_info(source_ips=["localhost/8"]), "The source ip is invalid."),
        (entry_info(source_ips=["10.0.0.0/255.0.0.0"]), "The source ip is invalid."),
        (
            entry_info(source_ips=["10.0.0.1"] * (SOURCE_IPS_MAX + 1)),
            f"{SOURCE_IPS_MAX + 1} source ips; the limit is {SOURCE_IPS_MAX}.",
        ),
        (entry_info(decision="Maybe"), "The decision is null or illegal."),
        (entry_info(decision=None), "The decision is null or illegal."),
    ],
)
def test_what_a_rule_must_not_say(info, text) -> None:
    assert refusal(acl_of, AclInfo("User:alice", [PolicyInfo("Custom", [info])])) == text


def test_a_list_must_be_whole() -> None:
    whole = [PolicyInfo("Custom", [entry_info()])]
    assert refusal(acl_of, AclInfo("alice", whole)) == "The subject type is null."
    assert refusal(acl_of, AclInfo("User:alice", [])) == "The policies is empty."
    assert refusal(acl_of, AclInfo("User:alice", [PolicyInfo()])) == "The policy entries is empty."


def test_bodies_and_values_are_converted_both_ways() -> None:
    info = AclInfo(
        "user:alice",
        [
            PolicyInfo(None, [entry_info(actions=["pub", "SUB", "Pub"], source_ips=["::1"])]),
            PolicyInfo("default", [entry_info(resource="*", decision="deny")]),
        ],
    )
    found = acl_of(info)
    assert found.subject == "User:alice"
    assert acl_of(acl_info(found)) == found
    user = user_of(UserInfo("alice", "secret", "super", "DISABLE"))
    assert (user.is_super, user.is_enabled) == (True, False)
    assert user_of(user_info(user)) == user


@pytest.mark.slow
def test_the_table_is_bounded() -> None:
    table = Accounts()
    for number in range(USERS_MAX):
        table.create_user(User(f"u{number}", "secret"))
    assert (
        refusal(table.create_user, User("one-more", "secret")) == "The table is full: 10000 users"
    )
    many = [rule(f"Topic:{number}") for number in range(ENTRIES_MAX)]
    table.put_acl(acl("User:u0", *many))
    assert refusal(table.put_acl, acl("User:u0", rule("Topic:one-more"))) == (
        f"{ENTRIES_MAX + 1} entries; the limit is {ENTRIES_MAX}."
    )
    assert "the limit is 255" in refusal(table.create_user, User("u" * 256, "secret"))
    assert "the limit is 1024" in refusal(table.update_user, "u0", password="s" * 1025)
    assert "surrogate" in refusal(table.update_user, "u0", password="\ud800")


def test_lists_are_found_by_parts_of_their_names(accounts) -> None:
    accounts.create_user(User("bob", "secret"))
    accounts.put_acl(acl("User:alice", rule("Topic:orders"), rule("Group:g")))
    accounts.put_acl(acl("User:bob", rule("Topic:bills")))
    assert [user.username for user in accounts.list_users("o")] == ["bob"]
    assert [found.subject for found in accounts.list_acls("ali")] == ["User:alice"]
    (found,) = accounts.list_acls(resource_containing="orders")
    assert found == acl("User:alice", rule("Topic:orders"))
