"""The host that a request was sent to, and the page that it comes from.

A page of another site can make a browser send requests to this console. It cannot read the answer,
and a changing request is refused by what the browser says of its origin (the Fetch Metadata and
Origin headers). A site whose name resolves to this machine is refused by the Host header.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
SAFE_METHODS: Final = frozenset({"GET", "HEAD"})
"""Methods of requests that change nothing."""
_OWN_SITES: Final = frozenset({"same-origin", "none"})


def host_name(host: str) -> str:
    """The name in a Host header, in lower case and without a port; an IPv6 address in brackets."""
    if host.startswith("["):
        return host.partition("]")[0].lower() + "]"
    return host.partition(":")[0].lower()


def is_known_host(host: str, allowed: Collection[str]) -> bool:
    """Whether a Host header names this console: a loopback name, or an allowed one."""
    name = host_name(host)
    return name in LOOPBACK or name in allowed


def is_own_origin(headers: Mapping[str, str]) -> bool:
    """Whether a changing request comes from a page of this console.

    Sec-Fetch-Site decides where a browser sends it (all do since 2023); else Origin must name the
    host of the request. A request with neither is refused.
    """
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site in _OWN_SITES
    _, separator, host = headers.get("origin", "").partition("://")
    return bool(separator and host) and host == headers.get("host", "")
