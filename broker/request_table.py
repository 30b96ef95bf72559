"""Request table: the broker's request processors by request code.

Java counterpart: registerProcessor of broker/BrokerController.java of 5.3.3.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from functools import partial
from typing import Final, NamedTuple

import trio

from ..disk.config_changes import ConfigChanges
from ..remoting.burst_reader import RunProcessor
from ..remoting.channel import Processor
from ..remoting.message_id import UniqueIdGenerator
from ..remoting.request_codes import RequestCode
from ..store.message_store import MessageStore
from ..store.offsets import PhysicalOffset
from .admin.broker_config import BrokerConfigProcessor
from .admin.cleaning import CleaningProcessor
from .admin.client_admin import ClientAdminProcessor
from .admin.group_admin import GroupAdminProcessor
from .admin.group_look_ups import GroupLookUpProcessor
from .admin.query_consume_queue import QueryConsumeQueueProcessor
from .admin.query_message import QueryMessageProcessor
from .admin.queue_offset import QueueOffsetProcessor
from .admin.rocksdb import RocksDbProcessor
from .admin.runtime_info_processor import RuntimeInfoProcessor
from .admin.stats import StatisticsProcessor
from .admin.topic_admin import TopicAdminProcessor
from .assembly import BrokerParts
from .clients.client_manage import ClientManageProcessor
from .clients.consumer_manage import ConsumerManageProcessor
from .clients.lock import LockProcessor
from .delivering.recall_message import RecallMessageProcessor
from .filter_servers.filter_server import FilterServerProcessor
from .filters.filter_bit_maps import FilterBitMaps
from .pop.ack_message import AckMessageProcessor
from .pop.change_invisible_time import ChangeInvisibleTimeProcessor
from .pop.peek_message import PeekMessageProcessor
from .pop.pop_checks import PopChecks
from .pop.pop_message import PopMessageProcessor
from .pop.pop_waiting import PopWaitingProcessor
from .pop.query_assignment import QueryAssignmentProcessor
from .pulling.pull_runs import PULL_CODES
from .puts.added_properties import AddedProperties
from .puts.send_turn import SendTurn
from .puts.turn_puts import TurnPuts
from .replication.replica_status import ReplicationProcessor
from .replication.slave import slave_refusals
from .sending.reply_message import ReplyMessageProcessor
from .sending.send_back import SendBackProcessor
from .sending.send_batch import SendBatchProcessor
from .sending.send_message import SendMessageProcessor
from .sending.send_runs import RUN_CODES, SendRunProcessor
from .sending.send_topics import SendTopics
from .transactions.end_transaction import EndTransactionProcessor
from .transactions.send_half import HalfPuts

Table = dict[RequestCode, Processor]

_KEYS_OF_SENDS: Final = ("brokerPermission", "maxMessageSize", "regionId", "traceOn")
"""Keys that are copied for every send."""


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
    puts = TurnPuts(store, parts.deliveries.puts, turn)
    halves = HalfPuts(puts, parts.deliveries.transactions)
    topics = SendTopics(
        config,
        parts.tables.topics,
        puts.kinds,
        parts.seams.random,
        parts.registrar.when_registered,
        parts.tables.mappings,
    )
    is_ordered = partial(_is_ordered, parts)
    batches = SendBatchProcessor(store, turn, topics, added, parts.static)
    sends = SendMessageProcessor(
        config,
        store,
        halves,
        topics,
        added,
        groups=parts.tables.groups,
        is_ordered=is_ordered,
        static=parts.static,
        send_batch=batches.send_batch_message,
    )
    tables = [
        sends.processors,
        *_storing(parts, halves, topics),
        *_reading(parts),
        *_popping(parts, turn),
        *_administering(parts),
    ]
    processors = {int(code): process for table in tables for code, process in table.items()}
    if store.is_slave:
        processors |= {int(code): each for code, each in slave_refusals(config, processors).items()}
    processors = _guarded(parts, processors)
    live = parts.live

    def on_added() -> None:
        added.settings_changed()
        turn.change_settings(added.of_answers, config.send_thread_pool_queue_capacity)

    # In this order: what is copied for every send comes after what it is copied from.
    live.subscribe(on_added, "regionId", "sendThreadPoolQueueCapacity", "traceOn")
    live.subscribe(topics.settings_changed, "brokerPermission")
    live.subscribe(sends.settings_changed, *_KEYS_OF_SENDS)
    return Serving(processors, _runs(parts, processors, turn, topics, added), turn)


def _runs(
    parts: BrokerParts,
    processors: dict[int, Processor],
    turn: SendTurn,
    topics: SendTopics,
    added: AddedProperties,
) -> RunProcessor | None:
    """Serves runs; None: without the extension, on a slave, and with accounts.

    A run is served without the fields of its requests, so it could not be checked.
    """
    native_runs = parts.store.runs
    if native_runs is None or not _may_have_runs(parts):
        return None
    run_sends = SendRunProcessor(native_runs, turn, topics, added)
    parts.live.subscribe(run_sends.settings_changed, *_KEYS_OF_SENDS)
    pulls = parts.pulls.runs
    return RunProcessor(
        run_sends.process_run,
        {code: processors[code] for code in (*RUN_CODES, *PULL_CODES)},
        None if pulls is None else pulls.take,
    )


def _guarded(parts: BrokerParts, processors: dict[int, Processor]) -> dict[int, Processor]:
    """The table behind the check of accounts, of whichever generation there is."""
    if parts.plain_acl is not None:
        return parts.plain_acl.guard(processors)
    return parts.tables.access.guard(processors)


def _may_have_runs(parts: BrokerParts) -> bool:
    """Runs are served without their requests' fields, so accounts cannot be checked."""
    return not parts.has_access_control and not parts.store.is_slave


def _is_ordered(parts: BrokerParts, group: str) -> bool:
    return not parts.clients.locks.is_all_expired(group, now_s=parts.seams.clock.monotonic_s())


def _storing(parts: BrokerParts, halves: HalfPuts, send_topics: SendTopics) -> list[Table]:
    """Processors that store messages, without those of single sends."""
    config, store = parts.config, parts.store
    groups, topics = parts.tables.groups, parts.tables.topics
    puts = halves.puts
    return [
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
        EndTransactionProcessor(config, store, halves).processors,
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
            refusals=parts.refusals,
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
        QueryAssignmentProcessor(
            parts.config,
            modes=tables.request_modes,
            topics=tables.topics,
            groups=tables.groups,
            consumers=clients.consumers,
            routes=parts.routes,
        ).processors,
    ]


def _popping(parts: BrokerParts, turn: SendTurn) -> list[Table]:
    """Processors for pop consumption."""
    config, store, pop, tables = parts.config, parts.store, parts.pop, parts.tables
    topics, random = tables.topics, parts.seams.random
    checks = PopChecks(
        config,
        store.config,
        topics=topics,
        groups=tables.groups,
        compensated=parts.clients.consumers.compensated,
    )
    return [
        PopMessageProcessor(
            config,
            store,
            turn,
            pop,
            checks,
            topics=topics,
            offsets=tables.offsets,
            random=random,
            stats=parts.stats,
            monotonic_s=parts.seams.clock.monotonic_s,
        ).processors,
        AckMessageProcessor(config, store, turn, pop, topics).processors,
        ChangeInvisibleTimeProcessor(store, turn, pop, topics).processors,
        PeekMessageProcessor(store, pop, checks, random).processors,
        PopWaitingProcessor(config, store, pop, checks, topics=topics, random=random).processors,
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
            try_pulls=partial(_try_again, parts),
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
            config=parts.config,
        ).processors,
        GroupAdminProcessor(
            groups=tables.groups,
            offsets=tables.offsets,
            on_deleted=partial(_forget_group, parts),
            times_ms=parts.stats.group_creations_ms,
            is_slave=store.is_slave,
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
            pops=parts.pop.buffer,
        ).processors,
        CleaningProcessor(store, tables.topics).processors,
        QueryConsumeQueueProcessor(
            store,
            clients.consumers,
            tables.filters,
            FilterBitMaps(tables.filters, monotonic_s=parts.seams.clock.monotonic_s),
        ).processors,
        RuntimeInfoProcessor(parts.runtime_info).processors,
        RocksDbProcessor().processors,
        GroupLookUpProcessor(
            store,
            broker_addr=parts.address.broker_addr,
            topics=tables.topics,
            offsets=tables.offsets,
            consumers=clients.consumers,
            producers=clients.producers,
        ).processors,
        _broker_config(parts).processors,
        tables.access.admin(is_slave=store.is_slave).processors,
        _replication(parts).processors,
    ]


def _replication(parts: BrokerParts) -> ReplicationProcessor:
    tables, store = parts.tables, parts.store
    return ReplicationProcessor(
        offsets=tables.offsets,
        delay_offsets=tables.delay_offsets,
        request_modes=tables.request_modes,
        timers=parts.deliveries.timers if store.config.timer_wheel_enable else None,
        status=parts.replication.status,
        clock=parts.seams.clock,
    )


def _broker_config(parts: BrokerParts) -> BrokerConfigProcessor:
    return BrokerConfigProcessor(
        parts.live,
        ConfigChanges(parts.live, parts.seams.disk, parts.seams.config_path),
        clock=parts.seams.clock,
        register_all=parts.registrar.register_all,
    )


async def _until_visible(store: MessageStore) -> None:
    """Wait until all messages that are stored now are on disk and slaves, as configured."""
    end = store.max_physical_offset
    if end > 0 and store.answers_later:
        done = trio.Event()
        store.when_replicated(PhysicalOffset(end - 1), lambda status: done.set())
        await done.wait()


def _try_again(parts: BrokerParts, queues: Collection[tuple[str, int]]) -> None:
    """Try the pulls and pops again that wait for messages of queues whose offsets were reset."""
    parts.pulls.hold_service.notify_messages(queues)
    parts.pop.hold.arrived(queues)


def _forget_topic(parts: BrokerParts, topic: str) -> None:
    """Drop what is counted and remembered of a deleted topic."""
    parts.stats.topic_deleted(topic)
    parts.deliveries.transactions.ends.topic_deleted(topic)
    parts.deliveries.timers.counts.topic_deleted(topic)
    parts.pop.topic_deleted(topic)
    parts.tables.request_modes.topic_deleted(topic)
    parts.clients.consumers.compensated.topic_deleted(topic)


def _forget_group(parts: BrokerParts, group: str) -> None:
    """Drop what is counted and remembered of a deleted group."""
    parts.stats.group_deleted(group)
    parts.pop.group_deleted(group)
    parts.tables.request_modes.group_deleted(group)
    parts.clients.consumers.compensated.group_deleted(group)
