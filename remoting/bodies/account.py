"""Users and access control lists, in requests, answers and the accounts' file.

Java counterpart: UserInfo.java and AclInfo.java of 5.3.3.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import chain
from typing import Final, TypeVar

import msgspec

from .. import fastjson
from ..errors import RemoteProtocolError
from .base import Body

STEP_SIZE: Final = 64 * 1024
"""Bytes of users or lists that are read in one step: some 2 ms."""

_BodyT = TypeVar("_BodyT", bound=Body)


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


def users_of(body: bytes) -> list[UserInfo]:
    """Read the answer to AUTH_LIST_USER (3005); no body: there are none.

    Raises: RemoteProtocolError: not an array of users.
    """
    return _items(body, UserInfo)


def acls_of(body: bytes) -> list[AclInfo]:
    """Read the answer to AUTH_LIST_ACL (3010); no body: there are none.

    Raises: RemoteProtocolError: not an array of access control lists.
    """
    return _items(body, AclInfo)


def _items(body: bytes, kind: type[_BodyT]) -> list[_BodyT]:
    if not body:
        return []
    try:
        return msgspec.json.decode(body, type=list[kind])  # type: ignore[valid-type]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    tree = fastjson.loads(body)
    if not isinstance(tree, list):
        raise RemoteProtocolError(f"not an array of {kind.__name__}")
    return [kind.from_tree(each) for each in tree]


def users_in_steps(body: bytes) -> Generator[None, None, list[UserInfo]]:
    """`users_of` in steps of a few milliseconds, and with its errors."""
    users: list[UserInfo] = []
    for part in _in_parts(body, UserInfo):
        users += part
        yield
    return users


def acls_one_by_one(body: bytes) -> Iterator[AclInfo]:
    """`acls_of` without a list of all: some are read when the first of them is wanted.

    The parts of a list that is dropped at once never reach the garbage collector, which would look
    at all objects of the process because of 10,000 of them.
    """
    return chain.from_iterable(_in_parts(body, AclInfo))


def _in_parts(body: bytes, kind: type[_BodyT]) -> Iterator[list[_BodyT]]:
    """The items of an array in lists of about STEP_SIZE bytes."""
    if len(body) <= STEP_SIZE:
        yield _items(body, kind)
        return
    fastjson.check_size(body)
    try:
        raw = msgspec.json.decode(body, type=list[msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        yield _items(body, kind)  # neither ours nor RocketMQ's broker writes such an answer
        return
    yield []
    part: list[msgspec.Raw] = []
    size = 0
    for each in raw:
        part.append(each)
        size += len(each)
        if size >= STEP_SIZE:
            yield _items(b"[" + b",".join(part) + b"]", kind)
            part, size = [], 0
    yield _items(b"[" + b",".join(part) + b"]", kind)
