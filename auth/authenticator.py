"""Authenticator: proves by the signature that a request comes from the user that it names.

The signature covers the values of the ext fields, joined without a mark between them, and the body.
So a captured request can be sent again, even with another code or with the same text divided into
other fields; only TLS prevents that.

Java counterpart: RocketMQ 5.3.3 auth/…/DefaultAuthenticationContextBuilder.java and
DefaultAuthenticationHandler.java. Pure.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Mapping
from hmac import compare_digest
from typing import Final

from ..remoting.codec import RemotingCommand
from ..remoting.errors import RequestRefused
from ..remoting.mq_version import V4_9_3
from ..remoting.response_codes import ResponseCode
from ..remoting.signature import ACCESS_KEY, SIGNATURE, sort_names
from .model import User

NO_USERNAME: Final = "username cannot be null."
WRONG_SIGNATURE: Final = "check signature failed."

UNIQUE_KEY_FLAG: Final = "_UNIQUE_KEY_QUERY"
"""A field that clients up to 4.9.3 add after they have signed. Source: MixAll of 5.5.0."""

KEYS_MAX: Final = 10_000
"""Prepared keys that are kept, 400 bytes each: as many as there may be users."""

ORDERS_MAX: Final = 1_024
"""Sets of field names whose order is kept. A client sends a few; names are as long as a peer likes,
so sets of more than ORDER_SIZE_MAX characters are sorted each time."""

ORDER_SIZE_MAX: Final = 1_024

_BLOCK_SIZE: Final = 64  # of SHA-1
_INNER: Final = bytes(byte ^ 0x36 for byte in range(256))
_OUTER: Final = bytes(byte ^ 0x5C for byte in range(256))


class SigningKey:
    """A user's key, prepared: HMAC-SHA1 of a request then takes 0.9 us instead of 2.1 us.

    Args:
      password: encoded as UTF-8.
    """

    __slots__ = ("_inner", "_outer")

    def __init__(self, password: str) -> None:
        key = password.encode("utf-8", "replace")
        if len(key) > _BLOCK_SIZE:
            key = hashlib.sha1(key, usedforsecurity=False).digest()
        key = key.ljust(_BLOCK_SIZE, b"\0")
        self._inner = hashlib.sha1(key.translate(_INNER), usedforsecurity=False)
        self._outer = hashlib.sha1(key.translate(_OUTER), usedforsecurity=False)

    def sign(self, *content: bytes) -> bytes:
        """HMAC-SHA1 of the parts together in Base64, as `signature_of`."""
        inner, outer = self._inner.copy(), self._outer.copy()
        for part in content:
            inner.update(part)
        outer.update(inner.digest())
        return b64encode(outer.digest())


_NOBODY: Final = User("", "no user has this key")


class Authenticator:
    """Checks the signatures of requests.

    Args:
      users: user by name; read at each request.
    """

    def __init__(self, users: Mapping[str, User]) -> None:
        self._users = users
        self._keys: dict[str, SigningKey] = {}  # by password
        self._orders: dict[tuple[str, ...], tuple[str, ...]] = {}

    def authenticate(self, request: RemotingCommand) -> User:
        """The user that signed a request.

        A signature is computed for an unknown user, too, so that both refusals take as long.

        Raises: RequestRefused: NO_PERMISSION with RocketMQ's text.
        """
        fields = request.ext_fields
        name = fields.get(ACCESS_KEY)
        if not name:
            raise denied(NO_USERNAME)
        user = self._users.get(name, _NOBODY)
        is_right = self.is_signed(request, user.password)
        if user is _NOBODY:
            raise denied(f"User:{name[:_SHOWN_MAX]} is not found.")
        if not user.is_enabled:
            raise denied(f"User:{name} is disabled.")
        if not is_right:
            raise denied(WRONG_SIGNATURE)
        return user

    def is_signed(self, request: RemotingCommand, password: str) -> bool:
        """Whether a request has the signature of a password; compared in constant time."""
        fields = request.ext_fields
        signature = fields.get(SIGNATURE, "")
        content = "".join([fields[name] for name in self._order(request)])
        key = self._keys.get(password) or self._prepare(password)
        right = key.sign(content.encode("utf-8", "replace"), request.body)
        return compare_digest(right, signature.encode("utf-8", "replace"))

    def _prepare(self, password: str) -> SigningKey:
        if len(self._keys) >= KEYS_MAX:
            self._keys.clear()
        key = self._keys[password] = SigningKey(password)
        return key

    def _order(self, request: RemotingCommand) -> tuple[str, ...]:
        """The names of the signed fields, in the order of their values."""
        names = tuple(request.ext_fields)
        if UNIQUE_KEY_FLAG in request.ext_fields and request.version <= V4_9_3:
            names = tuple(name for name in names if name != UNIQUE_KEY_FLAG)
        order = self._orders.get(names)
        if order is None:
            order = tuple(name for name in sort_names(names) if name != SIGNATURE)
            if sum(map(len, names)) <= ORDER_SIZE_MAX:
                if len(self._orders) >= ORDERS_MAX:
                    self._orders.clear()
                self._orders[names] = order
        return order


_SHOWN_MAX: Final = 255  # characters of a name that no user has


def denied(text: str) -> RequestRefused:
    """The refusal of a request: code 16."""
    return RequestRefused(ResponseCode.NO_PERMISSION, text)
