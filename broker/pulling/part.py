"""Pulling: pulls, and those of them that are held until messages arrive."""

from __future__ import annotations

import trio

from ...common.supervision import Supervisor
from ..clients.part import Clients
from ..filters.part import Filters
from ..part import Foundation, Part, Processors, Serving
from ..static_topics.part import StaticTopics
from ..stats.part import Stats
from ..tables.part import Tables
from .pull_message import PullMessageProcessor
from .pull_runs import HasMaster


class Pulling(Part):
    """The pulls of a broker.

    Attributes:
      processor: serves pulls, and holds those that wait for messages.
    """

    def __init__(
        self,
        foundation: Foundation,
        tables: Tables,
        filters: Filters,
        clients: Clients,
        static_topics: StaticTopics,
        stats: Stats,
        replication: HasMaster,
    ) -> None:
        self._turn = foundation.seams.turn
        self.processor = PullMessageProcessor(
            foundation.config,
            foundation.store,
            topics=tables.topics,
            groups=tables.groups,
            consumers=clients.consumers,
            offsets=tables.offsets,
            now_s=trio.current_time,
            filters=filters.used,
            bit_maps=filters.bit_maps,
            replication=replication,
            stats=stats.manager,
            static=static_topics.processor,
        )
        foundation.new_messages.subscribe(self.processor.hold_service.notify_messages)
        foundation.live.subscribe(
            self.processor.settings_changed,
            "brokerPermission",
            "heldPullsMax",
            "litePullMessageEnable",
            "longPollingEnable",
            "slaveReadEnable",
        )

    def processors(self, serving: Serving) -> Processors:
        """See `Part`."""
        return self.processor.processors

    async def start(self, services: Supervisor) -> None:
        """See `Part`."""
        hold_service = self.processor.hold_service
        services.start_soon("the waking of held pulls", hold_service.run, self._turn)
