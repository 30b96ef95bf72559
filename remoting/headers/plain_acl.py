"""Headers for the accounts of ACL 1.0.

Java requires some of the fields and does not check them, so brokers answer with a string about
null: here they may be missing, too.

Java counterpart: CreateAccessConfigRequestHeader.java, DeleteAccessConfigRequestHeader.java,
GetBrokerAclConfigResponseHeader.java and UpdateGlobalWhiteAddrsConfigRequestHeader.java of 4.9.7
common/protocol/header.
"""

from __future__ import annotations

from .base import Header


class CreateAccessConfigRequestHeader(Header, frozen=True, kw_only=True):
    """Request of UPDATE_AND_CREATE_ACL_CONFIG (50); see `PlainAccessConfig`.

    Attributes:
      admin: None: false.
      topic_perms, group_perms: `name=PUB|SUB,name=DENY`.
    """

    access_key: str | None = None
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool | None = None
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: str | None = None
    group_perms: str | None = None

    def __repr__(self) -> str:
        return f"CreateAccessConfigRequestHeader({self.access_key!r})"


class DeleteAccessConfigRequestHeader(Header, frozen=True, kw_only=True):
    """Request of DELETE_ACL_CONFIG (51)."""

    access_key: str | None = None


class GetBrokerAclConfigResponseHeader(Header, frozen=True, kw_only=True):
    """Answer to GET_BROKER_CLUSTER_ACL_INFO (52).

    Attributes:
      version: PlainAclVersion of the main file as JSON.
      all_acl_file_version: PlainAclVersion by path, of all files, as JSON.
    """

    version: str
    all_acl_file_version: str | None = None
    broker_name: str
    broker_addr: str
    cluster_name: str


class UpdateGlobalWhiteAddrsConfigRequestHeader(Header, frozen=True, kw_only=True):
    """Request of UPDATE_GLOBAL_WHITE_ADDRS_CONFIG (53).

    Attributes:
      global_white_addrs: addresses with commas between.
      acl_file_full_path: the file that has them; None or "": the main one.
    """

    global_white_addrs: str | None = None
    acl_file_full_path: str | None = None
