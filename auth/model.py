"""Values of access control: users, resources, actions, policies.

All are frozen; a change makes a new value. Names and their spelling are RocketMQ's, as mqadmin and
the accounts' file have them. Pure.

Java counterpart: RocketMQ 5.3.3 auth/authentication/model/User.java,
auth/authorization/model/{Acl,Policy,PolicyEntry,Environment,Resource}.java,
common/resource/ResourceType.java, common/action/Action.java.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, TypeVar

USER_PREFIX: Final = "User:"
"""Begins the subject of an access control list, before the user's name."""

_N = TypeVar("_N", bound="_Named")


class _Named(Enum):
    """An enum whose values are RocketMQ's names."""

    @classmethod
    def of(cls: type[_N], name: str | None) -> _N | None:
        """The member with a name in any letter case; None if there is none."""
        if name is None:
            return None
        lower = name.lower()
        return next((each for each in cls if each.value.lower() == lower), None)


class UserType(_Named):
    """Whether a user may do everything."""

    SUPER = "Super"
    NORMAL = "Normal"


class UserStatus(_Named):
    """Whether a user's requests are accepted."""

    ENABLE = "enable"
    DISABLE = "disable"


class ResourceType(_Named):
    """What a resource is; ANY only in policies."""

    ANY = "Any"
    CLUSTER = "Cluster"
    NAMESPACE = "Namespace"
    TOPIC = "Topic"
    GROUP = "Group"


class ResourcePattern(_Named):
    """How a policy names its resources: all of a type, one, or by the beginning of their names."""

    ANY = "ANY"
    LITERAL = "LITERAL"
    PREFIXED = "PREFIXED"


class Action(_Named):
    """What is done with a resource. ALL only in policies, ANY only in needs: any action will do."""

    ALL = "All"
    ANY = "Any"
    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"


class Decision(_Named):
    """The effect of a rule."""

    ALLOW = "Allow"
    DENY = "Deny"


class PolicyType(_Named):
    """Custom rules come first; Default ones count only where no Custom one matches."""

    CUSTOM = "Custom"
    DEFAULT = "Default"


@dataclass(frozen=True, slots=True)
class User:
    """An account.

    Attributes:
      username: its AccessKey.
      password: the key of its signatures, so it cannot be stored as a hash.
    """

    username: str
    password: str = field(repr=False)
    user_type: UserType = UserType.NORMAL
    user_status: UserStatus = UserStatus.ENABLE

    @property
    def subject(self) -> str:
        """Its subject in access control lists."""
        return USER_PREFIX + self.username

    @property
    def is_super(self) -> bool:
        """Whether it may do everything."""
        return self.user_type is UserType.SUPER

    @property
    def is_enabled(self) -> bool:
        """Whether its requests are accepted."""
        return self.user_status is UserStatus.ENABLE


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource of a request (always LITERAL), or the resources of a rule.

    Attributes:
      name: the name or its beginning; "" for the pattern ANY.
    """

    type: ResourceType
    name: str = ""
    pattern: ResourcePattern = ResourcePattern.LITERAL

    @classmethod
    def parse(cls, text: str | None) -> Resource | None:
        """Read the text of a rule: `*`, `Topic:*`, `Topic:a*`, `Topic:a`.

        What follows a first `*` is dropped, as RocketMQ does.

        Returns: None if it is blank, or has no such type.
        Source: Resource.of.
        """
        if text is None or not text.strip():
            return None
        if text == "*":
            return cls(ResourceType.ANY, "", ResourcePattern.ANY)
        type_name, _, name = text.partition(":")
        resource_type = ResourceType.of(type_name)
        if resource_type is None:
            return None
        if resource_type is ResourceType.ANY or name == "*":
            return cls(resource_type, "", ResourcePattern.ANY)
        if name.endswith("*"):
            return cls(resource_type, name.partition("*")[0], ResourcePattern.PREFIXED)
        return cls(resource_type, name)

    def __str__(self) -> str:
        """The text of a rule; `parse` reads it."""
        if self.type is ResourceType.ANY:
            return "*"
        if self.pattern is ResourcePattern.ANY:
            return f"{self.type.value}:*"
        star = "*" if self.pattern is ResourcePattern.PREFIXED else ""
        return f"{self.type.value}:{self.name}{star}"


ANY_RESOURCE: Final = Resource(ResourceType.ANY, "", ResourcePattern.ANY)

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """One rule.

    Attributes:
      actions: not empty, without ANY.
      source_ips: addresses (`10.0.0.1`) and ranges (`10.0.0.0/8`) from which it counts; (): all.
    """

    resource: Resource
    actions: tuple[Action, ...]
    source_ips: tuple[str, ...] = ()
    decision: Decision = Decision.ALLOW

    def has_action(self, actions: Iterable[Action]) -> bool:
        """Whether it is about one of these actions; ANY: every rule is."""
        own = self.actions
        return Action.ALL in own or any(each is Action.ANY or each in own for each in actions)

    def has_address(self, address: Address | None) -> bool:
        """Whether it counts for requests from an address; None: unknown."""
        if not self.source_ips:
            return True
        if address is None:
            return False
        networks = map(parse_range, self.source_ips)
        return any(network is not None and address in network for network in networks)


@dataclass(frozen=True, slots=True)
class Policy:
    """The rules of one type."""

    type: PolicyType
    entries: tuple[PolicyEntry, ...]


@dataclass(frozen=True, slots=True)
class Acl:
    """An access control list: the rules for one subject.

    Attributes:
      subject: such as `User:alice`.
      policies: at most one of each type.
    """

    subject: str
    policies: tuple[Policy, ...] = ()

    def entries(self, policy_type: PolicyType) -> tuple[PolicyEntry, ...]:
        """The rules of a type; () if there are none."""
        return next((each.entries for each in self.policies if each.type is policy_type), ())


def parse_subject(text: str | None) -> str | None:
    """A subject in its one spelling; None: it is not a user's."""
    kind, _, name = (text or "").partition(":")
    return USER_PREFIX + name if kind.lower() == "user" and name.strip() else None


@lru_cache(maxsize=4_096)
def parse_range(text: str) -> Network | None:
    """The addresses of a rule's address or range; None: it is neither."""
    try:
        network = ip_network(text, strict=False)
    except ValueError:
        return None
    has_netmask = "." in text.partition("/")[2]  # 10.0.0.0/255.0.0.0 is Python's, not RocketMQ's
    return None if has_netmask else network


def parse_address(text: str) -> Address | None:
    """An address; an IPv4 address in IPv6 form becomes IPv4. None: it is no address."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address
