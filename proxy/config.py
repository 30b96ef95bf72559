"""The proxy's keys of rmq-proxy.json: RocketMQ's names in snake_case, its types and defaults.

Pure. Java counterpart: proxy/config/ProxyConfig.java of RocketMQ 5.5.0.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..auth.config import Access, AccessConfig, read_access
from ..common.config import (
    ConfigError,
    Entry,
    KnownKey,
    Problems,
    configure,
    is_address,
    keys_of_file,
    setting,
)
from ..common.connection_policy import ConnectionPolicy
from ..grpc_server.rules import Rules
from ..remoting.tls_config import split_tls

FILE: Final = "rmq-proxy.json, the file of RocketMQ's proxy"
_UNUSED: Final = "the proxy of trocket does not use it"

TLS_KEYS: Final[Mapping[str, str]] = {
    "tlsTestModeEnable": "tls.test.mode.enable",
    "tlsKeyPath": "tls.server.keyPath",
    "tlsKeyPassword": "tls.server.keyPassword",
    "tlsCertPath": "tls.server.certPath",
}
"""Keys of the proxy's file that are called otherwise in those of other servers."""

_OF_PROXY: Final = "org.apache.rocketmq.proxy.auth"
_PROVIDERS: Final[Mapping[str, str]] = {
    "authentication_metadata_provider": f"{_OF_PROXY}.ProxyAuthenticationMetadataProvider",
    "authorization_metadata_provider": f"{_OF_PROXY}.ProxyAuthorizationMetadataProvider",
}


@dataclass
class ProxyConfig(AccessConfig, ConnectionPolicy):
    """The keys of a proxy.

    Attributes:
      namesrv_addr: name servers, `host:port`, `;`-separated.
      bind_address: not a key of RocketMQ, as in broker.conf: the address that it listens on.
      grpc_server_port: 0: any free one.
      grpc_client_idle_time_mills: a connection without a byte for so long is closed.
      links_max: not a key of RocketMQ: connections to brokers; a client has one to each broker of
        its topics.
      topic_route_service_cache_refresh_seconds, topic_route_service_cache_max_num: of routes with
        the topics' settings. RocketMQ refreshes after 20 s; clients of remoting after 30.
      subscription_group_config_cache_refresh_seconds, subscription_group_config_cache_max_num: of
        the settings of groups.
      acl_cache_refresh_seconds, acl_cache_max_num: of users.
      use_endpoint_port_from_request: always true here: routes have the address that the client
        used.
    The others are those of `grpc_server.rules.Rules`.
    """

    namesrv_addr: str = setting("")
    bind_address: str = setting("0.0.0.0")
    grpc_server_port: int = setting(8081, minimum=0, maximum=65_535)
    grpc_client_idle_time_mills: int = setting(120_000, minimum=1_000)
    links_max: int = setting(10_000, minimum=1)
    topic_route_service_cache_refresh_seconds: int = setting(20, minimum=1)
    topic_route_service_cache_max_num: int = setting(20_000, minimum=1)
    subscription_group_config_cache_refresh_seconds: int = setting(20, minimum=1)
    subscription_group_config_cache_max_num: int = setting(20_000, minimum=1)
    acl_cache_refresh_seconds: int = setting(20, minimum=1)
    acl_cache_max_num: int = setting(20_000, minimum=1)
    use_endpoint_port_from_request: bool = setting(True)
    max_message_size: int = setting(4 * 1024 * 1024, minimum=1)
    user_property_max_num: int = setting(128, minimum=0)
    max_user_property_size: int = setting(16 * 1024, minimum=0)
    max_message_group_size: int = setting(64, minimum=1)
    min_invisible_time_mills_for_recv: int = setting(10_000, minimum=0)
    max_invisible_time_mills: int = setting(12 * 3_600_000, minimum=1)
    max_delay_time_mills: int = setting(24 * 3_600_000)
    max_transaction_recovery_second: int = setting(3_600, minimum=0)
    grpc_client_consumer_min_long_polling_timeout_millis: int = setting(5_000, minimum=0)
    grpc_client_consumer_max_long_polling_timeout_millis: int = setting(20_000, minimum=1)
    grpc_client_consumer_long_polling_batch_size: int = setting(32, minimum=1, maximum=32)

    @property
    def name_servers(self) -> tuple[str, ...]:
        """The addresses of the name servers."""
        return tuple(each.strip() for each in self.namesrv_addr.split(";") if each.strip())

    @property
    def access(self) -> Access:
        """The account of the proxy, and whether calls have to be signed.

        Raises: ConfigError: a value is malformed.
        """
        # Where users and rights come from: with RocketMQ's proxy from the brokers, as here.
        config = dataclasses.replace(self)
        for name, provider in _PROVIDERS.items():
            if getattr(config, name).strip() == provider:
                setattr(config, name, "")
        return read_access(config)

    @property
    def rules(self) -> Rules:
        """The limits of the service."""
        shared = {field.name for field in dataclasses.fields(Rules)}
        names = [each.name for each in dataclasses.fields(self) if each.name in shared]
        return Rules(**{name: getattr(self, name) for name in names})


def known_keys() -> dict[str, KnownKey]:
    """The other keys of RocketMQ's proxy."""
    return {
        key: KnownKey(key, "str", "-", important=False, effect=_UNUSED)
        for key in keys_of_file(FILE)
    }


def parse_json(text: str, *, path: str = "") -> list[Entry]:
    """The entries of an rmq-proxy.json, with the names of keys that other servers have, too.

    Raises: ConfigError: it is no JSON object of plain values.
    """
    try:
        found: Any = json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"it is no JSON: {error}", path=path) from error
    if not isinstance(found, dict):
        raise ConfigError("it is no JSON object with the proxy's keys", path=path)
    entries = []
    for key, value in found.items():
        place = text.find(json.dumps(key))
        line = text.count("\n", 0, place) + 1 if place >= 0 else 0
        if isinstance(value, dict) and key == "innerClientAuthenticationCredentials":
            value = json.dumps(value)
        if isinstance(value, (dict, list)):
            raise ConfigError(f"{key} must be a plain value", path=path, line=line)
        if value is not None:
            plain = str(value).lower() if isinstance(value, bool) else str(value)
            entries.append(Entry(TLS_KEYS.get(key, key), plain, line))
    return entries


def read_proxy_config(
    entries: list[Entry], defaults: ProxyConfig, *, path: str = ""
) -> tuple[ProxyConfig, list[str]]:
    """The configuration of a proxy, and its warnings, one line each.

    Args:
      entries: from `parse_json`. `tls.*` is left to `remoting/tls_files.py`.
    Raises: ConfigError: unknown key or bad value.
    """
    problems = Problems(entries, path)
    (config,), warnings = configure(
        split_tls(entries)[1], (defaults,), known_keys, path=path, problems=problems
    )
    for check in (_check_name_servers, _check_accounts, _check_limits):
        with problems.collected():
            check(config)
    if not config.use_endpoint_port_from_request:
        warnings.append(
            "useEndpointPortFromRequest=false: routes have the port that the client used all the "
            "same"
        )
    problems.raise_all(warnings)
    return config, warnings


def _check_name_servers(config: ProxyConfig) -> None:
    if not config.name_servers:
        raise ConfigError(
            "namesrvAddr is not set: name the cluster's name servers with -n or in the file"
        )
    for address in config.name_servers:
        if not is_address(address):
            raise ConfigError(
                f"namesrvAddr must be host:port, several separated by semicolons, not {address!r}"
            )


def _check_accounts(config: ProxyConfig) -> None:
    access = config.access
    if access.is_enabled and access.inner is None:
        raise ConfigError(
            "authenticationEnabled=true needs innerClientAuthenticationCredentials, the keys of a "
            "super user: with them the proxy asks the brokers for the users of its clients"
        )


def _check_limits(config: ProxyConfig) -> None:
    config.check_exempt_addresses()
