"""Accounts of ACL 1.0 become users and rules of 2.0."""

from __future__ import annotations

import pytest

from trocket.auth.accounts import ENTRIES_MAX, Accounts
from trocket.auth.authorizer import NO_MATCH, Authorizer
from trocket.auth.conversion import acl_info
from trocket.auth.migration import migrate
from trocket.auth.model import Action, User, UserType
from trocket.auth.needs import topic_of
from trocket.auth.plain_acl import PlainAcl, read_file

ACCOUNTS = b"""\
globalWhiteRemoteAddresses: [10.0.0.*]
accounts:
- {accessKey: administrator, secretKey: secret-of-it, admin: true}
- accessKey: account-1
  secretKey: secret-of-1
  whiteRemoteAddress: 10.1.1.1
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms: [topicA=DENY, topicB=PUB|SUB, topicC=SUB, topicD=WHAT, 'star*=PUB']
  groupPerms: [groupA=DENY, groupB=PUB]
- {accessKey: account-2, secretKey: secret-of-2}
"""


@pytest.fixture
def accounts() -> Accounts:
    return Accounts()


def rules_of(accounts: Accounts, name: str) -> dict[str, tuple[str, ...]]:
    info = acl_info(accounts.acls[f"User:{name}"])
    return {
        f"{policy.policy_type} {entry.resource}": (entry.decision or "", *(entry.actions or ()))
        for policy in info.policies or ()
        for entry in policy.entries or ()
    }


def test_each_account_becomes_a_user_with_its_rules(accounts: Accounts) -> None:
    report = migrate(PlainAcl([read_file(ACCOUNTS, "x.yml")]), accounts)
    assert report.created == ["administrator", "account-1", "account-2"]
    assert (report.existing, report.refused) == ([], {})
    assert accounts.users["administrator"] == User("administrator", "secret-of-it", UserType.SUPER)
    assert accounts.users["account-1"] == User("account-1", "secret-of-1", UserType.NORMAL)
    assert list(accounts.acls) == ["User:account-1", "User:account-2"]
    assert rules_of(accounts, "account-1") == {
        "Custom Topic:topicA": ("Deny", "All"),
        "Custom Topic:topicB": ("Allow", "Pub", "Sub", "Get"),
        "Custom Topic:topicC": ("Allow", "Sub", "Get"),
        "Custom Topic:topicD": ("Deny", "All"),  # AuthMigrator of 5.3.2 allows everything
        "Custom Group:groupA": ("Deny", "All"),
        "Custom Group:groupB": ("Allow", "Pub"),
        "Custom Topic:RMQ_SYS_TRACE_TOPIC": ("Allow", "Pub"),
        "Default Topic:*": ("Deny", "All"),
        "Default Group:*": ("Allow", "Sub", "Get"),
    }
    assert rules_of(accounts, "account-2") == {"Custom Topic:RMQ_SYS_TRACE_TOPIC": ("Allow", "Pub")}


def test_an_account_that_may_only_send_reads_no_message_afterwards(accounts: Accounts) -> None:
    text = b"accounts:\n- {accessKey: account-1, secretKey: secret-1, topicPerms: [topic=PUB]}\n"
    migrate(PlainAcl([read_file(text, "x.yml")]), accounts)
    authorizer = Authorizer(accounts.acls)
    for actions, why in (
        ((Action.PUB,), None),
        ((Action.GET,), NO_MATCH),
        ((Action.SUB, Action.GET), NO_MATCH),  # of QUERY_MESSAGE, which needs SUB in 1.0
    ):
        assert authorizer.refusal("User:account-1", topic_of("topic"), actions, None) == why


def test_what_is_different_is_reported(accounts: Accounts) -> None:
    report = migrate(PlainAcl([read_file(ACCOUNTS, "x.yml")]), accounts)
    told = "\n".join(report.remarks)
    assert "the global white addresses 10.0.0.* are not migrated" in told
    assert "account-1: its white address 10.1.1.1 is not migrated" in told
    assert "account-1: star* is left out" in told
    assert "account-1: the default permission gives it SUB on group groupB, too" in told
    assert "secret-of" not in told


def test_a_second_migration_changes_nothing(accounts: Accounts) -> None:
    acl = PlainAcl([read_file(ACCOUNTS, "x.yml")])
    migrate(acl, accounts)
    accounts.update_user("account-1", password="another-secret")
    before = accounts.snapshot()
    report = migrate(acl, accounts)
    assert (report.created, report.existing) == ([], ["administrator", "account-1", "account-2"])
    assert accounts.snapshot() == before


def test_rules_survive_the_table_s_file(accounts: Accounts) -> None:
    migrate(PlainAcl([read_file(ACCOUNTS, "x.yml")]), accounts)
    again = Accounts()
    again.decode(accounts.snapshot())
    assert again.acls == accounts.acls


def test_an_account_that_does_not_fit_is_no_user_without_rules(accounts: Accounts) -> None:
    perms = ", ".join(f"topic{number}=PUB" for number in range(ENTRIES_MAX))
    text = f"accounts:\n- {{accessKey: account-1, secretKey: secret-1, topicPerms: [{perms}]}}\n"
    report = migrate(PlainAcl([read_file(text.encode(), "x.yml")]), accounts)
    assert report.created == []
    assert "limit" in report.refused["account-1"]
    assert accounts.users == {}
