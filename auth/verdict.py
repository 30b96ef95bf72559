"""Verdict: why a user may do something or not, for people.

The decision is the one that servers make (`Authorizer`); here it comes with the entry that decides.
Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from .authorizer import EntryIndex
from .model import (
    Acl,
    Action,
    Address,
    Decision,
    PolicyEntry,
    PolicyType,
    Resource,
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
        of_type = () if acl is None else acl.entries(policy_type)
        entries += len(of_type)
        decisive = EntryIndex(of_type).decisive(asked, (action,), address)
        if decisive is not None:
            is_allowed = decisive.decision is Decision.ALLOW
            verb = "allows" if is_allowed else "denies"
            text = f"the {policy_type.value} entry for {decisive.resource} {verb} it"
            return Verdict(is_allowed, text, policy_type, decisive)
    why = f"none of its {entries} entries matches" if entries else "it has no policies"
    return Verdict(False, why)
