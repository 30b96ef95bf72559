"""PopServices: the parts of pop consumption, created and connected; nothing here runs.

Each belongs to one module of this folder.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import trio

from ...common.topic_names import revive_topic
from ...store.queues.new_tags import tags_codes_since
from ..delivering.timer_message_service import TimerMessageService
from ..part import Foundation
from ..stats.pop_counts import PopCounts
from ..tables.part import Tables
from .buffer import PopBuffer
from .buffer_service import PopBufferService
from .hold import PopHold
from .order import OrderedPops
from .positions import PopPositions
from .record_puts import RecordPuts
from .recorded_positions import RecordedPositions
from .redelivery import Redelivery
from .retry_topics import PopRetryTopics
from .revive_service import ReviveService


@dataclass(frozen=True, slots=True, kw_only=True)
class PopServices:
    """The parts of pop consumption.

    Attributes:
      puts: appends the records of check points and acknowledgements.
      buffer: the check points in memory, and the order of commits.
      storing: stores what is due of the buffer.
      positions: where the next pops begin.
      retry_topics: names and creates retry topics.
      hold: the waiting pops.
      revive: gives messages to their group again that were not acknowledged.
      orders: pops in order.
      recorded: where pops go on after a crash.
    """

    puts: RecordPuts
    buffer: PopBuffer
    storing: PopBufferService
    positions: PopPositions
    retry_topics: PopRetryTopics
    hold: PopHold
    revive: ReviveService
    orders: OrderedPops
    recorded: RecordedPositions


def make_services(
    foundation: Foundation, tables: Tables, timers: TimerMessageService, counts: PopCounts
) -> PopServices:
    """Create the services, and connect them.

    Args:
      timers: deliver the records when they are due.
      counts: counts what happens to popped messages.
    """
    config, store = foundation.config, foundation.store
    clock, on_messages = foundation.seams.clock, foundation.new_messages.notify
    topics, groups, offsets = tables.topics, tables.groups, tables.offsets
    topic = revive_topic(config.broker_cluster_name)
    records = RecordPuts(
        store, foundation.puts, topic, lambda: foundation.address.store_host, counts
    )
    buffer = PopBuffer(
        config,
        offsets,
        flushed=lambda: store.flusher.flushed_offset,
        counts=counts,
        started_ms=clock.wall_ms(),
    )
    storing = PopBufferService(
        store, clock=clock, buffer=buffer, puts=records, on_messages=on_messages
    )
    retry_topics = PopRetryTopics(config, topics, offsets, groups.contains)
    hold = PopHold(
        config,
        clock,
        clients_ms=foundation.seams.clients_ms or clock.wall_ms,
        now_s=trio.current_time,
        tags_codes_since=partial(tags_codes_since, store.queue_store.queues),
    )
    orders = OrderedPops.of_store(
        config,
        store,
        files=foundation.files,
        buffer=buffer,
        offsets=offsets,
        topics=topics,
        groups=groups,
        wake=hold.notify,
    )
    revive = _revive(foundation, tables, timers, counts, records, retry_topics)
    revive.on_revived = lambda check_point, count: buffer.landed(check_point.key, count)
    return PopServices(
        puts=records,
        buffer=buffer,
        storing=storing,
        positions=PopPositions(config, store, offsets, buffer, orders.reset),
        retry_topics=retry_topics,
        hold=hold,
        revive=revive,
        orders=orders,
        recorded=RecordedPositions(store, offsets, buffer, revive, records),
    )


def _revive(
    foundation: Foundation,
    tables: Tables,
    timers: TimerMessageService,
    counts: PopCounts,
    records: RecordPuts,
    retry_topics: PopRetryTopics,
) -> ReviveService:
    config, store, clock = foundation.config, foundation.store, foundation.seams.clock
    redelivery = Redelivery(
        config,
        store,
        clock=clock,
        topics=tables.topics,
        groups=tables.groups,
        puts=foundation.puts,
        records=records,
        retry_topics=retry_topics,
        host=lambda: foundation.address.store_host,
        counts=counts,
    )
    return ReviveService(
        config,
        store,
        clock=clock,
        timers=timers,
        offsets=tables.offsets,
        topic=records.topic,
        topics=tables.topics,
        redelivery=redelivery,
        on_messages=foundation.new_messages.notify,
        counts=counts,
    )
