"""Request table: the broker's request processors by request code.

Java counterpart: registerProcessor of broker/BrokerController.java of 5.3.3.
"""

from __future__ import annotations

import os
from functools import partial
from typing import NamedTuple

import trio

from ..remoting.channel import Processor, RunProcessor
from ..remoting.message_id import UniqueIdGenerator
from ..remoting.request_codes import RequestCode
from ..store.message_store import MessageStore
from ..store.offsets import PhysicalOffset
from .assembly import BrokerParts
from .processors.added_properties import AddedProperties
from .processors.broker_config import BrokerConfigProcessor
from .processors.cleaning import CleaningProcessor
from .processors.client_admin import ClientAdminProcessor
from .processors.client_manage import ClientManageProcessor
from .processors.consumer_manage import ConsumerManageProcessor
from .processors.end_transaction import EndTransactionProcessor
from .processors.filter_server import FilterServerProcessor
from .processors.group_admin import GroupAdminProcessor
from .processors.group_look_ups import GroupLookUpProcessor
from .processors.lock import LockProcessor
from .processors.pull_runs import PULL_CODES
from .processors.query_consume_queue import QueryConsumeQueueProcessor
from .processors.query_message import QueryMessageProcessor
from .processors.queue_offset import QueueOffsetProcessor
from .processors.recall_message import RecallMessageProcessor
from .processors.replication import ReplicationProcessor
from .processors.reply_message import ReplyMessageProcessor
from .processors.runtime_info import RuntimeInfoProcessor
from .processors.send_back import SendBackProcessor
from .processors.send_batch import SendBatchProcessor
from .processors.send_message import SendMessageProcessor
from .processors.send_runs import RUN_CODES, SendRunProcessor
from .processors.send_topics import SendTopics
from .processors.send_turn import SendTurn
from .processors.slave import slave_refusals
from .processors.statistics import StatisticsProcessor
from .processors.topic_admin import TopicAdminProcessor
from .processors.turn_puts import TurnPuts

Table = dict[RequestCode, Processor]


class Serving(NamedTuple):
    """The request processors, and the turn that they share.

    Attributes:
      processors: by request code.
      runs: serves runs of sends; None: each send is a request like others.
      turn: its `end_turn` must be called at the end of each turn of the server.
    """

    processors: dict[int, Processor]
    runs: RunProcessor | None
    turn: SendTurn


def request_table(parts: BrokerParts) -> Serving:
    """Create the processors of a broker.

    Args:
      parts: the broker's, with its address known and its store loaded.
    """
    config, store = parts.config, parts.store
    store_host = parts.address.store_host
    unique_ids = UniqueIdGenerator(store_host[:-4], os.getpid(), parts.seams.random.getrandbits(32))
    added = AddedProperties(config, unique_ids)
    turn = SendTurn(
        store,
        parts.deliveries.transactions,
        parts.new_messages.notify,
        store_host=store_host,
        constants=added.of_answers,
        held_max=config.send_thread_pool_queue_capacity,
        note_commit=parts.stats.note_commit,
    )
    puts = TurnPuts(store, parts.deliveries.puts, turn, parts.deliveries.transactions)
    topics = SendTopics(
        config,
        parts.tables.topics,
        puts.kinds,
        parts.seams.random,
        parts.registrar.when_registered,
        parts.tables.mappings,
    )
    tables = [*_storing(parts, puts, topics, added), *_reading(parts), *_administering(parts)]
    if store.is_slave:
        tables.append(slave_refusals(config))  # last, because it overrides the others
    processors = {int(code): process for table in tables for code, process in table.items()}
    runs: RunProcessor | None = None
    if store.runs is not None and not (store.is_slave or topics.is_read_only):
        serve = SendRunProcessor(store.runs, turn, topics, added).process_run
        pulls = parts.pulls.runs
        runs = RunProcessor(
            serve,
            {code: processors[code] for code in (*RUN_CODES, *PULL_CODES)},
            None if pulls is None else pulls.take,
        )
    return Serving(processors, runs, turn)


def _storing(
    parts: BrokerParts, puts: TurnPuts, send_topics: SendTopics, added: AddedProperties
) -> list[Table]:
    """Processors that store messages."""
    config, store = parts.config, parts.store
    groups, topics = parts.tables.groups, parts.tables.topics
    locks, clock = parts.clients.locks, parts.seams.clock
    transactions = parts.deliveries.transactions

    def is_ordered(group: str) -> bool:
        return not locks.is_all_expired(group, now_s=clock.monotonic_s())

    return [
        SendMessageProcessor(
            config,
            store,
            puts,
            send_topics,
            added,
            groups=groups,
            is_ordered=is_ordered,
            static=parts.static,
        ).processors,
        SendBatchProcessor(store, puts.turn, send_topics, added, parts.static).processors,
        SendBackProcessor(
            config,
            store,
            puts,
            send_topics,
            groups=groups,
            random=parts.seams.random,
            stats=parts.stats,
        ).processors,
        ReplyMessageProcessor(
            config,
            store,
            puts,
            send_topics,
            producers=parts.clients.producers,
            on_messages=parts.new_messages.notify,
        ).processors,
        RecallMessageProcessor(config, store, puts, topics).processors,
        EndTransactionProcessor(config, store, puts, transactions).processors,
    ]


def _reading(parts: BrokerParts) -> list[Table]:
    """Processors for consumers, and for queries of messages."""
    tables, clients, clock = parts.tables, parts.clients, parts.seams.clock
    return [
        parts.pulls.processors,
        ClientManageProcessor(
            parts.config,
            consumers=clients.consumers,
            producers=clients.producers,
            groups=tables.groups,
            topics=tables.topics,
            clock=clock,
            register_topics=parts.registrar.register_topics,
            filters=parts.sql_filters,
        ).processors,
        parts.static.wrap(
            ConsumerManageProcessor(
                consumers=clients.consumers,
                offsets=tables.offsets,
                groups=tables.groups,
                topics=tables.topics,
                store=parts.store,
            ).processors
        ),
        parts.static.wrap(
            QueueOffsetProcessor(parts.store, parts.store.queue_store.batch_topics).processors
        ),
        QueryMessageProcessor(parts.store).processors,
        LockProcessor(clients.locks, clock=clock).processors,
        FilterServerProcessor(parts.config, clients.filter_servers, clock=clock).processors,
    ]


def _administering(parts: BrokerParts) -> list[Table]:
    """Processors for administrators and slaves."""
    tables, clients, store = parts.tables, parts.clients, parts.store
    return [
        ClientAdminProcessor(
            parts.config,
            store,
            consumers=clients.consumers,
            producers=clients.producers,
            offsets=tables.offsets,
            topics=tables.topics,
            groups=tables.groups,
            try_pulls=parts.pulls.hold_service.notify_messages,
        ).processors,
        TopicAdminProcessor(
            topics=tables.topics,
            mappings=tables.mappings,
            offsets=tables.offsets,
            store=store,
            register_topics=parts.registrar.register_topics,
            on_deleted=partial(_forget_topic, parts),
            times_ms=parts.stats.topic_creations_ms,
            until_visible=partial(_until_visible, store),
        ).processors,
        GroupAdminProcessor(
            groups=tables.groups,
            offsets=tables.offsets,
            on_deleted=parts.stats.group_deleted,
            times_ms=parts.stats.group_creations_ms,
        ).processors,
        StatisticsProcessor(
            store,
            parts.stats,
            broker_name=parts.config.broker_name,
            broker_addr=parts.address.broker_addr,
            topics=tables.topics,
            static_topics=tables.mappings.topic_queue_mapping_table,
            groups=tables.groups,
            offsets=tables.offsets,
            consumers=clients.consumers,
        ).processors,
        CleaningProcessor(store, tables.topics).processors,
        QueryConsumeQueueProcessor(store, clients.consumers).processors,
        RuntimeInfoProcessor(parts.runtime_info).processors,
        GroupLookUpProcessor(
            store,
            broker_addr=parts.address.broker_addr,
            topics=tables.topics,
            offsets=tables.offsets,
            consumers=clients.consumers,
            producers=clients.producers,
        ).processors,
        BrokerConfigProcessor(
            parts.config, store.config, started_ms=parts.seams.clock.wall_ms()
        ).processors,
        ReplicationProcessor(
            offsets=tables.offsets,
            delay_offsets=tables.delay_offsets,
            timers=parts.deliveries.timers if store.config.timer_wheel_enable else None,
            status=parts.replication.status,
            clock=parts.seams.clock,
        ).processors,
    ]


async def _until_visible(store: MessageStore) -> None:
    """Wait until all messages that are stored now are on disk and slaves, as configured."""
    end = store.max_physical_offset
    if end > 0 and store.answers_later:
        done = trio.Event()
        store.when_replicated(PhysicalOffset(end - 1), lambda status: done.set())
        await done.wait()


def _forget_topic(parts: BrokerParts, topic: str) -> None:
    """Drop the counters of a deleted topic."""
    parts.stats.topic_deleted(topic)
    parts.deliveries.transactions.ends.topic_deleted(topic)
    parts.deliveries.timers.counts.topic_deleted(topic)
