"""Assembly of pop consumption: creates its parts and connects them; nothing here runs."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

import trio

from ...common.clock import Clock, WallTimeMs
from ...common.topic_names import revive_topic
from ...disk.state_files import StateFiles
from ...store.message_store import MessageStore
from ...store.queues.new_tags import tags_codes_since
from ..delivering.timer_message_service import TimerMessageService
from ..messages.inner_message import InnerPuts
from ..settings.broker_address import BrokerAddress
from ..settings.config import BrokerConfig
from ..stats.pop_counts import PopCounts
from ..tables.consumer_offset_manager import ConsumerOffsetManager
from ..tables.subscription_group_manager import SubscriptionGroupManager
from ..tables.topic_config_manager import TopicConfigManager
from .buffer import PopBuffer
from .buffer_service import PopBufferService
from .hold import PopHold
from .order import OrderedPops
from .parts import Pop
from .positions import PopPositions
from .record_puts import RecordPuts
from .recorded_positions import RecordedPositions
from .redelivery import Redelivery
from .retry_topics import PopRetryTopics
from .revive_service import ReviveService


def assemble_pop(
    config: BrokerConfig,
    store: MessageStore,
    address: BrokerAddress,
    *,
    clock: Clock,
    clients_ms: Callable[[], WallTimeMs] | None,
    files: StateFiles,
    topics: TopicConfigManager,
    groups: SubscriptionGroupManager,
    offsets: ConsumerOffsetManager,
    puts: InnerPuts,
    timers: TimerMessageService,
    on_messages: Callable[[Collection[tuple[str, int]]], None],
    counts: PopCounts,
) -> Pop:
    """Create the parts of pop consumption.

    Args:
      clients_ms: the time of day of clients; None: that of `clock`.
      files, topics, groups, offsets: its tables, and where they are saved.
      puts: appends messages that the broker stores itself.
      timers: deliver the records when they are due.
      on_messages: called with the queues that got messages.
      counts: counts what happens to popped messages.
    """
    topic = revive_topic(config.broker_cluster_name)
    records = RecordPuts(store, puts, topic, lambda: address.store_host, counts)
    buffer = _buffer(config, store, offsets, counts, started_ms=clock.wall_ms())
    storing = PopBufferService(
        store, clock=clock, buffer=buffer, puts=records, on_messages=on_messages
    )
    retry_topics = PopRetryTopics(config, topics, offsets, groups.contains)
    hold = _hold(config, store, clock, clients_ms or clock.wall_ms)
    orders = OrderedPops.of_store(
        config,
        store,
        files=files,
        buffer=buffer,
        offsets=offsets,
        topics=topics,
        groups=groups,
        wake=hold.notify,
    )
    positions = PopPositions(config, store, offsets, buffer, orders.reset)
    revive = _revive(
        config,
        store,
        address,
        clock=clock,
        topics=topics,
        groups=groups,
        offsets=offsets,
        puts=puts,
        records=records,
        retry_topics=retry_topics,
        timers=timers,
        on_messages=on_messages,
        counts=counts,
    )
    # The buffer counts what is in flight, also messages whose check points it has stored.
    revive.on_revived = lambda check_point, count: buffer.landed(check_point.key, count)
    recorded = RecordedPositions(store, offsets, buffer, revive, records)
    return Pop(records, buffer, storing, positions, retry_topics, hold, revive, orders, recorded)


def _buffer(
    config: BrokerConfig,
    store: MessageStore,
    offsets: ConsumerOffsetManager,
    counts: PopCounts,
    *,
    started_ms: int,
) -> PopBuffer:
    return PopBuffer(
        config,
        offsets,
        flushed=lambda: store.flusher.flushed_offset,
        counts=counts,
        started_ms=started_ms,
    )


def _hold(
    config: BrokerConfig,
    store: MessageStore,
    clock: Clock,
    clients_ms: Callable[[], WallTimeMs],
) -> PopHold:
    return PopHold(
        config,
        clock,
        clients_ms=clients_ms,
        now_s=trio.current_time,
        tags_codes_since=partial(tags_codes_since, store.queue_store.queues),
    )


def _revive(
    config: BrokerConfig,
    store: MessageStore,
    address: BrokerAddress,
    *,
    clock: Clock,
    topics: TopicConfigManager,
    groups: SubscriptionGroupManager,
    offsets: ConsumerOffsetManager,
    puts: InnerPuts,
    records: RecordPuts,
    retry_topics: PopRetryTopics,
    timers: TimerMessageService,
    on_messages: Callable[[Collection[tuple[str, int]]], None],
    counts: PopCounts,
) -> ReviveService:
    redelivery = Redelivery(
        config,
        store,
        clock=clock,
        topics=topics,
        groups=groups,
        puts=puts,
        records=records,
        retry_topics=retry_topics,
        host=lambda: address.store_host,
        counts=counts,
    )
    return ReviveService(
        config,
        store,
        clock=clock,
        timers=timers,
        offsets=offsets,
        topic=records.topic,
        topics=topics,
        redelivery=redelivery,
        on_messages=on_messages,
        counts=counts,
    )
