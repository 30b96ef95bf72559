"""Accounts of ACL 1.0, in requests, answers and the files plain_acl.yml.

Java counterpart: common/PlainAccessConfig.java and GetBrokerClusterAclConfigResponseBody.java of
4.9.7, acl/plain/PlainAccessData.java of 5.3.2.
"""

from __future__ import annotations

import msgspec

from .base import Body
from .fields import Version


class PlainAccessConfig(Body):
    """One account, as its file spells it; None: not given.

    Attributes:
      access_key: its name, more than 6 characters.
      secret_key: the key of its signatures, more than 6 characters.
      white_remote_address: from these addresses no signature is needed, see `auth.remote_address`.
      admin: whether it may administer the broker.
      default_topic_perm, default_group_perm: DENY, PUB, SUB or PUB|SUB, for topics and groups that
        are not listed; None: DENY.
      topic_perms, group_perms: `name=PUB|SUB` each.
    """

    access_key: str | None = None
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: list[str] | None = None
    group_perms: list[str] | None = None

    def __repr__(self) -> str:
        return f"PlainAccessConfig({self.access_key!r}, admin={self.admin})"


class PlainAclVersion(Body):
    """The version of a file: how often requests changed it, and when last (ms since 1970)."""

    counter: Version = 0
    timestamp: Version = 0


class GetBrokerClusterAclConfigResponseBody(Body):
    """Answer to GET_BROKER_CLUSTER_ACL_CONFIG (54): all accounts and global white lists.

    Attributes:
      plain_access_configs: with secrets only for who may see them.
    """

    global_white_addrs: list[str] = msgspec.field(default_factory=list)
    plain_access_configs: list[PlainAccessConfig] = msgspec.field(default_factory=list)
