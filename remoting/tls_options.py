"""TLS of a client as a value: the files, and what is checked of a server's certificate.

It comes from the option `tls=`, a URL, environment variables or the flags of a command. RocketMQ's
names are those of `tls.properties`: `tls.client.trustCertPath`, `.certPath`, `.keyPath`,
`.keyPassword` and `.authServer`.

Java counterpart: remoting/netty/TlsSystemConfig.java. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from os import PathLike, fspath
from typing import Any, Final, Self

TRUTHS: Final = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """TLS of all connections of a client.

    Attributes:
      ca_file: PEM file with the certificates of the authorities to trust; None: those of the
        system. RocketMQ: tls.client.trustCertPath.
      cert_file: PEM file with the client's certificate, for servers that ask for one; None: none.
        RocketMQ: tls.client.certPath.
      key_file: PEM file with its private key; None: it is in `cert_file`. RocketMQ:
        tls.client.keyPath.
      key_password: of the private key; None: it has none. Never shown.
      verify: check the certificates of servers; False: trust any server, as RocketMQ's clients do
        unless tls.client.authServer is set.
      check_hostname: a server's certificate must name the host or address that is connected to;
        RocketMQ's clients never check that.

    Raises: ValueError: the values contradict each other.
    """

    ca_file: str | PathLike[str] | None = None
    cert_file: str | PathLike[str] | None = None
    key_file: str | PathLike[str] | None = None
    key_password: str | None = field(default=None, repr=False)
    verify: bool = True
    check_hostname: bool = True

    def __post_init__(self) -> None:
        """Check that the values fit together."""
        if self.key_file is not None and self.cert_file is None:
            raise ValueError("a key of TLS without a certificate: give cert_file, too")
        if self.ca_file is not None and not self.verify:
            raise ValueError("ca_file has no effect with verify=False: leave one of them out")

    @property
    def files(self) -> dict[str, str]:
        """The paths of the files that are given, by attribute."""
        paths = {"ca_file": self.ca_file, "cert_file": self.cert_file, "key_file": self.key_file}
        return {name: fspath(path) for name, path in paths.items() if path is not None}


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """What one source says about TLS; None: nothing.

    A flag, a URL or a variable may each set a part. `over` joins them, `tls` is the whole.

    Attributes:
      enabled: whether to use TLS; None: if any other attribute is set.
      ca_file, cert_file, key_file, key_password, verify, check_hostname: see TlsOptions.
    """

    enabled: bool | None = None
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    key_password: str | None = field(default=None, repr=False)
    verify: bool | None = None
    check_hostname: bool | None = None

    def over(self, other: Self) -> Self:
        """These settings; where they say nothing, the other ones.

        If these turn TLS off, the others count for nothing; if these verify nothing, the others'
        authority is left out.
        """
        if self.enabled is False:
            return self
        given = {name: getattr(self, name) for name in self.__slots__}
        merged = {
            name: getattr(other, name) if value is None else value for name, value in given.items()
        }
        if self.verify is False:
            merged["ca_file"] = self.ca_file
        if self.ca_file is not None and self.verify is None:
            merged["verify"] = None
        if self.cert_file is not None:
            # The other's key belongs to the other's certificate.
            merged["key_file"] = self.key_file
        if self.enabled is None and any(value is not None for value in given.values()):
            merged["enabled"] = True
        return replace(self, **merged)

    @property
    def tls(self) -> TlsOptions | bool:
        """The value for the option `tls`: False: no TLS; True: TLS with the system's authorities.

        Raises: ValueError: as TlsOptions.
        """
        if self.enabled is False:
            return False
        # A password alone says nothing: it may be set for another cluster.
        named: dict[str, Any] = {
            name: getattr(self, name)
            for name in ("ca_file", "cert_file", "key_file", "verify", "check_hostname")
            if getattr(self, name) is not None
        }
        if not named:
            return bool(self.enabled)
        return TlsOptions(key_password=self.key_password, **named)


def settings_of(tls: TlsOptions | bool) -> TlsSettings:
    """The settings of a URL's TLS; False says nothing, as a URL need not mention it."""
    if isinstance(tls, bool):
        return TlsSettings(enabled=tls or None)
    return TlsSettings(
        enabled=True,
        **tls.files,
        key_password=tls.key_password,
        verify=None if tls.verify else False,
        check_hostname=None if tls.check_hostname else False,
    )


VARIABLES: Final[dict[str, str]] = {
    "enabled": "ROCKETMQ_TLS",
    "ca_file": "ROCKETMQ_TLS_CA",
    "cert_file": "ROCKETMQ_TLS_CERT",
    "key_file": "ROCKETMQ_TLS_KEY",
    "key_password": "ROCKETMQ_TLS_KEY_PASSWORD",
    "verify": "ROCKETMQ_TLS_VERIFY",
    "check_hostname": "ROCKETMQ_TLS_CHECK_HOSTNAME",
}
"""Environment variables by attribute of TlsSettings."""
_BOOLS: Final = ("enabled", "verify", "check_hostname")


def tls_settings_of(environment: Mapping[str, str]) -> TlsSettings:
    """The settings in the variables of VARIABLES; an empty variable says nothing.

    Raises: ValueError: a variable is neither true nor false; the message names it.
    """
    found: dict[str, Any] = {}
    for name, variable in VARIABLES.items():
        text = environment.get(variable, "")
        if text:
            found[name] = read_truth(variable, text) if name in _BOOLS else text
    return TlsSettings(**found)


def read_truth(name: str, text: str) -> bool:
    """Parse true or false. Raises: ValueError: it is neither; the message names the setting."""
    try:
        return TRUTHS[text.lower()]
    except KeyError:
        raise ValueError(f"{name}={text[:60]!r} is neither true nor false") from None
