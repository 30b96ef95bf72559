"""StaticTopics: requests for logic queues, whose parts are on several brokers."""

from __future__ import annotations

import trio

from ...common.supervision import Supervisor
from ..part import Foundation, Part
from ..tables.part import Tables
from .peer_brokers import PeerBrokers
from .static_topic import StaticTopicProcessor
from .topic_queue_mapping_clean import CLEAN_INTERVAL_S, TopicQueueMappingCleanService


class StaticTopics(Part):
    """The static topics of a broker.

    Attributes:
      processor: rewrites requests for logic queues; other processors call it.
      cleaner: removes what the mappings no longer need.
    """

    def __init__(self, foundation: Foundation, tables: Tables) -> None:
        self._store = foundation.store
        peers = PeerBrokers(foundation.config, foundation.seams.client)
        self.processor = StaticTopicProcessor(
            foundation.config, tables.mappings, peers, now_s=trio.current_time
        )
        self.cleaner = TopicQueueMappingCleanService(tables.mappings, foundation.store, peers)
        foundation.new_messages.subscribe(self.processor.arrived)

    async def start(self, services: Supervisor) -> None:
        """See `Part`."""
        if not self._store.is_slave:
            services.every(
                "the cleaning of queue mappings", CLEAN_INTERVAL_S, self.cleaner.clean_when_due
            )
