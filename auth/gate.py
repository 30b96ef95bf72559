"""The gate before a server's processors: each request is checked before it is served.

It writes the audit log.

A server without accounts has no gate, so it costs nothing there. With one, every processor of the
table is another than those that the C extension's runs replace, so no run is served
(`Connection._has_processors_of`), and every request comes here as a command.

Java counterpart: RocketMQ 5.3.3 broker/auth/pipeline/*.java.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..remoting.channel import Answer, Channel, Processor
from ..remoting.codec import RemotingCommand
from ..remoting.errors import RequestRefused
from .audit import audited, note_refused

Check = Callable[[RemotingCommand, Channel], object]
"""Raises RequestRefused for a request that must not be served."""


def guarded(processors: Mapping[int, Processor], check: Check) -> dict[int, Processor]:
    """A table of processors that serve only what the check lets pass.

    Args:
      processors: all that a server has, by request code.
      check: called before each request, also before one that is served again later.
    """
    return {code: _guarded(audited(code, process), check) for code, process in processors.items()}


def _guarded(process: Processor, check: Check) -> Processor:
    def checked(request: RemotingCommand, channel: Channel) -> Answer:
        try:
            check(request, channel)
        except RequestRefused as refusal:
            note_refused(request, channel, refusal)
            raise
        return process(request, channel)

    return checked
