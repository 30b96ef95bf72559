"""Requests about the name server's configuration: 318, 319.

Java counterpart: RocketMQ 5.3.3 namesrv/processor/DefaultRequestProcessor.java.
"""

from __future__ import annotations

from functools import partial

from ...remoting.channel import Channel, Deferred, Processor
from ...remoting.codec import RemotingCommand
from ...remoting.request_codes import RequestCode
from .. import settings
from .services import NamesrvServices, answer_when_saved


class ConfigProcessors:
    """Shows and changes the settings of one name server."""

    def __init__(self, services: NamesrvServices) -> None:
        self._config = services.config
        self._save = services.save_config
        self.processors: dict[RequestCode, Processor] = {
            RequestCode.UPDATE_NAMESRV_CONFIG: self.update,
            RequestCode.GET_NAMESRV_CONFIG: self.show,
        }

    def update(self, request: RemotingCommand, _channel: Channel) -> RemotingCommand | Deferred:
        """UPDATE_NAMESRV_CONFIG 318: set allowed keys; answered when they are on disk."""
        values = settings.change(self._config, request.body)
        if not values:
            return request.answer()
        return answer_when_saved(request, "the configuration", partial(self._save, values))

    def show(self, request: RemotingCommand, _channel: Channel) -> RemotingCommand:
        """GET_NAMESRV_CONFIG 319: the keys that may be shown, as properties text."""
        return request.answer(body=settings.show(self._config))
