"""AccessConfig: RocketMQ's keys of access control, which broker and name server share.

RocketMQ's name server has none of them. Pure.

Java counterpart: auth/config/AuthConfig.java of 5.5.0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import msgspec

from ..common.config import ConfigError, setting
from ..remoting.errors import RequestRefused
from ..remoting.signature import Credentials
from .conversion import check_user
from .model import User
from .rules import Rules

GUARDED: Final = "decides who may do what"

_AUTHENTICATION: Final = "org.apache.rocketmq.auth.authentication"
_AUTHORIZATION: Final = "org.apache.rocketmq.auth.authorization"
_T = TypeVar("_T")


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
    def own(self) -> Credentials | None:
        """The account for requests of the server's operator: the inner one, or the first user."""
        return self.inner or self.init_user

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

    Raises: ConfigError: a value is malformed, or values contradict each other; the message names
      the key and never a secret.
    """
    if config.authorization_enabled and not config.authentication_enabled:
        raise ConfigError(
            "authorizationEnabled=true needs authenticationEnabled=true: without it everyone could "
            "state the name of a super user"
        )
    for key, value, accepted in (
        (
            "authenticationProvider",
            config.authentication_provider,
            (f"{_AUTHENTICATION}.provider.DefaultAuthenticationProvider",),
        ),
        (
            "authenticationMetadataProvider",
            config.authentication_metadata_provider,
            (f"{_AUTHENTICATION}.provider.LocalAuthenticationMetadataProvider",),
        ),
        (
            "authenticationStrategy",
            config.authentication_strategy,
            (
                f"{_AUTHENTICATION}.strategy.StatelessAuthenticationStrategy",
                f"{_AUTHENTICATION}.strategy.StatefulAuthenticationStrategy",
            ),
        ),
        (
            "authorizationProvider",
            config.authorization_provider,
            (f"{_AUTHORIZATION}.provider.DefaultAuthorizationProvider",),
        ),
        (
            "authorizationMetadataProvider",
            config.authorization_metadata_provider,
            (f"{_AUTHORIZATION}.provider.LocalAuthorizationMetadataProvider",),
        ),
        (
            "authorizationStrategy",
            config.authorization_strategy,
            (
                f"{_AUTHORIZATION}.strategy.StatelessAuthorizationStrategy",
                f"{_AUTHORIZATION}.strategy.StatefulAuthorizationStrategy",
            ),
        ),
    ):
        # A class of the operator's own would be ignored, and its rules with it: better not to
        # start.
        _refuse_other_class(key, value.strip(), accepted)
    return Access(
        config.authentication_enabled,
        Rules(
            config.authorization_enabled,
            _codes("authenticationWhitelist", config.authentication_whitelist),
            _codes("authorizationWhitelist", config.authorization_whitelist),
        ),
        _init_user(config.init_authentication_user),
        _inner(config.inner_client_authentication_credentials),
    )


def _refuse_other_class(key: str, value: str, accepted: tuple[str, ...]) -> None:
    """Refuse a Java class other than RocketMQ's own.

    Those have no effect: ours does what the default ones do, and checks every request, whatever
    the strategy.
    """
    if value and value not in accepted:
        raise ConfigError(
            f"{key}: {value[:200]!r} is not there; leave the key out, or set "
            f"{' or '.join(accepted)}"
        )


def _codes(key: str, text: str) -> frozenset[int]:
    codes: set[int] = set()
    for name in filter(None, map(str.strip, text.split(","))):
        if name.isascii() and name.isdecimal() and len(name) < 10:
            codes.add(int(name))
        elif "." not in name:  # a method of gRPC has a dot
            raise ConfigError(f"{key}: {name[:100]!r} is not a request code, such as 105")
    return frozenset(codes)


def _init_user(text: str) -> Credentials | None:
    if not text.strip():
        return None
    key = "initAuthenticationUser"
    found = _read(key, text, _InitUser, '{"username":"admin","password":"…"}')
    return _account(key, found.username, found.password, "username", "password")


def _inner(text: str) -> Credentials | None:
    if not text.strip():
        return None
    key = "innerClientAuthenticationCredentials"
    found = _read(key, text, _InnerClient, '{"accessKey":"broker","secretKey":"…"}')
    account = _account(key, found.access_key, found.secret_key, "accessKey", "secretKey")
    return replace(account, security_token=found.security_token)


def _read(key: str, text: str, kind: type[_T], example: str) -> _T:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeError):
        # Without the error's own text, which may quote a secret.
        raise ConfigError(f"{key}: its value is not JSON of the form {example}") from None


def _account(key: str, name: str, password: str, *members: str) -> Credentials:
    form = ",".join(f'"{member}":"..."' for member in members)
    if not name.strip() or not password.strip():
        raise ConfigError(f"{key} must have the form {{{form}}}, with both values")
    try:
        check_user(User(name, password))
    except RequestRefused as refusal:
        raise ConfigError(f"{key}: {refusal.remark}") from refusal
    return Credentials(name, password)
