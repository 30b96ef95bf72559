"""AccountsCopy: keeps a table of accounts equal to another server's.

A slave copies its master's accounts, and a filter server its broker's. They ask as administrators
do (3005, 3010), so the other server may be Apache's, too; ours tells passwords to super users only,
and answers nothing more if the accounts of the last copy are unchanged. (Apache's servers copy no
accounts.)

Pure, but for the `ask` it is given.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from ..common.steps import in_steps
from ..remoting.bodies import UserInfo, acls_one_by_one, users_in_steps
from ..remoting.codec import RemotingCommand
from ..remoting.errors import RemoteProtocolError, RequestRefused
from ..remoting.headers import (
    AccountsResponseHeader,
    ListAclsRequestHeader,
    ListUsersRequestHeader,
    decode,
    encode_header,
)
from ..remoting.request_codes import RequestCode
from ..remoting.response_codes import ResponseCode
from .accounts import Accounts

logger = logging.getLogger(__name__)

ACCOUNTS_TRIES_MAX: Final = 3
"""Readings of the accounts while they change; the next round tries again."""

_NO_ACCOUNTS: Final = (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ResponseCode.SYSTEM_ERROR)
"""The answers of servers without accounts: of 4.x, and of others where they are off."""

Ask = Callable[[RemotingCommand], Awaitable[RemotingCommand]]
"""Sends a signed request. Raises: RemotingError; RequestRefused: the answer is no success."""


class _Found(NamedTuple):
    """Another server's users and access control lists.

    Attributes:
      version: of them; "": the server does not tell, because it is Apache's.
      users: all of them; None: the accounts are those of the version that was asked with.
      acls: all of them, as an array.
    """

    version: str
    users: list[UserInfo] | None = None
    acls: bytes = b""


class AccountsCopy:
    """Copies accounts. Owned by the task that calls `update`.

    Args:
      accounts: the copy.
      source: the other server in words, such as "the master".
    """

    def __init__(self, accounts: Accounts, source: str) -> None:
        self._accounts = accounts
        self._source = source
        self._copied = (-1, "")  # versions here and there after the last copy

    async def update(self, ask: Ask) -> bool:
        """Make the table that of the other server, if either has changed.

        Returns: false if the other server has no accounts, or is of a version without them; nothing
          is changed then.
        Raises:
          RequestRefused: NO_PERMISSION if this server's account is not a super user there.
          RemotingError: it cannot be reached, its answer cannot be read, or the accounts change at
            every reading.
          ValueError: a value cannot be right.
        """
        here, there = self._copied
        # After a change here, such as mqadmin's, they are copied again.
        found = await self._read(ask, there if here == self._accounts.version else "")
        if found is None:
            return False
        if found.users is None:
            return True
        if await in_steps(self._accounts.replace(found.users, acls_one_by_one(found.acls))):
            logger.info(
                "%(users)d users of %(source)s and their access control lists were copied",
                {"source": self._source, "users": len(found.users)},
            )
        self._copied = (self._accounts.version, found.version)
        return True

    async def _read(self, ask: Ask, known_version: str) -> _Found | None:
        """The accounts there; None if there are none."""
        for _ in range(ACCOUNTS_TRIES_MAX):
            header = ListUsersRequestHeader(accounts_version=known_version)
            code = RequestCode.AUTH_LIST_USER
            try:
                answer = await ask(RemotingCommand(code, encode_header(header)))
            except RequestRefused as refusal:
                if refusal.code in _NO_ACCOUNTS:
                    return None
                raise
            version = _version_of(answer)
            if version and version == known_version:
                return _Found(version)
            users = await in_steps(users_in_steps(answer.body))
            if not users or not all(user.password for user in users):
                raise RequestRefused(
                    ResponseCode.NO_PERMISSION,
                    f"{self._source} does not tell its users' passwords: make the account of "
                    f"innerClientAuthenticationCredentials a super user of {self._source}",
                )
            asked = ListAclsRequestHeader(accounts_version=version)
            code = RequestCode.AUTH_LIST_ACL
            answer = await ask(RemotingCommand(code, encode_header(asked)))
            if _version_of(answer) == version:
                return _Found(version, users, answer.body)
        raise RemoteProtocolError("the accounts change at every reading")


def _version_of(answer: RemotingCommand) -> str:
    return decode(AccountsResponseHeader, answer.ext_fields).accounts_version or ""
