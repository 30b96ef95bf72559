"""Pop: the consumption of messages that are acknowledged one by one, and its services."""

from __future__ import annotations

from typing import Final

from ...common.steps import Steps
from ...common.supervision import Supervisor
from ...remoting.metrics.families import Samples
from ..clients.part import Clients
from ..cluster.part import Cluster
from ..delivering.part import Delivering
from ..part import AtCut, Foundation, LogFirst, Part, Processors, SavedFile, Serving
from ..stats.part import Stats
from ..tables.part import Tables
from . import metrics
from .ack_message import AckMessageProcessor
from .buffer_service import DROP_IDLE_INTERVAL_S
from .change_invisible_time import ChangeInvisibleTimeProcessor
from .kv_state import refuse_kv_state
from .order import CLEAN_INTERVAL_S
from .peek_message import PeekMessageProcessor
from .pop_checks import PopChecks
from .pop_message import PopMessageProcessor
from .pop_waiting import PopWaitingProcessor
from .query_assignment import QueryAssignmentProcessor
from .recorded_positions import NOTE_INTERVAL_S
from .services import make_services

SAVE_ORDERS_INTERVAL_S: Final = 10.0
"""Between two saves of the messages in order. RocketMQ: BrokerController.initialize."""


class Pop(Part):
    """Pop consumption of a broker.

    Attributes:
      services: its parts.
    """

    name = "the progress of pops"

    def __init__(
        self,
        foundation: Foundation,
        tables: Tables,
        clients: Clients,
        cluster: Cluster,
        delivering: Delivering,
        stats: Stats,
    ) -> None:
        self._foundation = foundation
        self._tables, self._clients, self._routes = tables, clients, cluster.routes
        self._stats = stats.manager
        self.services = services = make_services(
            foundation, tables, delivering.timers, stats.manager.pop
        )
        self.saved = (
            SavedFile(
                file=services.orders.table.file,
                at_cut=AtCut.ENDS,
                interval_s=lambda: SAVE_ORDERS_INTERVAL_S,
                log_first=LogFirst.TRIED,
            ),
        )
        foundation.new_messages.subscribe(services.hold.arrived, services.revive.arrived)
        foundation.closed_channels.subscribe(services.hold.channel_closed)

    def load_tables(self) -> None:
        """See `Part`."""
        store = self._foundation.store
        refuse_kv_state(store.disk, store.config.store_path_root_dir)

    def load(self, *, was_killed: bool) -> None:
        """See `Part`."""
        self.services.orders.load()

    def processors(self, serving: Serving) -> Processors:
        """See `Part`."""
        foundation, tables, pop, turn = self._foundation, self._tables, self.services, serving.turn
        config, store, random = foundation.config, foundation.store, foundation.seams.random
        topics, groups, consumers = tables.topics, tables.groups, self._clients.consumers
        checks = PopChecks(
            config, store.config, topics=topics, groups=groups, compensated=consumers.compensated
        )
        pops = PopMessageProcessor(
            config,
            store,
            turn,
            pop,
            checks,
            topics=topics,
            offsets=tables.offsets,
            random=random,
            stats=self._stats,
            monotonic_s=foundation.seams.clock.monotonic_s,
        )
        waiting = PopWaitingProcessor(config, store, pop, checks, topics=topics, random=random)
        assignments = QueryAssignmentProcessor(
            config,
            modes=tables.request_modes,
            topics=topics,
            groups=groups,
            consumers=consumers,
            routes=self._routes,
        )
        return (
            pops.processors
            | AckMessageProcessor(config, store, turn, pop, topics).processors
            | ChangeInvisibleTimeProcessor(store, turn, pop, topics).processors
            | PeekMessageProcessor(store, pop, checks, random).processors
            | waiting.processors
            | assignments.processors
        )

    async def start(self, services: Supervisor) -> None:
        """See `Part`."""
        if self._foundation.store.is_slave:
            return
        pop = self.services
        services.start_soon("the storing of check points", pop.storing.run)
        services.every(
            "the search for queues without pops", DROP_IDLE_INTERVAL_S, pop.storing.drop_idle
        )
        services.start_soon("the waking of pops", pop.hold.run, self._foundation.seams.turn)
        pop.revive.load()
        pop.recorded.load()
        services.every("the noting of recorded pops", NOTE_INTERVAL_S, pop.recorded.note)
        services.start_soon("the revival of popped messages", pop.revive.run)
        services.start_soon("the release of queues in order", pop.orders.run)
        services.every("the cleaning of queues in order", CLEAN_INTERVAL_S, pop.orders.clean)

    def collect(self, samples: Samples) -> Steps[None]:
        """See `Part`."""
        if not self._foundation.config.enable_pop_metrics:
            return
        now_ms = self._foundation.store.clock.wall_ms()
        yield from metrics.collect(self.services, self._stats.pop, now_ms, samples)

    def topic_deleted(self, topic: str) -> None:
        """See `Part`."""
        self.services.buffer.forget_topic(topic)
        self.services.orders.table.remove_topic(topic)
        self.services.recorded.leave_behind()

    def group_deleted(self, group: str) -> None:
        """See `Part`."""
        self.services.buffer.forget_group(group)
        self.services.orders.table.remove_group(group)
        self.services.recorded.leave_behind()

    def wall_clock_set(self) -> None:
        """See `Part`."""
        self.services.storing.wake()
        self.services.revive.clock_set()
        self.services.orders.wake()

    def owes(self) -> bool:
        """See `Part`."""
        services = self.services
        return services.storing.is_busy or services.revive.is_busy or services.orders.is_busy

    def close(self) -> None:
        """See `Part`; messages whose check points are not stored are popped again."""
        self.services.storing.store_all()

    def note_progress(self) -> None:
        """See `Part`."""
        if not self._foundation.store.is_slave:
            self.services.revive.note_progress()
            self.services.recorded.note_all()
