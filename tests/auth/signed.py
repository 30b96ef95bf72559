"""Requests of accounts in tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from trocket.auth.accounts import Accounts
from trocket.auth.model import (
    Acl,
    Action,
    Decision,
    Policy,
    PolicyEntry,
    PolicyType,
    Resource,
    User,
    UserType,
)
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.signature import sign

ROOT = User("root", "secret-of-root", UserType.SUPER)
ALICE = User("alice", "secret-of-alice")

INIT_USER = '{"username":"root","password":"secret-of-root"}'
"""initAuthenticationUser of a server of which ROOT is the super user."""


def signed(
    code: int,
    fields: Mapping[str, object] | None = None,
    body: bytes = b"",
    *,
    user: User | None = ROOT,
    serialize_type: int = 0,
) -> RemotingCommand:
    """A request that a user has signed; None: nobody."""
    texts = {name: str(value) for name, value in (fields or {}).items()}
    if user is not None:
        sign(texts, body, user.username, user.password)
    return RemotingCommand(int(code), texts, body, serialize_type=serialize_type)


def rule(
    resource: str,
    *actions: Action,
    source_ips: tuple[str, ...] = (),
    decision: Decision = Decision.ALLOW,
) -> PolicyEntry:
    """A rule by its resource's text; no action: all."""
    parsed = Resource.parse(resource)
    assert parsed is not None, resource
    return PolicyEntry(parsed, actions or (Action.ALL,), source_ips, decision)


def allow(
    accounts: Accounts,
    rights: Iterable[str],
    user: User = ALICE,
    policy_type: PolicyType = PolicyType.CUSTOM,
) -> None:
    """Give a user exactly these rights, each as `Topic:T Pub`; it is created if need be."""
    if user.username not in accounts.users:
        accounts.create_user(user)
    if user.subject in accounts.acls:
        accounts.delete_acl(user.subject)
    actions: dict[str, list[Action]] = {}
    for right in rights:
        resource, _, action = right.rpartition(" ")
        actions.setdefault(resource, []).append(Action(action))
    entries = tuple(rule(resource, *found) for resource, found in actions.items())
    if entries:
        accounts.put_acl(Acl(user.subject, (Policy(policy_type, entries),)))
