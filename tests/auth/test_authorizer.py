"""Decisions by rules, against a model that looks at each rule."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trocket.auth.authorizer import DENIED, NO_MATCH, Authorizer
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
    parse_address,
)

from .signed import rule

SUBJECT = "User:alice"
ADDRESS = parse_address("10.1.2.3")
PUB, SUB = (Action.PUB,), (Action.SUB,)


def decide(asked, *entries, actions=PUB, address=ADDRESS, default=()):
    acl = Acl(
        SUBJECT, (Policy(PolicyType.DEFAULT, tuple(default)), Policy(PolicyType.CUSTOM, entries))
    )
    return Authorizer({SUBJECT: acl}).refusal(SUBJECT, Resource.parse(asked), actions, address)


def allow(resource, *actions, **more):
    return rule(resource, *actions, **more)


def deny(resource, *actions, **more):
    return rule(resource, *actions, decision=Decision.DENY, **more)


def test_without_a_rule_nothing_is_allowed() -> None:
    assert Authorizer({}).refusal(SUBJECT, Resource.parse("Topic:a"), PUB, None) == NO_MATCH
    assert decide("Topic:a") == NO_MATCH
    assert decide("Topic:a", allow("Topic:b"), allow("Group:a"), allow("Topic:a", *SUB)) == NO_MATCH


@pytest.mark.parametrize(
    ("entries", "refusal"),
    [
        ((deny("Topic:*"), allow("Topic:a*")), None),
        ((deny("Topic:a*"), allow("Topic:abc")), None),
        ((allow("Topic:a*"), deny("Topic:ab*")), DENIED),
        ((deny("*"), allow("Topic:*")), None),
        ((allow("Topic:abc"), deny("Topic:abc")), DENIED),
        ((deny("Topic:abc"), allow("Topic:abc")), DENIED),
        ((allow("*"),), None),
        ((deny("Topic:abc", *SUB), allow("Topic:*")), None),
    ],
)
def test_the_most_specific_rule_decides(entries, refusal) -> None:
    assert decide("Topic:abc", *entries) == refusal


def test_default_rules_count_only_where_no_custom_rule_matches() -> None:
    assert decide("Topic:a", default=[allow("Topic:a")]) is None
    assert decide("Topic:a", deny("*"), default=[allow("Topic:a")]) == DENIED
    assert decide("Topic:a", deny("Topic:b"), default=[allow("Topic:a")]) is None


@pytest.mark.parametrize(
    ("source_ip", "address", "matches"),
    [
        ("10.1.2.3", "10.1.2.3", True),
        ("10.1.2.3", "10.1.2.4", False),
        ("10.0.0.0/8", "10.255.0.1", True),
        ("10.9.9.9/8", "10.255.0.1", True),
        ("10.0.0.0/8", "11.0.0.1", False),
        ("2001:db8::/32", "2001:db8::1", True),
        ("2001:db8::/32", "10.1.2.3", False),
        ("10.0.0.0/8", "::ffff:10.1.2.3", True),
        ("10.0.0.0/8", "not an address", False),
    ],
)
def test_a_rule_may_be_for_some_addresses(source_ip, address, matches) -> None:
    entry = allow("Topic:a", source_ips=(source_ip,))
    found = decide("Topic:a", entry, address=parse_address(address))
    assert found == (None if matches else NO_MATCH)


def test_each_action_of_a_request_is_enough_and_all_allows_each() -> None:
    assert decide("Topic:a", allow("Topic:a", Action.GET), actions=(*PUB, Action.GET)) is None
    assert decide("Topic:a", allow("Topic:a", Action.ALL), actions=SUB) is None
    assert decide("Topic:a", allow("Topic:a", Action.GET), actions=(Action.ANY,)) is None


def test_what_is_asked_of_all_topics_is_allowed_for_all_topics_only() -> None:
    assert decide("Topic:*", allow("Topic:*")) is None
    assert decide("Topic:*", allow("*")) is None
    assert decide("Topic:*", allow("Topic:a*"), allow("Topic:a")) == NO_MATCH


def test_a_changed_list_counts_at_once() -> None:
    acls = {SUBJECT: Acl(SUBJECT, (Policy(PolicyType.CUSTOM, (allow("Topic:a"),)),))}
    authorizer = Authorizer(acls)
    asked = Resource.parse("Topic:a")
    assert authorizer.refusal(SUBJECT, asked, PUB, None) is None
    del acls[SUBJECT]
    assert authorizer.refusal(SUBJECT, asked, PUB, None) == NO_MATCH
    acls[SUBJECT] = Acl(SUBJECT, (Policy(PolicyType.CUSTOM, (allow("Topic:a"),)),))
    assert authorizer.refusal(SUBJECT, asked, PUB, None) is None
    acls[SUBJECT] = Acl(SUBJECT, (Policy(PolicyType.CUSTOM, (allow("Topic:b"),)),))
    assert authorizer.refusal(SUBJECT, asked, PUB, None) == NO_MATCH


# Against a model.

names = st.text("ab*", max_size=3)
types = st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER])
texts = st.one_of(st.just("*"), st.builds(lambda kind, name: f"{kind.value}:{name}", types, names))
resources = texts.map(Resource.parse)
some_actions = st.lists(st.sampled_from([Action.PUB, Action.SUB, Action.GET]), min_size=1).map(
    tuple
)
ips = st.sampled_from(["10.1.2.3", "10.0.0.0/8", "10.1.0.0/16", "192.0.2.1", "::1", "::/0"])
entries = st.builds(
    PolicyEntry,
    resources,
    st.one_of(some_actions, st.just((Action.ALL,))),
    st.lists(ips, max_size=2).map(tuple),
    st.sampled_from(Decision),
)
asked_resources = st.builds(Resource, types, st.text("ab", max_size=3))


def naive(policies, asked, actions, address):
    """The decision as the text of the rules says it, rule by rule."""
    for entries in policies:
        matching = []
        for entry in entries:
            resource = entry.resource
            if resource.type is ResourceType.ANY:
                rank = (3, 0)
            elif resource.type is not asked.type:
                continue
            elif resource.pattern is ResourcePattern.ANY:
                rank = (2, 0)
            elif resource.pattern is ResourcePattern.PREFIXED:
                if not asked.name.startswith(resource.name):
                    continue
                rank = (1, -len(resource.name))
            elif resource.name == asked.name:
                rank = (0, 0)
            else:
                continue
            if Action.ALL not in entry.actions and not set(entry.actions) & set(actions):
                continue
            if entry.source_ips and not any(
                ip_address(address) in ip_network(ip, strict=False) for ip in entry.source_ips
            ):
                continue
            matching.append((rank, entry.decision is Decision.ALLOW))
        if matching:
            return None if min(matching)[1] else DENIED
    return NO_MATCH


@given(
    st.lists(entries, max_size=6),
    st.lists(entries, max_size=3),
    asked_resources,
    some_actions,
    st.sampled_from(["10.1.2.3", "10.2.0.1", "192.0.2.1", "::1"]),
)
def test_decisions_are_those_of_the_model(custom, default, asked, actions, address) -> None:
    acl = Acl(
        SUBJECT,
        (Policy(PolicyType.CUSTOM, tuple(custom)), Policy(PolicyType.DEFAULT, tuple(default))),
    )
    found = Authorizer({SUBJECT: acl}).refusal(SUBJECT, asked, actions, parse_address(address))
    assert found == naive((custom, default), asked, actions, address)
