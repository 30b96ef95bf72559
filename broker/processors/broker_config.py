"""Requests about the broker's configuration: GET_BROKER_CONFIG (26).

Java counterpart: AdminBrokerProcessor.getBrokerConfig of 5.5.0. Pure.
Not done: keys that trocket does not support are not shown.
"""

from __future__ import annotations

from ...common.config import to_properties
from ...remoting import fastjson
from ...remoting.bodies import DataVersion
from ...remoting.channel import Answer, Channel, Processor
from ...remoting.codec import RemotingCommand
from ...remoting.headers import GetBrokerConfigResponseHeader, encode_header
from ...remoting.request_codes import RequestCode
from ...store.config import MessageStoreConfig
from ..config import BrokerConfig


class BrokerConfigProcessor:
    """Shows the configuration of the broker and its store.

    Args:
      config: the broker's keys.
      store_config: the store's keys.
      started_ms: wall clock at the start, ms since 1970; the version of the configuration.
    """

    def __init__(
        self, config: BrokerConfig, store_config: MessageStoreConfig, *, started_ms: int
    ) -> None:
        self._configs = (config, store_config)
        self._version = DataVersion(timestamp=started_ms, counter=0, state_version=0)
        self.processors: dict[RequestCode, Processor] = {RequestCode.GET_BROKER_CONFIG: self._show}

    def _show(self, request: RemotingCommand, _: Channel) -> Answer:
        """GET_BROKER_CONFIG 26: a line `key=value` for each key, sorted, as properties text."""
        values = {"useTLS": "false"}  # without it exportConfigs of mqadmin 4.9 fails
        for config in self._configs:
            values.update(to_properties(config))
        body = "".join(f"{key}={value}\n" for key, value in sorted(values.items())).encode()
        header = GetBrokerConfigResponseHeader(version=fastjson.dumps(self._version).decode())
        return request.answer(ext_fields=encode_header(header), body=body)
