"""Requests about the name server's configuration: 318, 319.

Java counterpart: RocketMQ 5.3.3 namesrv/processor/DefaultRequestProcessor.java.
"""

from __future__ import annotations

from functools import partial

from ...remoting.channel import Answer, Channel, Deferred, Processor
from ...remoting.codec import RemotingCommand
from ...remoting.request_codes import RequestCode
from .. import settings
from .services import NamesrvServices


class ConfigProcessors:
    """Shows and changes the settings of one name server."""

    def __init__(self, services: NamesrvServices) -> None:
        self._config = services.config
        self._change = services.change_config
        self.processors: dict[RequestCode, Processor] = {
            RequestCode.UPDATE_NAMESRV_CONFIG: self.update,
            RequestCode.GET_NAMESRV_CONFIG: self.show,
        }

    def update(self, request: RemotingCommand, channel: Channel) -> Answer:
        """UPDATE_NAMESRV_CONFIG 318: properties text; see `ConfigChanges.change`."""
        if not request.body:
            return request.answer()
        return Deferred(partial(self._update, request, channel.remote_address))

    async def _update(self, request: RemotingCommand, peer: str) -> RemotingCommand:
        await self._change(request.body, peer)
        return request.answer()

    def show(self, request: RemotingCommand, _channel: Channel) -> RemotingCommand:
        """GET_NAMESRV_CONFIG 319: the keys that may be shown, as properties text."""
        return request.answer(body=settings.show(self._config))
