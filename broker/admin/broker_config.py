"""Requests about the broker's configuration: UPDATE_BROKER_CONFIG (25), GET_BROKER_CONFIG (26).

Java counterpart: AdminBrokerProcessor.updateBrokerConfig and getBrokerConfig of 5.5.0.
Not done: keys that trocket does not support are neither shown nor taken.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from ...common.clock import Clock
from ...common.config import key_of, to_properties
from ...common.live_config import LiveConfig
from ...disk.config_changes import ConfigChanges
from ...remoting import fastjson
from ...remoting.bodies import DataVersion
from ...remoting.channel import Answer, Channel, Deferred, Processor
from ...remoting.codec import RemotingCommand
from ...remoting.headers import GetBrokerConfigResponseHeader, encode_header
from ...remoting.request_codes import RequestCode
from ..tables.config_text import next_version

HIDDEN: Final = "(hidden)"


class BrokerConfigProcessor:
    """Shows and changes the configuration of the broker and its store.

    Args:
      changes: changes and saves it.
      clock: its wall time at the start, and at each change, is part of the configuration's version.
      register_all: registers all topics with the name servers.
    """

    def __init__(
        self,
        live: LiveConfig,
        changes: ConfigChanges,
        *,
        clock: Clock,
        register_all: Callable[[], Awaitable[None]],
    ) -> None:
        self._live = live
        self._changes = changes
        self._clock = clock
        self._register_all = register_all
        self._version = DataVersion(timestamp=clock.wall_ms(), counter=0, state_version=0)
        self.processors: dict[RequestCode, Processor] = {
            RequestCode.UPDATE_BROKER_CONFIG: self._update,
            RequestCode.GET_BROKER_CONFIG: self._show,
        }

    def _update(self, request: RemotingCommand, channel: Channel) -> Answer:
        """UPDATE_BROKER_CONFIG 25: properties text; see `ConfigChanges.change`.

        With brokerPermission, the answer waits until the name servers know the topics' permissions,
        as long as for a new topic.
        """
        if not request.body:
            return request.answer()
        return Deferred(partial(self._change, request, channel.remote_address))

    async def _change(self, request: RemotingCommand, peer: str) -> RemotingCommand:
        values = await self._changes.change(request.body, peer)
        if values:
            self._version = next_version(self._version, self._clock.wall_ms())
        if "brokerPermission" in values:
            await self._register_all()
        return request.answer(remark=self._changes.unsaved_remark or None)

    def _show(self, request: RemotingCommand, _: Channel) -> Answer:
        """GET_BROKER_CONFIG 26: a line `key=value` for each key, sorted, as properties text."""
        values = {"useTLS": "false"}  # without it exportConfigs of mqadmin 4.9 fails
        for config in self._live.configs:
            values.update(to_properties(config))
            for field in dataclasses.fields(config):
                if "secret" in field.metadata and getattr(config, field.name):
                    # Every peer may send this request.
                    values[key_of(field)] = HIDDEN
        body = "".join(f"{key}={value}\n" for key, value in sorted(values.items())).encode()
        header = GetBrokerConfigResponseHeader(version=fastjson.dumps(self._version).decode())
        return request.answer(ext_fields=encode_header(header), body=body)
