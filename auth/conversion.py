"""Conversion between the values of access control and their JSON bodies.

The refusals have RocketMQ's wording. Pure.

Java counterpart: RocketMQ 5.3.3 broker/auth/converter/{AclConverter,UserConverter}.java, validate
of auth/authorization/manager/AuthorizationMetadataManagerImpl.java.
"""

from __future__ import annotations

import unicodedata
from typing import Final, NoReturn

from ..common.topic_validator import has_allowed_characters
from ..remoting.bodies import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from ..remoting.errors import RequestRefused
from ..remoting.response_codes import ResponseCode
from .model import (
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
    parse_range,
    parse_subject,
)

NAME_SIZE_MAX: Final = 255
"""Characters of a user's name."""

PASSWORD_SIZE_MAX: Final = 1_024
"""Characters of a password."""

PASSWORD_SIZE_ADVISED: Final = 7
"""Characters below which a new password is warned of: RocketMQ's ACL 1.0 refused fewer."""

SOURCE_IPS_MAX: Final = 256
"""Addresses and ranges of one rule."""


def user_info(user: User) -> UserInfo:
    """The body of a user, with its password."""
    return UserInfo(user.username, user.password, user.user_type.value, user.user_status.value)


def acl_info(acl: Acl) -> AclInfo:
    """The body of an access control list."""
    return AclInfo(
        acl.subject,
        [
            PolicyInfo(policy.type.value, [entry_info(each) for each in policy.entries])
            for policy in acl.policies
        ],
    )


def entry_info(entry: PolicyEntry) -> PolicyEntryInfo:
    """The body of a rule."""
    return PolicyEntryInfo(
        str(entry.resource),
        [each.value for each in entry.actions],
        list(entry.source_ips) or None,
        entry.decision.value,
    )


def user_of(info: UserInfo) -> User:
    """A new user.

    Raises: RequestRefused: NO_PERMISSION if its name or password is blank.
    """
    if not (info.username or "").strip():
        refuse("username can not be blank")
    if not (info.password or "").strip():
        refuse("password can not be blank")
    return User(
        info.username or "",
        info.password or "",
        UserType.of(info.user_type) or UserType.NORMAL,
        UserStatus.of(info.user_status) or UserStatus.ENABLE,
    )


def acl_of(info: AclInfo) -> Acl:
    """An access control list; policies of one type are joined.

    Raises: RequestRefused: NO_PERMISSION if it is not complete, or a value is unknown.
    """
    subject = parse_subject(info.subject)
    if subject is None:
        refuse("The subject type is null.")
    if not info.policies:
        refuse("The policies is empty.")
    entries: dict[PolicyType, list[PolicyEntry]] = {}
    for policy in info.policies:
        if not policy.entries:
            refuse("The policy entries is empty.")
        policy_type = PolicyType.of(policy.policy_type) or PolicyType.CUSTOM
        entries.setdefault(policy_type, []).extend(map(_entry_of, policy.entries))
    return Acl(subject, tuple(Policy(each, tuple(found)) for each, found in entries.items()))


def _entry_of(info: PolicyEntryInfo) -> PolicyEntry:
    resource = Resource.parse(info.resource)
    if resource is None:
        refuse("The resource is null.")
    actions: list[Action] = []
    for name in info.actions or ():
        action = Action.of(name)
        if action is None:
            refuse(f"The action is unknown: {name[:64]!r}.")
        if action not in actions:
            actions.append(action)
    if not actions:
        refuse("The actions is empty.")
    if Action.ANY in actions:
        refuse("The actions can not be Any.")
    source_ips = tuple(info.source_ips or ())
    for source_ip in source_ips:
        if not source_ip.strip():
            refuse("The source ip is empty.")
        if parse_range(source_ip) is None:
            refuse("The source ip is invalid.")
    if len(source_ips) > SOURCE_IPS_MAX:
        refuse(f"{len(source_ips)} source ips; the limit is {SOURCE_IPS_MAX}.")
    decision = Decision.of(info.decision)
    if decision is None:
        refuse("The decision is null or illegal.")
    return PolicyEntry(resource, tuple(actions), source_ips, decision)


def refuse(text: str) -> NoReturn:
    """Refuse a change of accounts as RocketMQ does: code 16."""
    raise RequestRefused(ResponseCode.NO_PERMISSION, text)


def check_user(user: User) -> None:
    """Raises: RequestRefused: a value is blank, too long, or cannot be saved."""
    for what, value, size_max in (
        ("username", user.username, NAME_SIZE_MAX),
        ("password", user.password, PASSWORD_SIZE_MAX),
    ):
        if not value.strip():
            refuse(f"{what} can not be blank")
        if len(value) > size_max:
            refuse(f"the {what} has {len(value)} characters, the limit is {size_max}")
        if any("\ud800" <= character <= "\udfff" for character in value):
            refuse(f"the {what} has half of a surrogate pair")


def check_new_name(username: str) -> None:
    """Refuse the name of a new user that would break lines of logs and lists.

    Names of a file or a master are not asked, so that their users still come in.

    Raises: RequestRefused: it has a control character.
    """
    found = next((each for each in username if unicodedata.category(each) in _LINE_BREAKERS), None)
    if found is not None:
        refuse(f"the username has the control character U+{ord(found):04X}")


_LINE_BREAKERS: Final = frozenset({"Cc", "Zl", "Zp"})
"""Control characters, and separators of lines and paragraphs."""


def why_unmatched(resource: Resource) -> str:
    """Why a rule for a resource can match no request; "": it can."""
    if resource.type is ResourceType.NAMESPACE:
        return "no request needs a right to a namespace"
    if resource.pattern is ResourcePattern.ANY or resource.type is ResourceType.ANY:
        return ""
    if not resource.name and resource.pattern is ResourcePattern.LITERAL:
        return "it has no name"
    if resource.type is ResourceType.CLUSTER:
        return ""
    if "*" in resource.name:
        return "a * stands for other characters only at the end"
    if not has_allowed_characters(resource.name):
        return f"the name of a {resource.type.value.lower()} has only letters, digits and _-%|"
    return ""
