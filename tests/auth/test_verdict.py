"""Why a user may do something: the answers, and that servers decide the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trocket.auth.authorizer import Authorizer
from trocket.auth.model import (
    Acl,
    Action,
    Decision,
    Policy,
    PolicyEntry,
    PolicyType,
    Resource,
    User,
    UserStatus,
    UserType,
    parse_address,
)
from trocket.auth.verdict import verdict

ALICE = User("alice", "secret12")


def entry(text: str, *actions: str, deny: bool = False, ips: tuple[str, ...] = ()) -> PolicyEntry:
    resource = Resource.parse(text)
    assert resource is not None
    found = tuple(each for each in map(Action.of, actions) if each is not None)
    return PolicyEntry(resource, found, ips, Decision.DENY if deny else Decision.ALLOW)


ACL = Acl(
    "User:alice",
    (
        Policy(
            PolicyType.CUSTOM,
            (
                entry("Topic:Ord*", "Pub"),
                entry("Topic:Orders", "Sub", ips=("10.0.0.0/8",)),
                entry("Topic:OrdersOld", "All", deny=True),
            ),
        ),
        Policy(PolicyType.DEFAULT, (entry("Topic:*", "Get"), entry("Group:*", "All", deny=True))),
    ),
)
ANSWERS = [
    ("Topic:Orders", "Pub", "", True, "the Custom entry for Topic:Ord* allows it"),
    ("Topic:Orders", "Sub", "10.1.1.1", True, "the Custom entry for Topic:Orders allows it"),
    ("Topic:Orders", "Sub", "11.1.1.1", False, "none of its 5 entries matches"),
    ("Topic:Orders", "Sub", "", False, "none of its 5 entries matches"),
    ("Topic:OrdersOld", "Pub", "", False, "the Custom entry for Topic:OrdersOld denies it"),
    ("Topic:Orders", "Get", "", True, "the Default entry for Topic:* allows it"),
    ("Topic:*", "Get", "", True, "the Default entry for Topic:* allows it"),
    ("Group:g", "Sub", "", False, "the Default entry for Group:* denies it"),
    ("Cluster:c", "Get", "", False, "none of its 5 entries matches"),
]


@pytest.mark.parametrize(("resource", "action", "source", "is_allowed", "reason"), ANSWERS)
def test_the_entry_that_decides_is_named(
    resource: str, action: str, source: str, is_allowed: bool, reason: str
) -> None:
    asked, wanted = Resource.parse(resource), Action.of(action)
    assert asked is not None
    assert wanted is not None
    found = verdict(ALICE, ACL, asked, wanted, parse_address(source))
    assert (found.is_allowed, found.reason) == (is_allowed, reason)


def test_super_and_disabled_users_need_no_entry() -> None:
    topic = Resource.parse("Topic:T")
    assert topic is not None
    root = User("root", "x", UserType.SUPER)
    assert verdict(root, None, topic, Action.PUB, None).is_allowed
    off = User("root", "x", UserType.SUPER, UserStatus.DISABLE)
    assert verdict(off, None, topic, Action.PUB, None).reason == "the user is disabled"
    assert verdict(ALICE, None, topic, Action.PUB, None).reason == "it has no policies"


resources = st.sampled_from(
    ["*", "Topic:*", "Topic:a*", "Topic:ab*", "Topic:ab", "Topic:abc", "Group:*", "Group:ab"]
)
actions = st.sampled_from(["All", "Pub", "Sub", "Get"])
entries = st.builds(
    entry,
    resources,
    actions,
    deny=st.booleans(),
    ips=st.sampled_from([(), ("10.0.0.0/8",), ("10.0.0.1", "::1")]),
)
policies = st.builds(
    lambda custom, default: tuple(
        Policy(kind, tuple(found))
        for kind, found in ((PolicyType.CUSTOM, custom), (PolicyType.DEFAULT, default))
        if found
    ),
    st.lists(entries, max_size=6),
    st.lists(entries, max_size=3),
)


@given(
    policies,
    st.sampled_from(["Topic:ab", "Topic:abc", "Topic:z", "Topic:*", "Group:ab", "Cluster:c"]),
    st.sampled_from(["Pub", "Sub", "Get", "List"]),
    st.sampled_from(["10.0.0.1", "10.9.9.9", "::1", ""]),
)
def test_servers_decide_the_same(
    found: tuple[Policy, ...], resource: str, action: str, source: str
) -> None:
    acl = Acl("User:alice", found)
    asked, wanted = Resource.parse(resource), Action.of(action)
    assert asked is not None
    assert wanted is not None
    address = parse_address(source)
    refusal = Authorizer({acl.subject: acl}).refusal(acl.subject, asked, (wanted,), address)
    answer = verdict(ALICE, acl if found else None, asked, wanted, address)
    assert answer.is_allowed == (refusal is None)
