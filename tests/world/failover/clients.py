"""Clients of a simulated set: only SEND_OK promises something."""

from __future__ import annotations

from trocket.remoting.codec import RemotingCommand

from ..cluster.clients import NOTHING_STORED, OK, Consumer, Producer
from ..cluster.oracle import Sent


class SetProducer(Producer):
    """A producer; a send that was not confirmed may be cut off, or be there after all."""

    def _heard(self, address: str, answer: RemotingCommand, batch: list[Sent], wounds: int) -> None:
        self.cluster.answers[answer.code] += 1
        if answer.code == OK or answer.code in NOTHING_STORED:
            self.cluster.answers[answer.code] -= answer.code == OK
            super()._heard(address, answer, batch, self.cluster.wounds)


class SetConsumer(Consumer):
    """A consumer; it reads from the master, and now and then from a slave."""
