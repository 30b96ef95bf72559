"""URLs of clusters: name servers, account, namespace and TLS.

::

    rocketmq://access:secret@host:9876;[::1]:9876?namespace=ns&instance=name&tls=true
    rocketmq://host:9876?tls_ca=/etc/rocketmq/ca.crt&tls_cert=client.crt&tls_key=client.key
    rocketmq+grpc://host:8081;host2:8081        the endpoints of a gRPC service
    rocketmq+grpcs://host:8081                  the same with TLS
    host:9876;host2

The last form is RocketMQ's namesrvAddr. In the others, the parts before the `@` and after the
`?` may be percent-encoded; a secret that contains `@`, `?` or `%` must be. Error messages never
show a secret: they do not quote the part before an `@`.

Java counterpart: ClientConfig.setNamesrvAddr; RocketMQ has no such URL. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from ipaddress import AddressValueError, IPv6Address
from typing import Any, Final
from urllib.parse import unquote

from .signature import Credentials
from .tls_options import TlsOptions, TlsSettings, read_truth

URL_SCHEME: Final = "rocketmq://"
"""The scheme of trocket's cluster URLs; not in RocketMQ."""

GRPC_SCHEMES: Final = ("rocketmq+grpc://", "rocketmq+grpcs://")
"""The schemes of URLs of servers that speak gRPC, without and with TLS."""

DEFAULT_INSTANCE_NAME: Final = "DEFAULT"
"""Placeholder for a name that is unique to the process. Source: ClientConfig.instanceName."""

DEFAULT_PORT: Final = 9876
"""Default port of a name server. Source: NamesrvStartup."""

GRPC_PORT: Final = 8081
"""Default port of a gRPC service. Source: ProxyConfig.grpcServerPort."""

_SCHEMES: Final = (URL_SCHEME, *GRPC_SCHEMES)
_NAME_SERVERS_COUNT_MAX: Final = 64  # RocketMQ's documents show three
_HOST: Final = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)
_NAMESPACE: Final = re.compile(r"[|a-zA-Z0-9_-]+", re.ASCII)
_OTHER_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://", re.ASCII)
_SHOWN_CHARS_MAX: Final = 60
_EXAMPLE: Final = "write host:port, such as 127.0.0.1:9876"


@dataclass(frozen=True, slots=True)
class ClientUrl:
    """A parsed URL.

    Attributes:
      name_servers: addresses of the name servers, or of the endpoints of a gRPC service,
        `host:port` or `[::1]:9876`; at least one, each once.
      namespace: namespace of topics and groups; None: none.
      instance_name: instance name for the client id; None (also for "DEFAULT"): a unique one.
      tls: False: connections use no TLS; True: they do, and servers are trusted that the system's
        authorities have signed; or TlsOptions.
      access_key, secret_key: keys of the account, both or neither. The secret is never shown.
      security_token: token of a temporary account, or None; never shown.
      speaks_grpc: the addresses are those of a gRPC service.
    """

    name_servers: tuple[str, ...]
    namespace: str | None = None
    instance_name: str | None = None
    tls: TlsOptions | bool = False
    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    security_token: str | None = field(default=None, repr=False)
    speaks_grpc: bool = False

    @property
    def credentials(self) -> Credentials | None:
        """The account; None if the URL has none."""
        if self.access_key is None or self.secret_key is None:
            return None
        return Credentials(self.access_key, self.secret_key, self.security_token)


def parse_url(text: str) -> ClientUrl:
    """Parse a URL, or RocketMQ's list of name servers.

    Raises: ValueError: it is invalid; the message says what is wrong, where, and what to write.
    """
    text = text.strip()
    if not text:
        raise ValueError(f"the address is empty: {_EXAMPLE}")
    scheme = next((each for each in _SCHEMES if text.lower().startswith(each)), None)
    if scheme is None:
        other = _OTHER_SCHEME.match(text)
        if other is not None:
            raise ValueError(
                f"the address begins with {other[0]!r}: "
                f"write {URL_SCHEME}host:port, or host:port alone"
            )
        return ClientUrl(parse_name_servers(text))
    rest = text[len(scheme) :]
    hosts, has_query, query = rest.partition("?")
    userinfo, has_account, hosts = hosts.rpartition("@")
    if "@" in query:
        # The secret may contain a "?": do not quote any part of the text.
        raise ValueError("an '@' after the '?': write %40 there, and %3F for a '?' in a secret")
    access_key = secret_key = None
    if has_account:
        access_key, secret_key = _account(userinfo)
    values = _query(query) if has_query else {}
    speaks_grpc = scheme in GRPC_SCHEMES
    given_tls = {name: values.pop(name) for name in list(values) if name in _TLS}
    if scheme == GRPC_SCHEMES[1]:
        if given_tls.get("enabled") is False:
            raise ValueError(f"tls=false, and {scheme}: write {GRPC_SCHEMES[0]} for no TLS")
        given_tls["enabled"] = True
    tls = _tls(given_tls)
    if "security_token" in values and access_key is None:
        raise ValueError(
            "security_token without an account: write access:secret@ before the name servers"
        )
    return ClientUrl(
        parse_name_servers(hosts.removesuffix("/"), GRPC_PORT if speaks_grpc else DEFAULT_PORT),
        access_key=access_key,
        secret_key=secret_key,
        tls=tls,
        speaks_grpc=speaks_grpc,
        **values,
    )


def _tls(given: dict[str, Any]) -> TlsOptions | bool:
    """The value of ClientUrl.tls from the attributes of TlsSettings."""
    settings = TlsSettings(**given)
    if settings.enabled is False and len(given) > 1:
        raise ValueError("tls=false, and more settings of TLS: leave one of them out")
    try:
        return settings.tls
    except ValueError as error:
        text = str(error)
        # The error names options of Python; a user has written keys of the URL.
        for attribute, key in (("cert_file", "tls_cert"), ("ca_file", "tls_ca")):
            text = text.replace(attribute, key)
        raise ValueError(text.replace("verify=False", "tls_verify=false")) from None


def _account(userinfo: str) -> tuple[str, str]:
    access, has_secret, secret = userinfo.partition(":")
    access, secret = _decoded("access key", access), _decoded("secret key", secret)
    if not has_secret or not access or not secret:
        raise ValueError("the account before the '@' is not access:secret: give both, or neither")
    return access, secret


def parse_name_servers(text: str, port: int = DEFAULT_PORT) -> tuple[str, ...]:
    """Parse `host:port;host:port`; a `;` at the end is ignored.

    Args:
      port: of addresses without one.

    Returns: the addresses, `host:port`, in their order, without duplicates.
    Raises: ValueError: there are none, too many, or an invalid one.
    """
    if "@" in text:
        # The strings below quote the input, which must not contain a secret.
        raise ValueError(
            "the name servers have an '@': with an account, "
            f"write {URL_SCHEME}access:secret@host:port"
        )
    items = [item.strip() for item in text.removesuffix(";").split(";")]
    if items == [""]:
        raise ValueError(f"no name server is given: {_EXAMPLE}")
    if len(items) > _NAME_SERVERS_COUNT_MAX:
        raise ValueError(
            f"{len(items)} name servers are given, at most {_NAME_SERVERS_COUNT_MAX} are allowed"
        )
    found = (_name_server(number, item, port) for number, item in enumerate(items, 1))
    return tuple(dict.fromkeys(found))


def _name_server(number: int, item: str, default_port: int) -> str:
    where = f"name server {number} ({item[:_SHOWN_CHARS_MAX]!r})"
    if not item:
        raise ValueError(f"name server {number} is empty: {_EXAMPLE}, and a ';' only between two")
    if "," in item:
        raise ValueError(f"{where} has a comma: write a ';' between name servers")
    if item.startswith("["):
        host, closed, port = item[1:].partition("]")
        if not closed or not _is_ipv6(host) or (port and port[0] != ":"):
            raise ValueError(f"{where} is not an IPv6 address: write [address]:port")
        host, has_port, port = f"[{host}]", port[:1], port[1:]
    else:
        host, has_port, port = item.partition(":")
        # Otherwise `::1` would be read as an empty host and a wrong port.
        if ":" in port and _is_ipv6(item):
            raise ValueError(f"{where} is an IPv6 address without brackets: write [address]:port")
        if not _HOST.fullmatch(host):
            raise ValueError(f"{where} has no host of letters, digits, '.', '-', '_': {_EXAMPLE}")
    if not has_port:
        return f"{host}:{default_port}"
    if not (port.isascii() and port.isdecimal() and len(port) <= 5 and 1 <= int(port) <= 65535):
        raise ValueError(f"{where} {_wrong_port(item, port)}")
    return f"{host}:{int(port)}"


def _wrong_port(item: str, port: str) -> str:
    """What is wrong with what stands behind the host's ':'."""
    if item.lower().startswith(URL_SCHEME):
        return f"begins with {URL_SCHEME} again: write it once, before all"
    if "/" in port:
        return f"has a path behind it: {_EXAMPLE}; it does not name a topic"
    if len(port.split()) > 1:
        return "has a space: write a ';' between name servers"
    return f"has no port from 1 to 65535 behind the ':': {_EXAMPLE}"


def _is_ipv6(text: str) -> bool:
    try:
        IPv6Address(text)
    except AddressValueError:
        return False
    return True


def is_namespace(text: str) -> bool:
    """Whether it may be a namespace; "" stands for none."""
    return not text or _NAMESPACE.fullmatch(text) is not None


def _read_namespace(value: str) -> str | None:
    if not is_namespace(value):
        raise ValueError(
            f"namespace={value[:_SHOWN_CHARS_MAX]!r} has an illegal character: allowed are letters,"
            " digits, '|', '_' and '-'"
        )
    return value or None


def _read_instance(value: str) -> str | None:
    if not value.strip():
        raise ValueError("instance= is blank: give a name, or leave it out")
    return None if value == DEFAULT_INSTANCE_NAME else value


def _read_path(key: str) -> Callable[[str], str]:
    def read(value: str) -> str:
        if not value:
            raise ValueError(f"{key}= is empty: give a file, or leave it out")
        return value

    return read


def _read_token(value: str) -> str:
    if not value:
        raise ValueError("security_token= is empty: give one, or leave it out")
    return value


_KEYS: Final[dict[str, tuple[str, Callable[[str], str | bool | None]]]] = {
    "namespace": ("namespace", _read_namespace),
    "instance": ("instance_name", _read_instance),
    "tls": ("enabled", partial(read_truth, "tls")),
    "tls_ca": ("ca_file", _read_path("tls_ca")),
    "tls_cert": ("cert_file", _read_path("tls_cert")),
    "tls_key": ("key_file", _read_path("tls_key")),
    "tls_verify": ("verify", partial(read_truth, "tls_verify")),
    "tls_check_hostname": ("check_hostname", partial(read_truth, "tls_check_hostname")),
    "security_token": ("security_token", _read_token),
}
"""Keys of the query, with their attribute of ClientUrl, or of TlsSettings, and the function that
reads the value."""
_TLS: Final = tuple(attribute for key, (attribute, _) in _KEYS.items() if key.startswith("tls"))


def _query(query: str) -> dict[str, Any]:
    """Parse the query; returns attributes of ClientUrl."""
    seen: set[str] = set()
    values: dict[str, Any] = {}
    for item in query.removesuffix("&").split("&") if query else ():
        key, has_value, value = item.partition("=")
        if key not in _KEYS:
            # Tokens contain `&`, and their tails look like keys.
            if "security_token" in seen:
                raise ValueError(
                    f"an unknown key after security_token (known: {', '.join(_KEYS)}): if it is a"
                    " part of the token, write %26 for its '&'"
                )
            raise ValueError(_unknown_key(key))
        if not has_value:
            raise ValueError(f"{key} has no value after the '?': write {key}=value")
        if key in seen:
            raise ValueError(f"{key} is given twice after the '?': leave one out")
        seen.add(key)
        attribute, read = _KEYS[key]
        values[attribute] = read(_decoded(key, value))
    return values


def _decoded(what: str, text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise ValueError(f"the {what} has percent-encoded bytes that are not UTF-8") from None


def _unknown_key(key: str) -> str:
    import difflib  # takes 10 ms, which only an error should cost

    by_lower = {known.lower(): known for known in _KEYS}
    nearest = difflib.get_close_matches(key.lower(), by_lower, n=1)
    hint = f"; did you mean {by_lower[nearest[0]]}?" if nearest else ""
    return (
        f"the key {key[:_SHOWN_CHARS_MAX]!r} after the '?' is unknown{hint}"
        f" (known: {', '.join(_KEYS)})"
    )
