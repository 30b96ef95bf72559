"""Admin: the requests of administrators, and of tools that look messages and offsets up."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

import trio

from ...disk.config_changes import ConfigChanges
from ...store.message_store import MessageStore
from ...store.offsets import PhysicalOffset
from ..clients.part import Clients
from ..cluster.part import Cluster
from ..delivering.part import Delivering
from ..filters.filter_bit_maps import FilterBitMaps
from ..filters.part import Filters
from ..part import Foundation, Part, Processors, Serving
from ..pop.part import Pop
from ..pulling.fast_paths import fast_paths
from ..pulling.part import Pulling
from ..stats.part import Stats
from ..tables.part import Tables
from ..transactions.part import Transactions
from .broker_config import BrokerConfigProcessor
from .cleaning import CleaningProcessor
from .client_admin import ClientAdminProcessor
from .group_admin import GroupAdminProcessor
from .group_look_ups import GroupLookUpProcessor
from .query_consume_queue import QueryConsumeQueueProcessor
from .query_message import QueryMessageProcessor
from .queue_offset import QueueOffsetProcessor
from .rocksdb import RocksDbProcessor
from .runtime_info import RuntimeInfo, RuntimeInfoProcessor
from .stats import StatisticsProcessor
from .topic_admin import TopicAdminProcessor


class Admin(Part):
    """What administrators and tools ask of a broker.

    Args:
      forget_topic, forget_group: called with the name of each that was deleted.

    Attributes:
      runtime_info: what the broker tells of itself.
    """

    def __init__(
        self,
        foundation: Foundation,
        *,
        tables: Tables,
        filters: Filters,
        clients: Clients,
        cluster: Cluster,
        pulling: Pulling,
        pop: Pop,
        delivering: Delivering,
        transactions: Transactions,
        stats: Stats,
        forget_topic: Callable[[str], None],
        forget_group: Callable[[str], None],
    ) -> None:
        self._foundation = foundation
        self._tables, self._filters, self._clients = tables, filters, clients
        self._registrar, self._pulling, self._pop = cluster.registrar, pulling, pop
        self._stats = stats.manager
        self._forget_topic, self._forget_group = forget_topic, forget_group
        store = foundation.store
        self.runtime_info = RuntimeInfo(
            foundation.config,
            store,
            stats.manager,
            delay_offsets=tables.delay_offsets,
            timers=delivering.used_timers,
            is_active=lambda: not store.is_slave,
            paths=partial(fast_paths, store, pulling.processor, transactions.service.counts),
        )

    def processors(self, serving: Serving) -> Processors:
        """See `Part`."""
        foundation, tables, clients = self._foundation, self._tables, self._clients
        store, filters = foundation.store, self._filters
        consumers, producers = clients.consumers, clients.producers
        live, seams = foundation.live, foundation.seams
        bit_maps = FilterBitMaps(filters.table, monotonic_s=seams.clock.monotonic_s)
        return (
            self._topic_admin().processors
            | self._group_admin().processors
            | self._statistics().processors
            | ClientAdminProcessor(
                foundation.config,
                store,
                consumers=consumers,
                producers=producers,
                offsets=tables.offsets,
                topics=tables.topics,
                groups=tables.groups,
                try_pulls=self._try_again,
            ).processors
            | GroupLookUpProcessor(
                store,
                broker_addr=foundation.address.broker_addr,
                topics=tables.topics,
                offsets=tables.offsets,
                consumers=consumers,
                producers=producers,
            ).processors
            | BrokerConfigProcessor(
                live,
                ConfigChanges(live, seams.disk, seams.config_path),
                clock=seams.clock,
                register_all=self._registrar.register_all,
            ).processors
            | QueryConsumeQueueProcessor(store, consumers, filters.table, bit_maps).processors
            | QueryMessageProcessor(store).processors
            | QueueOffsetProcessor(store, store.queue_store.batch_topics).processors
            | CleaningProcessor(store, tables.topics).processors
            | RuntimeInfoProcessor(self.runtime_info).processors
            | RocksDbProcessor().processors
        )

    def _topic_admin(self) -> TopicAdminProcessor:
        store, tables = self._foundation.store, self._tables
        return TopicAdminProcessor(
            topics=tables.topics,
            mappings=tables.mappings,
            offsets=tables.offsets,
            store=store,
            register_topics=self._registrar.register_topics,
            on_deleted=self._forget_topic,
            times_ms=self._stats.topic_creations_ms,
            until_visible=lambda: _until_visible(store),
            config=self._foundation.config,
        )

    def _group_admin(self) -> GroupAdminProcessor:
        return GroupAdminProcessor(
            groups=self._tables.groups,
            offsets=self._tables.offsets,
            on_deleted=self._forget_group,
            times_ms=self._stats.group_creations_ms,
            is_slave=self._foundation.store.is_slave,
        )

    def _statistics(self) -> StatisticsProcessor:
        tables = self._tables
        return StatisticsProcessor(
            self._foundation.store,
            self._stats,
            broker_name=self._foundation.config.broker_name,
            broker_addr=self._foundation.address.broker_addr,
            topics=tables.topics,
            static_topics=tables.mappings.topic_queue_mapping_table,
            groups=tables.groups,
            offsets=tables.offsets,
            consumers=self._clients.consumers,
            pops=self._pop.services.buffer,
        )

    def _try_again(self, queues: Collection[tuple[str, int]]) -> None:
        """Try the pulls and pops again that wait for messages of queues with other offsets now."""
        self._pulling.processor.hold_service.notify_messages(queues)
        self._pop.services.hold.arrived(queues)


async def _until_visible(store: MessageStore) -> None:
    """Wait until all messages that are stored now are on disk and slaves, as configured."""
    end = store.max_physical_offset
    if end > 0 and store.answers_later:
        done = trio.Event()
        store.when_replicated(PhysicalOffset(end - 1), lambda status: done.set())
        await done.wait()
