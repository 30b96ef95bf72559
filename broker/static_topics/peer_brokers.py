"""PeerBrokers: requests to the other brokers of a static topic, by name.

The addresses come from the name servers' list of brokers, which is requested when a name is not
known, or when a call has failed.

Java counterpart: remoting/rpc/RpcClientImpl.java, and refreshMetadata of broker/out/
BrokerOuterAPI.java of 5.5.0, which requests the list every 5 s.
"""

from __future__ import annotations

import math
from typing import Final

import trio

from ...remoting.bodies import ClusterInfo
from ...remoting.client import RemotingClient
from ...remoting.codec import RemotingCommand
from ...remoting.errors import RemotingError, RequestRefused
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode
from ..settings.config import MASTER_ID, BrokerConfig
from ..settings.name_servers import ask_name_servers

REFRESH_PAUSE_S: Final = 1.0
"""Between two requests for the list of brokers, while a broker cannot be found or reached."""

CALLS_MAX: Final = 10_000
"""Unanswered requests to other brokers; more are refused with SYSTEM_BUSY. A broker that is gone
keeps each of its requests for forwardTimeout."""


class PeerBrokers:
    """Calls the masters of other brokers. Requests fail in forwardTimeout, they never wait longer.

    Args:
      config: the broker's; read at each call.
      client: running.
    """

    def __init__(self, config: BrokerConfig, client: RemotingClient) -> None:
        self._config = config
        self._client = client
        self._addresses: dict[str, str] = {}
        self._suspect: set[str] = set()
        self._refreshed_s = -math.inf
        self._lock = trio.Lock()
        self._call_count = 0

    async def call(self, broker_name: str, command: RemotingCommand) -> RemotingCommand:
        """Send a request to the master of a broker name, and return its answer of any code.

        Raises: RequestRefused: SYSTEM_ERROR if no name server knows the broker, or it does not
          answer in time; SYSTEM_BUSY: CALLS_MAX requests wait.
        """
        if self._call_count >= CALLS_MAX:
            raise RequestRefused(
                ResponseCode.SYSTEM_BUSY,
                f"{CALLS_MAX} requests to other brokers of static topics wait for an answer",
            )
        timeout_s = self._config.forward_timeout / 1000
        self._call_count += 1
        try:
            with trio.fail_after(timeout_s):
                address = await self._address_of(broker_name, timeout_s / 2)
                answer = await self._client.call(address, command, timeout_s)
                self._suspect.discard(broker_name)
                return answer
        except trio.TooSlowError as error:
            self._suspect.add(broker_name)
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"broker {broker_name} did not answer within {timeout_s:g} s",
            ) from error
        except (RemotingError, ValueError) as error:
            self._suspect.add(broker_name)
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, f"broker {broker_name} cannot be asked: {error}"
            ) from error
        finally:
            self._call_count -= 1

    async def _address_of(self, broker_name: str, timeout_s: float) -> str:
        """The address of a broker; the known one if no name server answers in time."""
        address = self._addresses.get(broker_name)
        if address is None or broker_name in self._suspect:
            with trio.move_on_after(timeout_s):
                async with self._lock:
                    if trio.current_time() - self._refreshed_s >= REFRESH_PAUSE_S:
                        await self._refresh(timeout_s)
            address = self._addresses.get(broker_name)
        if address is None:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, f"cannot find addr for broker {broker_name}"
            )
        return address

    async def _refresh(self, timeout_s: float) -> None:
        """Request the list of brokers from the first name server that answers."""
        self._refreshed_s = trio.current_time()
        addresses = await ask_name_servers(
            self._config,
            self._client,
            lambda: RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO),
            _masters,
            timeout_s,
        )
        if addresses is not None:
            self._addresses = addresses
            self._suspect.clear()


def _masters(answer: RemotingCommand) -> dict[str, str] | None:
    """The addresses of the masters in a list of brokers; None: it is refused."""
    if answer.code != ResponseCode.SUCCESS:
        return None
    brokers = ClusterInfo.from_body(answer.body).broker_addr_table
    return {
        name: data.broker_addrs[MASTER_ID]
        for name, data in brokers.items()
        if MASTER_ID in data.broker_addrs
    }
