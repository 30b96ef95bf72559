"""Transactions: half messages, their ends, and the checks of those that stay open."""

from __future__ import annotations

from ...common.supervision import Supervisor
from ..clients.part import Clients
from ..part import Foundation, Part, Processors, Serving
from ..tables.part import Tables
from .end_transaction import EndTransactionProcessor
from .send_half import HalfPuts
from .transaction_service import TransactionService


class Transactions(Part):
    """The transactions of a broker.

    Attributes:
      service: has the open transactions, and checks them.
    """

    name = "the transactions"

    def __init__(self, foundation: Foundation, tables: Tables, clients: Clients) -> None:
        self._config, self._store = foundation.config, foundation.store
        self.service = TransactionService(
            foundation.config,
            foundation.store,
            address=foundation.address,
            clock=foundation.seams.clock,
            producers=clients.producers,
            offsets=tables.offsets,
            puts=foundation.puts,
            on_messages=foundation.new_messages.notify,
        )

    def load(self, *, was_killed: bool) -> None:
        """See `Part`."""
        if not self._store.is_slave:
            self.service.load()

    def processors(self, serving: Serving) -> Processors:
        """See `Part`."""
        halves = HalfPuts(serving.puts, self.service)
        return EndTransactionProcessor(self._config, self._store, halves).processors

    async def start(self, services: Supervisor) -> None:
        """See `Part`."""
        if not self._store.is_slave:
            await services.start("the checks of transactions", self.service.run)
            services.start_soon("the saving of transactions", self.service.save)

    def topic_deleted(self, topic: str) -> None:
        """See `Part`."""
        self.service.ends.topic_deleted(topic)

    def wall_clock_set(self) -> None:
        """See `Part`."""
        self.service.wake()

    def owes(self) -> bool:
        """See `Part`."""
        return self.service.is_busy

    def note_progress(self) -> None:
        """See `Part`."""
        if not self._store.is_slave:
            self.service.note_progress()
