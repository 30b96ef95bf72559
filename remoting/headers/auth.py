"""Headers of the requests about users and access control lists, 3001 to 3010.

RocketMQ declares every field optional; its processors check them.

Source: RocketMQ 5.3.3 remoting/protocol/header/CreateUserRequestHeader.java,
ListUsersRequestHeader.java, CreateAclRequestHeader.java, DeleteAclRequestHeader.java,
ListAclsRequestHeader.java and the like.
"""

from __future__ import annotations

from .base import Header


class UserRequestHeader(Header, frozen=True, kw_only=True):
    """Request of AUTH_CREATE_USER (3001), AUTH_UPDATE_USER (3002), AUTH_DELETE_USER (3003) and
    AUTH_GET_USER (3004).
    """

    username: str | None = None


class ListUsersRequestHeader(Header, frozen=True, kw_only=True):
    """Request of AUTH_LIST_USER (3005).

    Attributes:
      filter: a part of the names to list; None or blank: all.
      accounts_version: not in RocketMQ, of a slave: the version of the accounts that it has, or "";
        None: not asked. The answer to a super user has the version, and no body if it is the same.
    """

    filter: str | None = None
    accounts_version: str | None = None


class AclRequestHeader(Header, frozen=True, kw_only=True):
    """Request of AUTH_CREATE_ACL (3006), AUTH_UPDATE_ACL (3007) and AUTH_GET_ACL (3009).

    Attributes:
      subject: whose policies, such as "User:alice".
    """

    subject: str | None = None


class DeleteAclRequestHeader(Header, frozen=True, kw_only=True):
    """Request of AUTH_DELETE_ACL (3008).

    Attributes:
      subject: whose policies, such as "User:alice".
      policy_type: "Custom" or "Default"; None: Custom.
      resource: the entry to delete, such as "Topic:a*"; None or blank: all of the subject's.
    """

    subject: str | None = None
    policy_type: str | None = None
    resource: str | None = None


class ListAclsRequestHeader(Header, frozen=True, kw_only=True):
    """Request of AUTH_LIST_ACL (3010).

    Attributes:
      subject_filter: a part of the subjects to list; None or blank: all.
      resource_filter: a part of the resources whose entries to list; None or blank: all.
      accounts_version: see ListUsersRequestHeader; the answer has the version, and the lists.
    """

    subject_filter: str | None = None
    resource_filter: str | None = None
    accounts_version: str | None = None


class AccountsResponseHeader(Header, frozen=True, kw_only=True):
    """Answer to AUTH_LIST_USER (3005) and AUTH_LIST_ACL (3010). Not in RocketMQ.

    Attributes:
      accounts_version: of all users and access control lists, a string that every change and
        every start changes; None: not asked, or not a super user.
    """

    accounts_version: str | None = None
