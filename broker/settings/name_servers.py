"""Questions to the name servers, of which the first that can answer is enough.

Java counterpart: the calls without an address of remoting/netty/NettyRemotingClient.java of 5.5.0,
which go to one name server, the next one when it does not answer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from ...remoting.client import RemotingClient
from ...remoting.codec import RemotingCommand
from ...remoting.errors import RemotingError
from .config import BrokerConfig

logger = logging.getLogger(__name__)

T = TypeVar("T")


async def ask_name_servers(
    config: BrokerConfig,
    client: RemotingClient,
    request: Callable[[], RemotingCommand],
    read: Callable[[RemotingCommand], T | None],
    timeout_s: float,
) -> T | None:
    """Ask the name servers one after the other until one has an answer.

    Args:
      config: the broker's, with the addresses.
      client: running.
      request: makes the request; called for each name server.
      read: reads an answer of any code; None: it does not help, so the next one is asked. It may
        raise RemotingError.
      timeout_s: for all of them together.

    Returns: what was read; None: no name server has an answer.
    """
    servers = config.namesrv_addresses
    for server in servers:
        command = request()
        try:
            found = read(await client.call(server, command, timeout_s / len(servers)))
        except RemotingError as error:
            logger.debug(
                "name server %(server)s does not answer request %(code)d: %(error)s",
                {"server": server, "code": command.code, "error": error},
            )
            continue
        if found is not None:
            return found
    return None
