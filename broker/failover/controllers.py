"""Controllers: finds the controller that leads, and calls it.

No call waits for a controller that hangs: all are asked at once, under one deadline.

Source: BrokerOuterAPI and ReplicasManager.updateControllerMetadata of RocketMQ 5.5.0.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Final

import trio

from ...remoting.client import RemotingClient
from ...remoting.codec import RemotingCommand
from ...remoting.errors import RemotingError, RequestRefused
from ...remoting.headers import (
    BrokerHeartbeatRequestHeader,
    GetMetaDataResponseHeader,
    Header,
    decode,
    encode_header,
)
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode

logger = logging.getLogger(__name__)

CALL_TIMEOUT_S: Final = 3.0
"""For the answer of a controller, which may have to write to its store. Source: BrokerOuterAPI."""

FIND_TIMEOUT_S: Final = 1.0
"""For the answers to the question which controller leads."""


class NoLeaderError(RemotingError):
    """No controller that answers leads, or knows the one that does."""


class Controllers:
    """The controllers of one set.

    Args:
      client: running.
      addresses: of controllerAddr, `host:port` each.

    Attributes:
      leader: `host:port` of the controller that leads, as far as known; "": unknown.
    """

    def __init__(self, client: RemotingClient, addresses: Collection[str]) -> None:
        self.leader = ""
        self._client = client
        self._addresses = tuple(addresses)
        self._silent: set[str] = set()

    async def find_leader(self) -> str:
        """Ask all controllers who leads; returns its address, "": unknown."""
        found: dict[str, bool] = {}  # a leader's address, and whether itself says so

        async def ask(address: str, nursery: trio.Nursery) -> None:
            answer = await self._ask(address, RequestCode.CONTROLLER_GET_METADATA_INFO)
            if answer is None or answer.code != ResponseCode.SUCCESS:
                return
            try:
                header = decode(GetMetaDataResponseHeader, answer.ext_fields)
            except RequestRefused:
                return
            if header.is_leader:
                # The address in controllerAddr is the one that this broker can reach.
                found[address] = True
                nursery.cancel_scope.cancel()
            elif header.controller_leader_address:
                found.setdefault(header.controller_leader_address, False)

        with trio.move_on_after(FIND_TIMEOUT_S):
            async with trio.open_nursery() as nursery:
                for address in self._addresses:
                    nursery.start_soon(ask, address, nursery)
        leader = max(found, key=lambda each: found[each], default="")
        if leader != self.leader:
            self.leader = leader
            if leader:
                logger.info("the controller that leads is %(address)s", {"address": leader})
            else:
                logger.warning(
                    "no controller of %(addresses)s answers as, or names, the one that leads: the "
                    "broker goes on in its role, and asks again",
                    {"addresses": ";".join(self._addresses)},
                )
        return leader

    async def call(self, code: RequestCode, header: Header, body: bytes = b"") -> RemotingCommand:
        """Ask the controller that leads; its answer may be a refusal.

        Raises: RemotingError: none leads, or it cannot be reached, or does not answer in time.
        """
        leader = self.leader or await self.find_leader()
        if not leader:
            raise NoLeaderError("no controller that answers leads")
        request = RemotingCommand(code, encode_header(header), body)
        try:
            answer = await self._client.call(leader, request, CALL_TIMEOUT_S)
        except RemotingError:
            self._forget(leader)
            raise
        if answer.code == ResponseCode.CONTROLLER_NOT_LEADER:
            self._forget(leader)
            raise NoLeaderError(f"the controller {leader} does not lead any more")
        return answer

    async def beat(
        self, address: str, header: BrokerHeartbeatRequestHeader, timeout_s: float
    ) -> bool:
        """Send a heartbeat to one controller; returns whether it leads and has taken it.

        An answer shows that the heartbeat was taken, which a oneway request would not.
        """
        answer = await self._ask(address, RequestCode.BROKER_HEARTBEAT, header, timeout_s)
        return answer is not None and answer.code == ResponseCode.SUCCESS and address == self.leader

    @property
    def addresses(self) -> set[str]:
        """All controllers: those of the configuration, and the one that leads."""
        return {*self._addresses, self.leader} - {""}

    async def _ask(
        self,
        address: str,
        code: RequestCode,
        header: Header | None = None,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> RemotingCommand | None:
        """One controller's answer; None: it gave none."""
        fields = {} if header is None else encode_header(header)
        try:
            answer = await self._client.call(address, RemotingCommand(code, fields), timeout_s)
        except (RemotingError, ValueError) as error:
            if address not in self._silent:
                self._silent.add(address)
                logger.warning(
                    "the controller %(address)s does not answer: %(error)s",
                    {"address": address, "error": error},
                )
            return None
        self._silent.discard(address)
        return answer

    def _forget(self, leader: str) -> None:
        if self.leader == leader:
            self.leader = ""
