"""Assembly of a broker: creates its parts, connects them, and collects their processors; nothing
here runs.

Each part gets those that it needs as arguments, so the order in `assemble` is the order of
dependencies. A new subsystem has a line there. `request_table` comes later, when the broker's
address is known and its store is loaded.

Java counterpart: the constructor, initialize and registerProcessor of
broker/BrokerController.java of 5.3.3.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final, NamedTuple

from ..auth.accounts import ACCOUNTS_FILE
from ..common.live_config import LiveConfig
from ..common.log_levels import apply_levels, parse_levels
from ..common.notifier import Notifier
from ..common.supervision import FailureLog
from ..disk.state_files import StateFiles
from ..remoting.burst_reader import RunProcessor
from ..remoting.channel import Channel, Processor
from ..remoting.message_id import UniqueIdGenerator
from ..remoting.refusals import Refusals
from ..store.config import MessageStoreConfig
from ..store.message_store import MessageStore
from .access.part import Access
from .admin.part import Admin
from .clients.part import Clients
from .cluster.part import Cluster
from .delivering.part import Delivering
from .filter_servers.part import FilterServers
from .filters.part import Filters
from .messages.inner_message import DelayLevels, InnerPuts
from .part import Foundation, NewMessages, Part, Seams, Serving
from .pop.part import Pop
from .pulling.part import Pulling
from .pulling.pull_runs import PULL_CODES
from .puts.added_properties import AddedProperties
from .puts.send_turn import SendTurn
from .puts.turn_puts import TurnPuts
from .replication.part import Replication
from .replication.slave import slave_refusals
from .sending.part import Sending
from .sending.send_runs import RUN_CODES
from .sending.transaction_runs import END_CODE
from .settings.broker_address import BrokerAddress
from .settings.config import BrokerConfig, known_keys
from .settings.config_checks import check_values
from .static_topics.part import StaticTopics
from .stats.part import Stats
from .tables.part import Tables
from .transactions.part import Transactions

_failures = FailureLog(logging.getLogger(__name__))

MakePart = Callable[[Foundation], Part]
"""Creates a part that needs no other part: most often its class."""

MORE_PARTS: Final[tuple[MakePart, ...]] = ()
"""The package's own of that kind: a line here is all that such a subsystem adds outside of its
folder. One that needs other parts is made in `assemble`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerParts:
    """A complete broker without its sockets.

    Attributes:
      foundation: what every part may use.
      more: those of `MORE_PARTS`, and parts from outside of the package.
    """

    foundation: Foundation
    tables: Tables
    access: Access
    filters: Filters
    cluster: Cluster
    clients: Clients
    filter_servers: FilterServers
    stats: Stats
    static_topics: StaticTopics
    transactions: Transactions
    delivering: Delivering
    replication: Replication
    pulling: Pulling
    pop: Pop
    sending: Sending
    admin: Admin
    more: tuple[Part, ...] = ()

    @property
    def all(self) -> tuple[Part, ...]:
        """Every part, in the order in which they are loaded, started and closed.

        Accounts come first, because their files refuse a start. The cluster comes last: its start
        waits for name servers, and all others serve meanwhile.
        """
        return (
            self.access,
            self.stats,
            self.tables,
            self.filters,
            self.clients,
            self.filter_servers,
            self.static_topics,
            self.transactions,
            self.delivering,
            self.pulling,
            self.pop,
            self.sending,
            self.replication,
            self.admin,
            *self.more,
            self.cluster,
        )

    @property
    def config(self) -> BrokerConfig:
        """The broker's keys."""
        return self.foundation.config

    @property
    def store(self) -> MessageStore:
        """The broker's messages; empty until they are loaded."""
        return self.foundation.store

    def topic_deleted(self, topic: str) -> None:
        """Have every part forget a deleted topic."""
        for part in self.all:
            part.topic_deleted(topic)

    def group_deleted(self, group: str) -> None:
        """Have every part forget a deleted group."""
        for part in self.all:
            part.group_deleted(group)


def assemble(
    config: BrokerConfig,
    store_config: MessageStoreConfig,
    seams: Seams,
    more: Sequence[MakePart] = (),
) -> BrokerParts:
    """Create the parts of a broker and connect them.

    Args:
      config: the broker's keys.
      store_config: the store's keys.
      seams: its dependencies on the environment.
      more: create parts from outside of the package.
    """
    foundation = _foundation(config, store_config, seams)
    tables = Tables(foundation)
    access = Access(foundation, tables)
    filters = Filters(foundation, tables)
    cluster = Cluster(foundation, tables, lambda: filter_servers.registered.addresses)
    clients = Clients(foundation, tables, filters, cluster)
    filter_servers = FilterServers(foundation, cluster)
    stats = Stats(foundation)
    static_topics = StaticTopics(foundation, tables)
    transactions = Transactions(foundation, tables, clients)
    delivering = Delivering(foundation, tables)
    replication = Replication(foundation, tables, access, cluster, delivering)
    pulling = Pulling(foundation, tables, filters, clients, static_topics, stats, replication.side)
    pop = Pop(foundation, tables, clients, cluster, delivering, stats)
    sending = Sending(foundation, tables, clients, cluster, static_topics, transactions, stats)
    admin = Admin(
        foundation,
        tables=tables,
        filters=filters,
        clients=clients,
        cluster=cluster,
        pulling=pulling,
        pop=pop,
        delivering=delivering,
        transactions=transactions,
        stats=stats,
        forget_topic=lambda topic: parts.topic_deleted(topic),
        forget_group=lambda group: parts.group_deleted(group),
    )
    parts = BrokerParts(
        foundation=foundation,
        tables=tables,
        access=access,
        filters=filters,
        cluster=cluster,
        clients=clients,
        filter_servers=filter_servers,
        stats=stats,
        static_topics=static_topics,
        transactions=transactions,
        delivering=delivering,
        replication=replication,
        pulling=pulling,
        pop=pop,
        sending=sending,
        admin=admin,
        more=tuple(make(foundation) for make in (*MORE_PARTS, *more)),
    )
    _connect_access(parts)
    return parts


def _foundation(config: BrokerConfig, store_config: MessageStoreConfig, seams: Seams) -> Foundation:
    store = MessageStore(
        store_config,
        clock=seams.clock,
        disk=seams.disk,
        native=seams.native,
        in_sync=seams.terms.in_sync,
    )
    levels = DelayLevels(store.config.message_delay_level)
    live = LiveConfig((config, store_config), known_keys, check=check_values, server="the broker")
    foundation = Foundation(
        config=config,
        live=live,
        seams=seams,
        address=BrokerAddress(config, store_config),
        store=store,
        files=StateFiles(
            seams.disk,
            str(PurePosixPath(store_config.store_path_root_dir) / "config"),
            secret=(ACCOUNTS_FILE,),
        ),
        puts=InnerPuts(store, levels, config.msg_trace_topic_name),
        levels=levels,
        new_messages=NewMessages(
            _failures, "notifying of new messages", "They may be delivered late"
        ),
        closed_channels=Notifier[Channel](
            _failures,
            "forgetting a client",
            "Its group learns that it left when its heartbeats have expired",
        ),
        refusals=Refusals(),
    )
    # Messages that become visible outside of a turn: after an fsync, or copied from a master.
    store.on_visible = foundation.new_messages.notify

    def on_message_size() -> None:
        # Never less: a delayed message that was accepted is delivered. Each send is checked before.
        burst = store.writer.burst
        burst.body_size_max = max(burst.body_size_max, store.config.max_message_size)

    live.subscribe(on_message_size, "maxMessageSize")
    live.subscribe(
        lambda: apply_levels(config.log_level, parse_levels(config.log_levels)),
        "logLevel",
        "logLevels",
    )
    return foundation


def _connect_access(parts: BrokerParts) -> None:
    """Have the parts that answer later, or ask clients, obey the accounts too."""
    control = parts.access.control
    if control is not None:
        parts.transactions.service.may_ask = control.may_publish
        parts.clients.producers.may_send = control.may_send
        parts.pulling.processor.follow(control)
        parts.pop.services.hold.rights = control


class RequestTable(NamedTuple):
    """The request processors, and the turn that they share.

    Attributes:
      processors: by request code.
      runs: serves runs of sends; None: each send is a request like others.
      turn: its `end_turn` must be called at the end of each turn of the server.
    """

    processors: dict[int, Processor]
    runs: RunProcessor | None
    turn: SendTurn


def request_table(parts: BrokerParts) -> RequestTable:
    """Create the processors of a broker.

    Args:
      parts: the broker's, with its address known and its store loaded.
    """
    serving = _serving(parts)
    processors: dict[int, Processor] = {}
    for part in parts.all:
        processors |= {int(code): each for code, each in part.processors(serving).items()}
    processors |= parts.static_topics.processor.wrap(processors)
    if parts.store.is_slave:
        refusals = slave_refusals(parts.config, processors)
        processors |= {int(code): refuse for code, refuse in refusals.items()}
    processors = parts.access.guard(processors)
    return RequestTable(processors, _runs(parts, serving, processors), serving.turn)


def _serving(parts: BrokerParts) -> Serving:
    """The turn, and what appends to it."""
    foundation, config = parts.foundation, parts.config
    store_host = foundation.address.store_host
    random_bits = foundation.seams.random.getrandbits(32)
    added = AddedProperties(config, UniqueIdGenerator(store_host[:-4], os.getpid(), random_bits))
    turn = SendTurn(
        foundation.store,
        parts.transactions.service,
        foundation.new_messages.notify,
        store_host=store_host,
        constants=added.of_answers,
        held_max=config.send_thread_pool_queue_capacity,
        note_commit=parts.stats.manager.note_commit,
    )

    def settings_changed() -> None:
        added.settings_changed()
        turn.change_settings(added.of_answers, config.send_thread_pool_queue_capacity)

    # Before the parts subscribe: what they copy for every send comes after what it is copied from.
    foundation.live.subscribe(
        settings_changed, "regionId", "sendThreadPoolQueueCapacity", "traceOn"
    )
    return Serving(turn, TurnPuts(foundation.store, foundation.puts, turn), added)


def _runs(
    parts: BrokerParts, serving: Serving, processors: dict[int, Processor]
) -> RunProcessor | None:
    """Serves runs; None: without the extension, on a slave, and with accounts.

    A run is served without the fields of its requests, so it could not be checked.
    """
    if parts.access.control is not None or parts.store.is_slave:
        return None
    sends = parts.sending.runs(serving)
    if sends is None:
        return None
    pulls = parts.pulling.processor.runs
    return RunProcessor(
        sends.process_run,
        {code: processors[code] for code in (*RUN_CODES, END_CODE, *PULL_CODES)},
        None if pulls is None else pulls.take,
    )
