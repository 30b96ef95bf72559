"""Clients: connected producers and consumers, their groups, and their locks of queues."""

from __future__ import annotations

from typing import Final

from ...common.steps import in_steps
from ...common.supervision import Supervisor
from ..cluster.part import Cluster
from ..filters.part import Filters
from ..part import Foundation, Part, Processors, Serving
from ..tables.part import Tables
from .client_manage import ClientManageProcessor
from .consumer_manage import ConsumerManageProcessor
from .consumer_manager import ConsumerManager
from .lock import LockProcessor
from .member_notifier import MemberNotifier
from .producer_manager import ProducerManager
from .rebalance_lock_manager import RebalanceLockManager

SCAN_INTERVAL_S: Final = 10.0
"""Between two scans for clients without heartbeats. RocketMQ: ClientHousekeepingService."""


class Clients(Part):
    """Connected clients, and the notifications of their groups.

    Attributes:
      producers, consumers: the clients by their groups.
      locks: of the queues of groups that consume in order.
      notifier: tells the members of a group that it changed.
    """

    def __init__(
        self, foundation: Foundation, tables: Tables, filters: Filters, cluster: Cluster
    ) -> None:
        self._foundation = foundation
        self._config = config = foundation.config
        self._clock = foundation.seams.clock
        self._tables, self._filters, self._cluster = tables, filters, cluster
        expired_s = config.channel_expired_timeout / 1000
        self.notifier = MemberNotifier(lambda: config.notify_consumer_ids_changed_enable)
        self.producers = ProducerManager(expired_s=expired_s)
        self.consumers = ConsumerManager(
            notify=self.notifier.notify,
            expired_s=expired_s,
            on_group_gone=filters.table.unregister,
        )
        self.locks = RebalanceLockManager()
        foundation.closed_channels.subscribe(
            self.consumers.channel_closed, self.producers.channel_closed
        )
        foundation.live.subscribe(self._settings_changed, "channelExpiredTimeout")

    def is_ordered(self, group: str) -> bool:
        """Whether a group consumes in order, that is, a client of it holds locks."""
        return not self.locks.is_all_expired(group, now_s=self._clock.monotonic_s())

    def processors(self, serving: Serving) -> Processors:
        """See `Part`."""
        manage = ClientManageProcessor(
            self._config,
            consumers=self.consumers,
            producers=self.producers,
            groups=self._tables.groups,
            topics=self._tables.topics,
            clock=self._clock,
            register_topics=self._cluster.registrar.register_topics,
            filters=self._filters.used,
            refusals=self._foundation.refusals,
        )
        offsets = ConsumerManageProcessor(
            consumers=self.consumers,
            offsets=self._tables.offsets,
            groups=self._tables.groups,
            topics=self._tables.topics,
            store=self._foundation.store,
        )
        locks = LockProcessor(self.locks, clock=self._clock)
        return manage.processors | offsets.processors | locks.processors

    async def start(self, services: Supervisor) -> None:
        """See `Part`."""
        services.start_soon("the notification of groups", self.notifier.run)
        services.every("the scan for expired clients", SCAN_INTERVAL_S, self._scan)

    def topic_deleted(self, topic: str) -> None:
        """See `Part`."""
        self.consumers.compensated.topic_deleted(topic)

    def group_deleted(self, group: str) -> None:
        """See `Part`."""
        self.consumers.compensated.group_deleted(group)

    async def _scan(self) -> None:
        now_s = self._clock.monotonic_s()
        await in_steps(self.locks.remove_expired(now_s=now_s))
        kept_ms = self._config.subscription_expired_timeout
        self.consumers.compensated.expire(self._clock.wall_ms() - kept_ms)
        await in_steps(self.consumers.scan_inactive(now_s))
        await in_steps(self.producers.scan_inactive(now_s))

    def _settings_changed(self) -> None:
        expired_s = self._config.channel_expired_timeout / 1000
        self.producers.expired_s = self.consumers.expired_s = expired_s
