"""Stats: the broker's counters, and their samples every ten seconds."""

from __future__ import annotations

import logging

from ...common.steps import in_steps
from ...common.supervision import Supervisor
from ...disk.errors import StoreError
from ..part import Foundation, Part
from .broker_stats_manager import BrokerStatsManager
from .stats_item import SAMPLE_INTERVAL_MS

logger = logging.getLogger(__name__)


class Stats(Part):
    """The statistics of a broker.

    Attributes:
      manager: the counters.
    """

    def __init__(self, foundation: Foundation) -> None:
        config, store = foundation.config, foundation.store
        self.manager = BrokerStatsManager(
            config.broker_cluster_name,
            store.queue_store.queues,
            counts_puts=not store.is_slave,
            clock=foundation.seams.clock,
            has_details=config.enable_detail_stat,
        )

    def load(self, *, was_killed: bool) -> None:
        """See `Part`."""
        self.manager.start()

    async def start(self, services: Supervisor) -> None:
        """See `Part`."""
        services.every("the statistics", SAMPLE_INTERVAL_MS / 1000, self._sample)

    def topic_deleted(self, topic: str) -> None:
        """See `Part`."""
        self.manager.topic_deleted(topic)

    def group_deleted(self, group: str) -> None:
        """See `Part`."""
        self.manager.group_deleted(group)

    async def _sample(self) -> None:
        try:
            await in_steps(self.manager.sample())
        except StoreError as error:
            logger.warning(
                "the sizes of new messages cannot be read, so rates stay as they were: "
                "%(error)s. The next attempt follows in %(interval_s)d s",
                {"error": error, "interval_s": SAMPLE_INTERVAL_MS // 1000},
            )
