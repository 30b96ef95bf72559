"""The password file: people, their roles, and hashes of their passwords.

A line is `name:role:hash`; empty lines and lines that begin with # are left out. The hash is
scrypt's (RFC 7914), as `scrypt$N$r$p$salt$key` in base64.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
from pathlib import Path
from typing import Final, NamedTuple

from ..client import ConfigurationError
from .roles import ROLE_NAMES, Person, Role

FILE_SIZE_MAX: Final = 1 << 20
PASSWORD_SIZE_MAX: Final = 1_024
_N, _R, _P = 1 << 14, 8, 1
"""16 MiB and some 50 ms for a try. Source: RFC 7914, section 2, for interactive log-ins."""
_COST_MAX: Final = 1 << 20
"""Of N * r in a file: 128 MiB."""


class _Hash(NamedTuple):
    n: int
    r: int
    p: int
    salt: bytes
    key: bytes

    def of(self, password: str) -> bytes:
        raw = password.encode("utf-8", "replace")[:PASSWORD_SIZE_MAX]
        return hashlib.scrypt(
            raw, salt=self.salt, n=self.n, r=self.r, p=self.p, maxmem=1 << 28, dklen=32
        )

    @property
    def text(self) -> str:
        salt, key = (base64.b64encode(each).decode() for each in (self.salt, self.key))
        return f"scrypt${self.n}${self.r}${self.p}${salt}${key}"


def hash_password(password: str) -> str:
    """The hash of a password, for a line of the file."""
    salted = _Hash(_N, _R, _P, os.urandom(16), b"")
    return salted._replace(key=salted.of(password)).text


_NO_ONE: Final = _Hash(_N, _R, _P, b"0" * 16, b"0" * 32)
"""For a name that is not in the file: a try takes as long as with one that is."""


class Passwords:
    """The people of a password file.

    Raises: ConfigurationError: a line is wrong, or the file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._people: dict[str, tuple[Role, _Hash]] = {}
        try:
            if path.stat().st_size > FILE_SIZE_MAX:
                raise ConfigurationError(f"{path}: larger than {FILE_SIZE_MAX} bytes")
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"{path}: the password file cannot be read: {error}") from None
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip() and not line.startswith("#"):
                name, role, hashed = _read_line(line, f"{path}, line {number}")
                if name in self._people:
                    raise ConfigurationError(f"{path}, line {number}: {name} is there twice")
                self._people[name] = role, hashed

    def log_in(self, name: str, password: str) -> Person | None:
        """The person with this name and password; None: wrong. Takes some 50 ms."""
        role, hashed = self._people.get(name, (Role.LOOK, _NO_ONE))
        is_right = hmac.compare_digest(hashed.of(password), hashed.key)
        return Person(name, role) if is_right and name in self._people else None


def _read_line(line: str, where: str) -> tuple[str, Role, _Hash]:
    parts = line.strip().split(":")
    if len(parts) != 3 or not parts[0]:
        raise ConfigurationError(f"{where}: it must be name:role:hash")
    name, role, text = parts
    if role not in ROLE_NAMES:
        raise ConfigurationError(f"{where}: {role!r} is no role; there are {', '.join(ROLE_NAMES)}")
    fields = text.split("$")
    try:
        kind, n, r, p, salt, key = fields
        hashed = _Hash(
            int(n), int(r), int(p), base64.b64decode(salt, validate=True),
            base64.b64decode(key, validate=True),
        )  # fmt: skip
    except (ValueError, binascii.Error):
        kind, hashed = "", _NO_ONE
    is_power = hashed.n > 1 and hashed.n & (hashed.n - 1) == 0
    if (
        kind != "scrypt"
        or not is_power
        or hashed.r < 1
        or hashed.p != 1
        or hashed.n * hashed.r > _COST_MAX
        or len(hashed.key) != 32
    ):
        raise ConfigurationError(
            f"{where}: the hash is none of `trocket console password`, which makes such lines"
        )
    return name, ROLE_NAMES[role], hashed
