"""Log-in by a token, a password, an account of the cluster, or the header of a trusted proxy."""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable
from functools import partial
from typing import Final

import anyio
import msgspec
from starlette.requests import Request

from .accounts import Accounts, OpenAccount
from .errors import PageError
from .passwords import Passwords
from .roles import ROLE_NAMES, Person, Role
from .sessions import ACCOUNTS_MAX, SESSIONS_MAX, Sessions, Tries
from .settings import ConsoleSettings

COOKIE: Final = "trocket_console"
NAME_SIZE_MAX: Final = 256
"""Characters of a person's name."""
EXPIRE_S: Final = 60.0
"""Between two looks for sessions that have ended."""


AT_ONCE: Final = 4
"""Tries that are checked at one time: no more than these can go beyond the limit of tries."""


class Session(msgspec.Struct, frozen=True):
    """Someone who is logged in.

    Attributes:
      opened: the person's account of the cluster; None: it is the console's own.
    """

    person: Person
    opened: OpenAccount | None = None


class Logins:
    """Who people are, by their sessions.

    Without a password file and without a trusted proxy, the token of this start is the password of
    the one person there is: it is printed at the start of the console.

    Args:
      accounts: opens accounts of the cluster; None: people do not log in with them.

    Attributes:
      token: "": there is none.
    """

    def __init__(
        self,
        settings: ConsoleSettings,
        accounts: Accounts | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._accounts = accounts
        limit = SESSIONS_MAX if accounts is None else ACCOUNTS_MAX
        self._sessions: Sessions[Session] = Sessions(now_s, limit, _close)
        self._tries = Tries(now_s)
        self._passwords = Passwords(settings.passwords) if settings.passwords else None
        has_other = (
            self._passwords is not None or bool(settings.trusted_header) or accounts is not None
        )
        self.token = "" if has_other else secrets.token_urlsafe(24)
        self._hashing = anyio.CapacityLimiter(1)  # of 16 MiB and 50 ms each
        self._checking = anyio.CapacityLimiter(AT_ONCE)

    @property
    def has_passwords(self) -> bool:
        """Whether people log in with a name and a password."""
        return self._passwords is not None

    @property
    def has_accounts(self) -> bool:
        """Whether people log in with accounts of the cluster."""
        return self._accounts is not None

    def session_of(self, request: Request) -> Session | None:
        """Who sends a request; None: they must log in."""
        settings = self._settings
        peer = request.client.host if request.client else ""
        if settings.trusted_header and peer in settings.trusted_proxies:
            name = request.headers.get(settings.trusted_header, "")[:NAME_SIZE_MAX]
            if name:
                return Session(Person(name, ROLE_NAMES[settings.trusted_role]))
        return self._sessions.find(request.cookies.get(COOKIE, ""))

    async def log_in(self, request: Request, name: str, secret: str) -> str:
        """Begin a session; returns its secret.

        Args:
          name: "" with the token; of an account, its access key.

        Raises: PageError: the secret is wrong, or there were too many tries. ClientError: no server
          of the cluster answers.
        """
        peer = request.client.host if request.client else ""
        async with self._checking:
            wait_s = self._tries.wait_s(peer)
            if wait_s > 0:
                raise PageError(429, "too_many_tries", seconds=round(wait_s) + 1)
            session = await self._session(name, secret)
            if session is None:
                self._tries.failed(peer)
                raise PageError(403, "wrong_login")
        return self._sessions.begin(session)

    async def _session(self, name: str, secret: str) -> Session | None:
        if self._accounts is None:
            person = await self._person(name, secret)
            return None if person is None else Session(person)
        name = name.strip()[:NAME_SIZE_MAX]
        opened = await self._accounts.open(name, secret[:NAME_SIZE_MAX])
        if opened is None:
            return None
        return Session(Person(name, Role.ADMINISTER, is_account=True), opened)

    async def _person(self, name: str, secret: str) -> Person | None:
        if self.token:
            is_right = hmac.compare_digest(secret.encode("utf-8", "replace"), self.token.encode())
            return Person("token", Role.ADMINISTER) if is_right else None
        if self._passwords is None:
            return None
        check = partial(self._passwords.log_in, name[:NAME_SIZE_MAX], secret)
        return await anyio.to_thread.run_sync(check, limiter=self._hashing)

    def log_out(self, request: Request) -> None:
        """End the session of a request."""
        self._sessions.end(request.cookies.get(COOKIE, ""))

    async def run(self) -> None:
        """End sessions that were not used for long, until it is cancelled."""
        while True:
            await anyio.sleep(EXPIRE_S)
            self._sessions.expire()


def _close(session: Session) -> None:
    if session.opened is not None:
        session.opened.close()
