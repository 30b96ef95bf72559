"""The log line of a server that is open to other machines without accounts.

It brings no event loop, because programs import it before they know whether they will serve. Pure.
"""

from __future__ import annotations

from typing import Final, Protocol

from .dangerous import Danger
from .model import parse_address

KEY: Final = "allowRemoteAdministration"
"""trocket's own key of brokers, name servers and filter servers; false by default."""

OPEN_TO_ALL: Final = {
    "broker": "read and send messages, commit offsets and create topics",
    "name server": "read routes and register brokers",
    "controller": "read the state of brokers, and register brokers that may become master",
    "filter server": "pull filtered messages",
}
"""What every client may do, by the kind of server."""

_ACCOUNTS: Final = "bindAddress=127.0.0.1, a firewall, or accounts (authenticationEnabled=true)"
_CLOSED_BY: Final = {
    "broker": _ACCOUNTS,
    "name server": _ACCOUNTS,
    "controller": _ACCOUNTS,
    "filter server": "bindAddress=127.0.0.1 or a firewall",
}


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a listener on `host`, an address or a name."""
    address = parse_address(host.strip("[]"))
    return host == "localhost" if address is None else address.is_loopback


class Listening(Protocol):
    """The keys of a server's configuration that say who reaches it."""

    bind_address: str
    allow_remote_administration: bool

    @property
    def has_accounts(self) -> bool: ...


def open_warnings(danger: Danger, config: Listening) -> list[str]:
    """The log line of a server that is open at its start; empty: it is not."""
    line = open_warning(
        danger,
        config.bind_address,
        has_accounts=config.has_accounts,
        allows_remote=config.allow_remote_administration,
    )
    return [] if line is None else [line]


def open_warning(
    danger: Danger, bind_address: str, *, has_accounts: bool = False, allows_remote: bool
) -> str | None:
    """The log line of an open server at its start; None: it has accounts, or only this machine
    reaches it.

    Args:
      bind_address: the address that it listens on.
    """
    if has_accounts or is_loopback(bind_address):
        return None
    may = OPEN_TO_ALL[danger.server]
    own = (
        f"and everything else too ({KEY}=true)"
        if allows_remote
        else f"but what deletes or changes settings is served to this machine only ({KEY}=false)"
    )
    return (
        f"this {danger.server} has no accounts and listens on {bind_address}: anyone who reaches "
        f"it may {may}, {own}. Close it with {_CLOSED_BY[danger.server]}"
    )
