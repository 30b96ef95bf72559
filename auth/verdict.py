"""Verdict: why a user may do something or not, for people.

The decision is that of `Authorizer`, which servers use and which is made for many requests; here it
comes with the entry that decides. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from .model import (
    Acl,
    Action,
    Address,
    Decision,
    PolicyEntry,
    PolicyType,
    Resource,
    ResourcePattern,
    ResourceType,
    User,
    UserStatus,
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer to a question.

    Attributes:
      is_allowed: whether the user may do it.
      reason: why, for people.
      policy_type, entry: what decides; None: no entry does.
    """

    is_allowed: bool
    reason: str
    policy_type: PolicyType | None = None
    entry: PolicyEntry | None = None


def verdict(
    user: User, acl: Acl | None, asked: Resource, action: Action, address: Address | None
) -> Verdict:
    """Whether a user may do something with a resource.

    Args:
      acl: the user's; None: it has none.
      asked: one resource, or all of a type, as requests for lists need it.
      address: of the client; None: unknown, which only entries for all addresses match.
    """
    if user.user_status is UserStatus.DISABLE:
        return Verdict(False, "the user is disabled")
    if user.is_super:
        return Verdict(True, "a super user may do everything")
    entries = 0
    for policy_type in PolicyType:
        matching = []
        for entry in () if acl is None else acl.entries(policy_type):
            entries += 1
            if (
                _is_about(entry.resource, asked)
                and entry.has_action((action,))
                and entry.has_address(address)
            ):
                matching.append(entry)
        if matching:
            decisive = min(matching, key=_rank)
            is_allowed = decisive.decision is Decision.ALLOW
            verb = "allows" if is_allowed else "denies"
            text = f"the {policy_type.value} entry for {decisive.resource} {verb} it"
            return Verdict(is_allowed, text, policy_type, decisive)
    why = f"none of its {entries} entries matches" if entries else "it has no policies"
    return Verdict(False, why)


def _is_about(rule: Resource, asked: Resource) -> bool:
    if rule.type is ResourceType.ANY:
        return True
    if rule.type is not asked.type:
        return False
    if rule.pattern is ResourcePattern.ANY:
        return True
    if asked.pattern is ResourcePattern.ANY:
        return False
    if rule.pattern is ResourcePattern.LITERAL:
        return rule.name == asked.name
    return asked.name.startswith(rule.name)


def _rank(entry: PolicyEntry) -> tuple[int, int, bool]:
    """The smallest decides: the most specific resource; for one resource, the one that denies."""
    resource = entry.resource
    if resource.type is ResourceType.ANY:
        kind = 3
    elif resource.pattern is ResourcePattern.ANY:
        kind = 2
    else:
        kind = int(resource.pattern is ResourcePattern.PREFIXED)
    return kind, -len(resource.name), entry.decision is Decision.ALLOW
