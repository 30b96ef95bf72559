"""The processors of a server without accounts: dangerous requests are for its own machine.

A peer is of the server's own machine if its address is a loopback one, or is the very address that
it connected to: a machine reaches its own addresses from themselves. A proxy or a published port of
a container on this machine makes its clients look like this machine, or like the container's
gateway.

Only the processors of dangerous requests are wrapped, so nothing else costs anything, and the C
extension's runs stay. The gate writes the audit log. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..remoting.channel import Channel, Processor
from ..remoting.codec import RemotingCommand
from ..remoting.errors import RequestRefused
from ..remoting.hosts import host_of
from ..remoting.request_codes import RequestCode
from ..remoting.response_codes import ResponseCode
from .dangerous import Danger
from .gate import guarded
from .model import parse_address
from .open_ports import KEY

IsOwn = Callable[[RemotingCommand, Channel], bool]
"""Whether a request is about what its peer registered itself."""


def open_processors(
    processors: Mapping[int, Processor],
    danger: Danger,
    *,
    allows_remote: bool,
    is_own: IsOwn | None = None,
) -> dict[int, Processor]:
    """The processors of a server without accounts: dangerous requests only from this machine.

    Args:
      processors: all that the server has, by request code.
      danger: the tables of its kind.
      allows_remote: `allowRemoteAdministration`: nothing is refused.
      is_own: needed for requests of `danger.own`.
    Returns: a new table.
    """
    table = dict(processors)
    if allows_remote:
        return table

    def check(request: RemotingCommand, channel: Channel) -> None:
        if not is_local(channel):
            raise _refusal(request, channel, danger)

    def check_own(request: RemotingCommand, channel: Channel) -> None:
        if is_own is None or not is_own(request, channel):
            check(request, channel)

    for codes, each in ((danger.dangerous, check), (danger.own, check_own)):
        table |= guarded({code: table[code] for code in codes if code in table}, each)
    return table


def is_local(channel: Channel) -> bool:
    """Whether the peer of a connection is a process of this machine."""
    remote = parse_address(host_of(channel.remote_address))
    if remote is None:
        return False
    return remote.is_loopback or remote == parse_address(host_of(channel.local_address))


def is_same_host(first: Channel, second: Channel) -> bool:
    """Whether two peers have the same address, whatever their ports."""
    return host_of(first.remote_address) == host_of(second.remote_address)


def _refusal(request: RemotingCommand, channel: Channel, danger: Danger) -> RequestRefused:
    code = RequestCode(request.code)
    what = danger.dangerous.get(code) or danger.own[code]
    peer = host_of(channel.remote_address)
    remark = (
        f"{code.name} ({request.code}) {what}: this {danger.server} has no accounts, so it serves "
        f"that only to its own machine, not to {peer}. Ask it there, give it accounts, or set "
        f"{KEY}=true in its configuration file"
    )
    return RequestRefused(ResponseCode.NO_PERMISSION, remark)
