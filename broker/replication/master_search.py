"""MasterSearch: asks the master that a controller has named where its slaves connect.

The controller knows the address for requests only. The name servers know the HA port, too, but
hear of a new master later.

Java counterpart: BrokerOuterAPI.retrieveBrokerHaInfo of 5.5.0.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import trio

from ...remoting.client import RemotingClient
from ...remoting.codec import RemotingCommand
from ...remoting.errors import RemotingError, RequestRefused
from ...remoting.headers import ExchangeHAInfoHeader, decode
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode
from ..cluster.registration_answer import Master

logger = logging.getLogger(__name__)

TIMEOUT_S: Final = 1.0
"""For the answer: the master is on the same network."""

PAUSE_S_MIN: Final = 0.05
"""Before the first repetition: a master that was just elected opens its data."""
PAUSE_S_MAX: Final = 2.0

ASK_AGAIN_S: Final = 30.0
"""Between two questions once it has answered: it may move its HA port at a restart. RocketMQ learns
it at each registration with the name servers."""


class MasterSearch:
    """Finds the HA port of one master.

    Args:
      client: running.
      address: `host:port` of the master for requests.
    """

    def __init__(self, client: RemotingClient, address: str) -> None:
        self._client = client
        self._address = address

    async def run(self, on_master: Callable[[Master | None], None]) -> None:
        """Ask until cancelled; `on_master` is called with each answer."""
        pause_s = PAUSE_S_MIN
        problem = ""
        while True:
            found = await self._ask()
            if isinstance(found, Master):
                on_master(found)
                problem, pause_s = "", PAUSE_S_MIN
                await trio.sleep(ASK_AGAIN_S)
                continue
            if found != problem:
                problem = found
                logger.warning(
                    "the master %(address)s does not say where slaves connect: %(problem)s; it is "
                    "asked again",
                    {"address": self._address, "problem": problem},
                )
            await trio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)

    async def _ask(self) -> Master | str:
        """The master, or why it is not known."""
        request = RemotingCommand(RequestCode.EXCHANGE_BROKER_HA_INFO, {})
        try:
            answer = await self._client.call(self._address, request, TIMEOUT_S)
            header = decode(ExchangeHAInfoHeader, answer.ext_fields)
        except (RemotingError, RequestRefused, ValueError) as error:
            return str(error)
        if answer.code != ResponseCode.SUCCESS:
            return answer.remark or f"code {answer.code}"
        if not header.master_ha_address:
            return "it is no master yet"
        return Master(self._address, header.master_ha_address)
