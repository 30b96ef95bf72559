"""Request processors of the name server, one module per noun.

Java counterparts: RocketMQ 5.3.3 namesrv/processor/DefaultRequestProcessor.java and
ClientRequestProcessor.java. Every code that those two serve is served here; any other one is
refused by the server with REQUEST_CODE_NOT_SUPPORTED.
"""

from __future__ import annotations

from ...remoting.channel import Processor
from ...remoting.request_codes import RequestCode
from .broker import BrokerProcessors, is_own_broker
from .config import ConfigProcessors
from .kv import KVProcessors
from .services import NamesrvServices
from .topic import TopicProcessors

__all__ = ["NamesrvServices", "is_own_broker", "name_server_processors"]


def name_server_processors(services: NamesrvServices) -> dict[RequestCode, Processor]:
    """The table for the RemotingServer of one name server."""
    return {
        **BrokerProcessors(services).processors,
        **TopicProcessors(services).processors,
        **KVProcessors(services).processors,
        **ConfigProcessors(services).processors,
    }
