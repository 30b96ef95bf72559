"""Sessions of people who logged in, in memory, and the limit of tries to log in."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from hashlib import sha256
from typing import Final, Generic, TypeVar

import msgspec

SESSIONS_MAX: Final = 1_000
"""Sessions at one time."""
ACCOUNTS_MAX: Final = 50
"""Sessions with an account of the cluster: each has connections to its servers."""
IDLE_S: Final = 8 * 3600.0
"""A session ends so long after its last request: a working day."""
TRIES_MAX: Final = 5
TRIES_TOTAL_MAX: Final = 50
"""Failed tries to log in during TRIES_S, of one address and of all: a guess of a password of eight
letters would take centuries."""
TRIES_S: Final = 60.0

T = TypeVar("T")


class _Session(msgspec.Struct, Generic[T]):
    of: T
    used_s: float


class Sessions(Generic[T]):
    """Sessions by a secret that only the browser has; here is its digest.

    Args:
      now_s: a monotonic clock, in seconds.
      limit: sessions at one time; the one that was used longest ago makes room.
      on_end: called with what a session was begun with when it ends, for whatever reason.
    """

    def __init__(
        self,
        now_s: Callable[[], float],
        limit: int = SESSIONS_MAX,
        on_end: Callable[[T], None] = lambda of: None,
    ) -> None:
        self._now_s = now_s
        self._limit = limit
        self._on_end = on_end
        self._sessions: dict[bytes, _Session[T]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, of: T) -> str:
        """Begin a session; returns its secret."""
        self.expire()
        if len(self._sessions) >= self._limit:
            self._remove(next(iter(self._sessions)))
        secret = secrets.token_urlsafe(32)
        self._sessions[_digest(secret)] = _Session(of, self._now_s())
        return secret

    def find(self, secret: str) -> T | None:
        """What a session was begun with; None: there is none, or it has ended."""
        self.expire()
        key = _digest(secret)
        session = self._sessions.pop(key, None)
        if session is None:
            return None
        session.used_s = self._now_s()
        self._sessions[key] = session  # behind all others: the next to end is in front
        return session.of

    def end(self, secret: str) -> None:
        """End a session, if there is one."""
        self._remove(_digest(secret))

    def expire(self) -> None:
        """End the sessions that were not used for IDLE_S."""
        oldest_s = self._now_s() - IDLE_S
        for key, session in list(self._sessions.items()):
            if session.used_s >= oldest_s:
                return
            self._remove(key)

    def _remove(self, key: bytes) -> None:
        session = self._sessions.pop(key, None)
        if session is not None:
            self._on_end(session.of)


def _digest(secret: str) -> bytes:
    return sha256(secret.encode("utf-8", "replace")).digest()


class Tries:
    """Failed tries to log in, of each address and of all.

    Args:
      now_s: a monotonic clock, in seconds.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._failed: list[tuple[float, str]] = []

    def wait_s(self, address: str) -> float:
        """Seconds until this address may try again; 0: now."""
        now_s = self._now_s()
        self._failed = [each for each in self._failed if each[0] > now_s - TRIES_S]
        own = [at_s for at_s, of in self._failed if of == address]
        waits = [0.0]
        if len(own) >= TRIES_MAX:
            waits.append(own[-TRIES_MAX] + TRIES_S - now_s)
        if len(self._failed) >= TRIES_TOTAL_MAX:
            waits.append(self._failed[-TRIES_TOTAL_MAX][0] + TRIES_S - now_s)
        return max(waits)

    def failed(self, address: str) -> None:
        """Note a failed try."""
        self._failed.append((self._now_s(), address))
