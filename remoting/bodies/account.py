"""Users and access control lists, in requests, answers and the accounts' file.

Java counterpart: UserInfo.java and AclInfo.java of 5.3.3.
"""

from __future__ import annotations

import msgspec

from .base import Body


class UserInfo(Body):
    """A user; in an update, a member that is None stays as it was.

    Attributes:
      password: in clear, because it is the key of signatures.
      user_type: "Super" or "Normal".
      user_status: "enable" or "disable".
    """

    username: str | None = None
    password: str | None = None
    user_type: str | None = None
    user_status: str | None = None

    def __repr__(self) -> str:
        return f"UserInfo({self.username!r}, {self.user_type!r}, {self.user_status!r})"


class PolicyEntryInfo(Body):
    """One rule of a policy.

    Attributes:
      resource: such as `Topic:orders`, `Topic:a*`, `Group:*`, `*`.
      actions: such as `Pub`.
      source_ips: addresses and ranges, such as `10.0.0.0/8`; None or empty: all.
      decision: "Allow" or "Deny".
    """

    resource: str | None = None
    actions: list[str] | None = None
    source_ips: list[str] | None = None
    decision: str | None = None


class PolicyInfo(Body):
    """The rules of one type.

    Attributes:
      policy_type: "Custom" or "Default"; None: Custom.
    """

    policy_type: str | None = None
    entries: list[PolicyEntryInfo] | None = None


class AclInfo(Body):
    """The rules for one subject.

    Attributes:
      subject: such as `User:alice`.
    """

    subject: str | None = None
    policies: list[PolicyInfo] | None = None


class AccountsInfo(Body):
    """All users and access control lists of a server: the content of the accounts' file."""

    users: list[UserInfo] = msgspec.field(default_factory=list)
    acls: list[AclInfo] = msgspec.field(default_factory=list)
