"""AccessConfig: RocketMQ's keys of access control, which broker and name server share.

RocketMQ's name server has none of them. Pure.

Java counterpart: auth/config/AuthConfig.java of 5.5.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from ..common.config import ConfigError, setting
from ..remoting.errors import RequestRefused
from ..remoting.signature import Credentials
from .access_control import Rules
from .accounts import check_user
from .model import User

GUARDED: Final = "decides who may do what"

_AUTHENTICATION: Final = "org.apache.rocketmq.auth.authentication"
_AUTHORIZATION: Final = "org.apache.rocketmq.auth.authorization"
_PROVIDERS: Final[Mapping[str, tuple[str, ...]]] = {
    "authentication_provider": (f"{_AUTHENTICATION}.provider.DefaultAuthenticationProvider",),
    "authentication_metadata_provider": (
        f"{_AUTHENTICATION}.provider.LocalAuthenticationMetadataProvider",
    ),
    "authentication_strategy": (
        f"{_AUTHENTICATION}.strategy.StatelessAuthenticationStrategy",
        f"{_AUTHENTICATION}.strategy.StatefulAuthenticationStrategy",
    ),
    "authorization_provider": (f"{_AUTHORIZATION}.provider.DefaultAuthorizationProvider",),
    "authorization_metadata_provider": (
        f"{_AUTHORIZATION}.provider.LocalAuthorizationMetadataProvider",
    ),
    "authorization_strategy": (
        f"{_AUTHORIZATION}.strategy.StatelessAuthorizationStrategy",
        f"{_AUTHORIZATION}.strategy.StatefulAuthorizationStrategy",
    ),
}
"""The Java classes that each key may name. They have no effect: ours does what the default ones do,
and checks every request, whatever the strategy."""


def _access(default: Any, *, secret: bool = False) -> Any:
    return setting(default, guarded=GUARDED, secret=secret)


@dataclass
class AccessConfig:
    """The keys of access control of one server.

    Attributes:
      authentication_enabled: whether each request must have the signature of a user.
      authorization_enabled: whether users that are not super users need rights; needs
        authenticationEnabled.
      authentication_whitelist, authorization_whitelist: request codes, `105,38`, that are not
        checked. RocketMQ authorizes a request of a code that is not authenticated by the name that
        it states, which anyone can state; here a code must be in both lists to be open.
      init_authentication_user: a super user that is created at the start if there is none of its
        name: `{"username":"...","password":"..."}`.
      inner_client_authentication_credentials: the account with which this server signs its own
        requests to name servers, masters and other brokers; created likewise:
        `{"accessKey":"...","secretKey":"..."}`.
      authentication_provider, authentication_metadata_provider, authentication_strategy,
        authorization_provider, authorization_metadata_provider, authorization_strategy: Java
        classes; RocketMQ's own are accepted, others are refused.
    """

    __slots__ = ()

    authentication_enabled: bool = _access(False)
    authorization_enabled: bool = _access(False)
    authentication_whitelist: str = _access("")
    authorization_whitelist: str = _access("")
    init_authentication_user: str = _access("", secret=True)
    inner_client_authentication_credentials: str = _access("", secret=True)
    authentication_provider: str = _access("")
    authentication_metadata_provider: str = _access("")
    authentication_strategy: str = _access("")
    authorization_provider: str = _access("")
    authorization_metadata_provider: str = _access("")
    authorization_strategy: str = _access("")

    @property
    def has_accounts(self) -> bool:
        """Whether each request must have the signature of an account."""
        return self.authentication_enabled


@dataclass(frozen=True, slots=True)
class Access:
    """The settings of `AccessConfig`, read.

    Attributes:
      is_enabled: whether requests are checked at all.
      init_user: name and password of the first super user; None: none is created.
      inner: the account for the server's own requests; None: it does not sign them.
    """

    is_enabled: bool
    rules: Rules
    init_user: Credentials | None
    inner: Credentials | None

    @property
    def super_users(self) -> tuple[Credentials, ...]:
        """The accounts that must exist."""
        return tuple(each for each in (self.init_user, self.inner) if each is not None)


class _InitUser(msgspec.Struct, rename="camel"):
    username: str = ""
    password: str = ""


class _InnerClient(msgspec.Struct, rename="camel"):
    access_key: str = ""
    secret_key: str = ""
    security_token: str | None = None


def read_access(config: AccessConfig) -> Access:
    """The settings of a configuration.

    Raises: ConfigError: a value is malformed, or values contradict each other; the text names the
      key and never a secret.
    """
    if config.authorization_enabled and not config.authentication_enabled:
        raise ConfigError(
            "authorizationEnabled=true needs authenticationEnabled=true: without it everyone could "
            "state the name of a super user"
        )
    for field, accepted in _PROVIDERS.items():
        value = getattr(config, field).strip()
        if value and value not in accepted:
            raise ConfigError(
                f"{_key(field)}: {value[:200]!r} is not there; leave the key out, or set "
                f"{' or '.join(accepted)}"
            )
    return Access(
        config.authentication_enabled,
        Rules(
            config.authorization_enabled,
            _codes(config, "authentication_whitelist"),
            _codes(config, "authorization_whitelist"),
        ),
        _init_user(config),
        _inner(config),
    )


def _codes(config: AccessConfig, field: str) -> frozenset[int]:
    codes: set[int] = set()
    for name in filter(None, map(str.strip, getattr(config, field).split(","))):
        if name.isascii() and name.isdecimal() and len(name) < 10:
            codes.add(int(name))
        elif "." not in name:  # a method of gRPC has a dot
            raise ConfigError(f"{_key(field)}: {name[:100]!r} is not a request code, such as 105")
    return frozenset(codes)


def _init_user(config: AccessConfig) -> Credentials | None:
    if not config.init_authentication_user.strip():
        return None
    found = _read(config, "init_authentication_user", _InitUser, ("username", "password"))
    return _checked("init_authentication_user", found.username, found.password)


def _inner(config: AccessConfig) -> Credentials | None:
    if not config.inner_client_authentication_credentials.strip():
        return None
    field = "inner_client_authentication_credentials"
    found = _read(config, field, _InnerClient, ("access_key", "secret_key"))
    return _checked(field, found.access_key, found.secret_key, found.security_token)


def _checked(field: str, name: str, password: str, token: str | None = None) -> Credentials:
    try:
        check_user(User(name, password))
    except RequestRefused as refusal:
        raise ConfigError(f"{_key(field)}: {refusal.remark}") from refusal
    return Credentials(name, password, token)


def _read(config: AccessConfig, field: str, kind: Any, needed: tuple[str, ...]) -> Any:
    """The value of a key that holds JSON with secrets."""
    form = "{" + ",".join(f'"{_key(name)}":"..."' for name in needed) + "}"
    try:
        found = msgspec.json.decode(getattr(config, field), type=kind)
    except (msgspec.DecodeError, UnicodeError):
        found = None
    if found is None or not all(getattr(found, name).strip() for name in needed):
        # Without the error's own text, which may quote the value.
        raise ConfigError(f"{_key(field)} must have the form {form}, with both values")
    return found


def _key(field: str) -> str:
    first, *rest = field.split("_")
    return first + "".join(word.capitalize() for word in rest)
