"""The settings of TLS: RocketMQ's `tls.*` keys, of tls.properties and of a server's own file.

Pure: the entries of files come in, a configuration and warnings go out. `tls_settings.py` reads the
files.

Java counterpart: remoting/netty/TlsSystemConfig.java of 5.5.0, where most keys may also be system
properties, and unknown or contradicting values are accepted silently.
"""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ..common.config import ConfigError, Entry, KnownKey, at, configure, setting

MODE_KEY: Final = "tls.server.mode"

CONFIG_FILE_KEY: Final = "tlsConfigFile"
"""The key of a server's own file that names the file of TLS settings."""

_CONFIG_FILE_ALIAS: Final = "tls.config.file"
"""RocketMQ's name of it, a system property there."""

PREFIX: Final = "tls."
"""The beginning of all other keys."""

CONFIG_FILE_DEFAULT: Final = "/etc/rocketmq/tls.properties"
"""Read if it exists. Source: TlsSystemConfig.tlsConfigFile."""

PROTOCOLS: Final = ("TLSv1.2", "TLSv1.3")
"""The versions that may be allowed. Older ones are broken, and OpenSSL has them switched off."""

_OLD_PROTOCOLS: Final = frozenset(("SSLv2", "SSLv2Hello", "SSLv3", "TLSv1", "TLSv1.1"))


class TlsMode(enum.Enum):
    """What a listener does with TLS. Source: remoting/common/TlsMode.java."""

    disabled = "disabled"
    permissive = "permissive"
    enforcing = "enforcing"


class ClientAuth(enum.Enum):
    """Whether a server asks its peers for certificates. Source: Netty's ClientAuth."""

    none = "none"
    optional = "optional"
    require = "require"


@dataclass(slots=True)
class TlsConfig:
    """The settings of TLS of one process, for its listeners and for its own connections.

    Paths are of PEM files. An empty string means that a setting is not there.

    Attributes:
      mode: what listeners do: `disabled` closes connections that begin with TLS, `permissive`
        serves both kinds on one port, `enforcing` closes the others.
      enable: whether this process connects to other servers by TLS.
      config_file: the file that the settings were read from; "": none was named, and there
        is no CONFIG_FILE_DEFAULT.
      test_mode: listen with a self-signed certificate that is made at the first handshake,
        and accept any certificate of other servers; None: only if no certificate is configured.
        RocketMQ's default is true, whatever else is configured.
      need_client_auth: whether listeners ask for a certificate.
      server_key_path, server_key_password, server_cert_path: of listeners.
      auth_client: whether certificates of peers must be signed by an authority of
        server_trust_cert_path.
      server_trust_cert_path: certificates of the authorities that peers' certificates are from.
      server_sni_path: not a key of RocketMQ. A folder with a folder for each further name that
        clients may ask for (SNI), such as `mq.example/fullchain.pem` and `…/privkey.pem`.
      client_key_path, client_key_password, client_cert_path: of connections to other servers, for
        those that ask for a certificate.
      auth_server: whether certificates of other servers are verified; false: any is accepted.
      client_trust_cert_path: the authorities that sign them; "": those of the system.
      check_hostname: not a key of RocketMQ. Whether their certificates must be for the name or
        address that is connected to, too; needs auth_server.
      ciphers: allowed cipher suites of TLS 1.2, separated by colons, by OpenSSL's or RFC names;
        "": OpenSSL's default. TLS 1.3 always allows all of its suites.
      protocols: allowed versions, separated by colons; "": TLSv1.2:TLSv1.3.
    """

    mode: TlsMode = setting(TlsMode.permissive, key=MODE_KEY)  # noqa: RUF009 - a field
    enable: bool = setting(False, key="tls.enable")
    config_file: str = setting("", key=CONFIG_FILE_KEY)
    test_mode: bool | None = setting(None, key="tls.test.mode.enable")
    need_client_auth: ClientAuth = setting(  # noqa: RUF009 - a field
        ClientAuth.none, key="tls.server.need.client.auth"
    )
    server_key_path: str = setting("", key="tls.server.keyPath")
    server_key_password: str = setting("", key="tls.server.keyPassword", secret=True)
    server_cert_path: str = setting("", key="tls.server.certPath")
    auth_client: bool = setting(False, key="tls.server.authClient")
    server_trust_cert_path: str = setting("", key="tls.server.trustCertPath")
    server_sni_path: str = setting("", key="tls.server.sniPath")
    client_key_path: str = setting("", key="tls.client.keyPath")
    client_key_password: str = setting("", key="tls.client.keyPassword", secret=True)
    client_cert_path: str = setting("", key="tls.client.certPath")
    auth_server: bool = setting(False, key="tls.client.authServer")
    client_trust_cert_path: str = setting("", key="tls.client.trustCertPath")
    check_hostname: bool = setting(False, key="tls.client.checkHostname")
    ciphers: str = setting("", key="tls.ciphers")
    protocols: str = setting("", key="tls.protocols")

    @property
    def is_server_test_mode(self) -> bool:
        """Whether listeners use a certificate that is made at the first handshake."""
        if self.test_mode is None:
            return not (self.server_cert_path or self.server_key_path)
        return self.test_mode

    @property
    def verifies_servers(self) -> bool:
        """Whether certificates of other servers are verified."""
        return self.auth_server and self.test_mode is not True

    @property
    def cipher_names(self) -> list[str]:
        """The allowed cipher suites of TLS 1.2 by OpenSSL's names; empty: its default."""
        names = filter(None, map(str.strip, re.split("[:,]", self.ciphers)))
        return [openssl_name(name) for name in names if not _is_of_tls_1_3(name)]

    @property
    def protocol_names(self) -> tuple[str, ...]:
        """The allowed versions.

        Raises: ConfigError: one is unknown, or too old.
        """
        names = tuple(filter(None, map(str.strip, re.split("[:,]", self.protocols))))
        for name in names:
            if name not in PROTOCOLS:
                why = "is not safe any more" if name in _OLD_PROTOCOLS else "is unknown"
                allowed = " and ".join(PROTOCOLS)
                raise ConfigError(f"tls.protocols: {name[:40]} {why}; there are {allowed}")
        return names or PROTOCOLS


def openssl_name(name: str) -> str:
    """OpenSSL's name of a cipher suite of TLS 1.2.

    Args:
      name: such as TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, as Java writes it, or OpenSSL's own.
    """
    if not name.startswith(("TLS_", "SSL_")):
        return name
    exchange, _, cipher = name[4:].partition("_WITH_")
    cipher = cipher.replace("AES_128", "AES128").replace("AES_256", "AES256")
    if "POLY1305" in cipher:
        cipher = cipher.removesuffix("_SHA256")
    cipher = cipher.replace("AES128_CBC", "AES128").replace("AES256_CBC", "AES256")
    exchange = "" if exchange == "RSA" else f"{exchange}-"
    return f"{exchange}{cipher}".replace("_", "-")


def _is_of_tls_1_3(name: str) -> bool:
    return name.startswith("TLS_") and "_WITH_" not in name


def is_tls_key(key: str) -> bool:
    """Whether a key of a server's own file is a setting of TLS."""
    return key.startswith(PREFIX) or key == CONFIG_FILE_KEY


def split_tls(entries: Iterable[Entry]) -> tuple[list[Entry], list[Entry]]:
    """The entries that are settings of TLS, and the others.

    Args:
      entries: of a server's own file.
    """
    of_tls: list[Entry] = []
    others: list[Entry] = []
    for entry in entries:
        (of_tls if is_tls_key(entry.key) else others).append(entry)
    return of_tls, others


def config_file_of(entries: Sequence[Entry]) -> str | None:
    """The file of TLS settings that a server's own file names; None: it names none."""
    path = None
    for entry in entries:
        if entry.key in (CONFIG_FILE_KEY, _CONFIG_FILE_ALIAS):
            path = entry.value.strip()
    return path or None


def merge_tls(
    of_file: Sequence[Entry], own: Sequence[Entry], *, file_path: str = "", own_path: str = ""
) -> tuple[TlsConfig, list[str]]:
    """The settings of both files, and warnings of one line each.

    What a server's own file says counts more, because tls.properties may be for several servers.

    Args:
      of_file: entries of the file of TLS settings.
      own: entries of the server's own file, from `split_tls`.
      file_path, own_path: for messages.
    Raises: ConfigError: a key is unknown, a value is wrong, or settings contradict each other.
    """
    config = TlsConfig()
    warnings: list[str] = []
    # The server's own file second, so that it wins.
    for entries, path in ((of_file, file_path), (own, own_path)):
        named = [
            entry._replace(key=CONFIG_FILE_KEY) if entry.key == _CONFIG_FILE_ALIAS else entry
            for entry in entries
        ]
        configured = configure(named, (config,), _no_known_keys, path=path)
        config = configured.configs[0]
        warnings += configured.warnings
    if file_path:
        config.config_file = file_path
    path = own_path if own else file_path
    try:
        warnings += [f"{at(path)}{text}" for text in check_tls(config)]
    except ConfigError as error:
        raise ConfigError(error.reason, path=path) from error
    return config, warnings


def _no_known_keys() -> Mapping[str, KnownKey]:
    return {}


def check_tls(config: TlsConfig) -> list[str]:
    """Check that the settings fit together, without reading a file.

    Returns: warnings about settings without an effect.
    Raises: ConfigError: they contradict each other.
    """
    config.protocol_names  # noqa: B018 - only the check
    asks = config.need_client_auth is not ClientAuth.none
    if config.mode is not TlsMode.disabled:
        _check_pair("tls.server", config.server_cert_path, config.server_key_path)
    _check_pair("tls.client", config.client_cert_path, config.client_key_path)
    if config.need_client_auth is ClientAuth.require and not config.auth_client:
        raise ConfigError(
            "tls.server.need.client.auth=require without tls.server.authClient=true would accept "
            "any certificate, also one that a stranger made: set authClient=true and "
            "tls.server.trustCertPath, or need.client.auth=none"
        )
    if asks and config.auth_client and not config.server_trust_cert_path:
        raise ConfigError(
            "tls.server.authClient=true needs tls.server.trustCertPath, the certificates of the "
            "authorities that sign for clients"
        )
    if config.check_hostname and not config.auth_server:
        raise ConfigError(
            "tls.client.checkHostname=true needs tls.client.authServer=true: a name in a "
            "certificate that is not verified proves nothing"
        )
    return [*_without_effect(config, asks)]


def _check_pair(prefix: str, cert_path: str, key_path: str) -> None:
    if bool(cert_path) != bool(key_path):
        there, missing = ("certPath", "keyPath") if cert_path else ("keyPath", "certPath")
        raise ConfigError(f"{prefix}.{there} needs {prefix}.{missing}, too")


def _without_effect(config: TlsConfig, asks: bool) -> Iterable[str]:
    if config.mode is TlsMode.disabled:
        return
    if config.test_mode and config.server_cert_path:
        yield (
            "tls.server.certPath has no effect with tls.test.mode.enable=true: listeners use a "
            "self-signed certificate, as RocketMQ's do"
        )
    if config.auth_client and not asks:
        yield (
            "tls.server.authClient=true does nothing with tls.server.need.client.auth=none: no "
            "certificate is asked for. Set it to require or optional"
        )
    if config.need_client_auth is ClientAuth.optional and not config.auth_client:
        yield (
            "tls.server.need.client.auth=optional without tls.server.authClient=true: no "
            "certificate is asked for, because it would not be verified"
        )
    if config.test_mode is False and not config.server_cert_path:
        yield (
            "tls.test.mode.enable=false without tls.server.certPath and tls.server.keyPath: "
            "clients that connect by TLS are refused"
        )
    if config.test_mode and config.auth_server:
        yield (
            "tls.client.authServer=true has no effect with tls.test.mode.enable=true: any server "
            "is trusted, as by RocketMQ"
        )


def with_changes(config: TlsConfig, **changes: object) -> TlsConfig:
    """A copy with other values of some fields."""
    return dataclasses.replace(config, **changes)  # type: ignore[arg-type]


def check_metrics_tls(metrics_tls_enable: bool, mode: TlsMode) -> None:
    """Raises ConfigError if metrics are to be served by TLS, which is switched off."""
    if metrics_tls_enable and mode is TlsMode.disabled:
        raise ConfigError(
            "metricsTlsEnable=true needs tls.server.mode=permissive or enforcing, not disabled"
        )
