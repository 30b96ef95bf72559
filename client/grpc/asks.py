"""Ask: a call that a request of the client becomes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from ...remoting.codec import RemotingCommand
from .client_profile import Member

Read: TypeAlias = Callable[[Sequence[Any]], RemotingCommand]
"""Makes the answer to the request of the messages of the call's answer, one or more."""


class Ask(NamedTuple):
    """A call.

    Attributes:
      method: its name, without a path.
      request: its message.
      read: see `Read`.
      member: who makes it; None: the client.
      timeout_s: how long the server may take, in seconds; None: as long as the request.
      quiet_s: seconds after which nothing is there, as the server waits longer; None: it does not.
    """

    method: str
    request: Any
    read: Read
    member: Member | None = None
    timeout_s: float | None = None
    quiet_s: float | None = None
