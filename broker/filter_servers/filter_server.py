"""Registration of filter servers, every 10 s: REGISTER_FILTER_SERVER (301).

Java counterpart: AdminBrokerProcessor.registerFilterServer of 4.2.0. Pure.
"""

from __future__ import annotations

from ...common.clock import Clock
from ...remoting.channel import Answer, Channel, Processor
from ...remoting.codec import RemotingCommand
from ...remoting.headers import (
    RegisterFilterServerRequestHeader,
    RegisterFilterServerResponseHeader,
    decode,
    encode_header,
)
from ...remoting.request_codes import RequestCode
from ..settings.config import BrokerConfig
from .filter_server_manager import FilterServerManager


class FilterServerProcessor:
    """Registers filter servers.

    Args:
      config: the broker's; its name and id are the answer.
      clock: its monotonic time goes into the table.
    """

    def __init__(
        self, config: BrokerConfig, filter_servers: FilterServerManager, *, clock: Clock
    ) -> None:
        self._config = config
        self._filter_servers = filter_servers
        self._clock = clock
        self.processors: dict[RequestCode, Processor] = {
            RequestCode.REGISTER_FILTER_SERVER: self._register
        }

    def _register(self, request: RemotingCommand, channel: Channel) -> Answer:
        header = decode(RegisterFilterServerRequestHeader, request.ext_fields)
        self._filter_servers.register(
            channel, header.filter_server_addr, now_s=self._clock.monotonic_s()
        )
        answer = RegisterFilterServerResponseHeader(
            broker_name=self._config.broker_name, broker_id=self._config.broker_id
        )
        return request.answer(ext_fields=encode_header(answer))
