"""Sending: messages, batches, messages sent back, and replies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ...remoting.channel import Answer, Channel, Processor
from ...remoting.codec import RemotingCommand
from ...store.status import PutRefusal
from ..clients.part import Clients
from ..cluster.part import Cluster
from ..part import Foundation, Part, Processors, Serving
from ..puts.send_turn import SendTurn
from ..static_topics.part import StaticTopics
from ..stats.part import Stats
from ..tables.part import Tables
from ..transactions.part import Transactions
from ..transactions.send_half import HalfPuts
from .reply_message import ReplyMessageProcessor
from .send_back import SendBackProcessor
from .send_batch import SendBatchProcessor
from .send_message import SendMessageProcessor
from .send_runs import SendRunProcessor
from .send_topics import SendTopics
from .transaction_runs import TransactionRunProcessor


@dataclass(frozen=True, slots=True)
class SendRuns:
    """Serves both kinds of runs, see `RunProcessor.serve`.

    Attributes:
      refusal: in controller mode, says whether clients may not send now; such sends are refused one
        by one.
    """

    sends: SendRunProcessor
    transactions: TransactionRunProcessor
    refusal: Callable[[], PutRefusal | None] | None = None

    def process_run(
        self,
        data: bytes,
        position: int,
        frame_size_max: int,
        channel: Channel,
        counts: dict[int, int],
    ) -> int:
        """Serve the run at a position, of sends or of transactions."""
        if self.refusal is not None and self.refusal() is not None:
            return 0
        return self.sends.process_run(
            data, position, frame_size_max, channel, counts
        ) or self.transactions.process_run(data, position, frame_size_max, channel, counts)


_COPIED_KEYS: Final = ("brokerPermission", "maxMessageSize", "regionId", "traceOn")
"""Keys that are copied for every send."""


class Sending(Part):
    """The sends of a broker."""

    def __init__(
        self,
        foundation: Foundation,
        tables: Tables,
        clients: Clients,
        cluster: Cluster,
        static_topics: StaticTopics,
        transactions: Transactions,
        stats: Stats,
    ) -> None:
        self._foundation = foundation
        self._groups = tables.groups
        self._clients = clients
        self._static = static_topics.processor
        self._transactions = transactions.service
        self._stats = stats.manager
        self._topics = SendTopics(
            foundation.config,
            tables.topics,
            foundation.puts.kinds,
            foundation.seams.random,
            cluster.registrar.when_registered,
            tables.mappings,
        )
        # What is copied for every send comes after what it is copied from: `processors` subscribes.
        foundation.live.subscribe(self._topics.settings_changed, "brokerPermission")

    def processors(self, serving: Serving) -> Processors:
        """See `Part`."""
        config, store = self._foundation.config, self._foundation.store
        batches = SendBatchProcessor(store, serving.turn, self._topics, serving.added, self._static)
        sends = SendMessageProcessor(
            config,
            store,
            HalfPuts(serving.puts, self._transactions),
            self._topics,
            serving.added,
            groups=self._groups,
            is_ordered=self._clients.is_ordered,
            static=self._static,
            send_batch=batches.send_batch_message,
        )
        self._foundation.live.subscribe(sends.settings_changed, *_COPIED_KEYS)
        back = SendBackProcessor(
            config,
            store,
            serving.puts,
            self._topics,
            groups=self._groups,
            random=self._foundation.seams.random,
            stats=self._stats,
        )
        replies = ReplyMessageProcessor(
            config,
            store,
            serving.puts,
            self._topics,
            producers=self._clients.producers,
            on_messages=self._foundation.new_messages.notify,
        )
        of_sends = sends.processors
        if store.durability.in_sync is not None:
            of_sends = {
                code: _refusing(processor, store.durability.send_refusal, serving.turn)
                for code, processor in of_sends.items()
            }
        return of_sends | back.processors | replies.processors

    def runs(self, serving: Serving) -> SendRuns | None:
        """Serves runs of sends and transactions with the C extension; None: there is none. The
        store is loaded.
        """
        store, live = self._foundation.store, self._foundation.live
        native = self._foundation.seams.native
        if store.runs is None or native is None:
            return None
        sends = SendRunProcessor(store.runs, serving.turn, self._topics, serving.added)
        transactions = TransactionRunProcessor(
            native,
            self._foundation.config,
            store,
            HalfPuts(serving.puts, self._transactions),
            self._topics,
            serving.added,
        )
        live.subscribe(sends.settings_changed, *_COPIED_KEYS)
        live.subscribe(transactions.settings_changed, *_COPIED_KEYS)
        in_mode = store.durability.in_sync is not None
        return SendRuns(sends, transactions, store.durability.send_refusal if in_mode else None)


def _refusing(
    processor: Processor, refusal: Callable[[], PutRefusal | None], turn: SendTurn
) -> Processor:
    """A processor of sends of controller mode, which refuses them before they are stored."""

    def serve(request: RemotingCommand, channel: Channel) -> Answer:
        refused = refusal()
        if refused is not None:
            raise turn.refusal(refused)
        return processor(request, channel)

    return serve
