"""Standing: whether a request that was allowed when it came still is when its answer is made.

A pull or pop may wait for half an hour, and its user be disabled, deleted or denied meanwhile. Its
signature cannot be checked again, because what waits keeps neither body nor all fields. So a
connection keeps the accounts that were proven on it, and a request that waits is decided again by
the account as it is now, whose password must be the one that was proven.

Java counterpart: none: RocketMQ answers such requests. Pure.
"""

from __future__ import annotations

from typing import Final, Protocol

from ..remoting.channel import Channel
from ..remoting.codec import RemotingCommand
from ..remoting.errors import RequestRefused
from ..remoting.signature import ACCESS_KEY

PROVEN: Final = "accounts that signed requests"
"""The attribute of a connection with the password of each, by name."""

PROVEN_MAX: Final = 100
"""Accounts that one connection keeps. A client has one, a proxy that signs for its users a few;
with more than that all are forgotten, and what waits for them is refused at its end."""


class Rights(Protocol):
    """The accounts of a server, as requests that wait see them."""

    def revoked(self, request: RemotingCommand, channel: Channel) -> RequestRefused | None:
        """Why a request that was allowed on this connection is no longer; None: it still is.

        Args:
          request: with its code and the fields AccessKey, topic and consumerGroup at least.
        """


def note_proven(channel: Channel, name: str, password: str) -> None:
    """Remember that an account signed a request on a connection."""
    proven = channel.attributes.get(PROVEN)
    if not isinstance(proven, dict):
        proven = channel.attributes[PROVEN] = {}
    if proven.get(name) != password:
        if len(proven) >= PROVEN_MAX:
            proven.clear()
        proven[name] = password


def is_proven(channel: Channel, name: str, password: str) -> bool:
    """Whether an account signed a request on a connection, with that password."""
    proven = channel.attributes.get(PROVEN)
    return isinstance(proven, dict) and proven.get(name) == password


def owner_of_id(client_id: str, request: RemotingCommand, channel: Channel) -> str:
    """What stands for a client in a table that all users share: its id, and with accounts the user
    with it, because each client chooses its id."""
    proven = channel.attributes.get(PROVEN)
    name = request.ext_fields.get(ACCESS_KEY, "")
    if not isinstance(proven, dict) or name not in proven:
        return client_id
    return f"{client_id!r} of user {name!r}"


def asker_of(request: RemotingCommand, topic: str, group: str) -> RemotingCommand:
    """The part of a pull by which `Rights` decides again."""
    fields = {
        ACCESS_KEY: request.ext_fields.get(ACCESS_KEY, ""),
        "topic": topic,
        "consumerGroup": group,
    }
    return RemotingCommand(request.code, fields)
