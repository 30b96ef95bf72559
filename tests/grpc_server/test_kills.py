"""A broker that is killed while gRPC clients send: what was answered is there."""

from __future__ import annotations

import threading
from pathlib import Path

import grpc
import pytest

from trocket.interop.peers import open_cluster
from trocket.interop.wire import WireClient
from trocket.remoting.message_codec import decode_messages

from .caller import Caller, message

pytestmark = pytest.mark.slow

KILLS = 3
PER_KILL = 300
"""Messages that are answered before each kill."""
SENDERS = 4
QUEUES = 4


class Sender:
    """Sends until the broker is gone.

    Attributes:
      answered: the bodies of the messages that were answered with success.
    """

    def __init__(self, address: str, mark: str, enough: threading.Semaphore) -> None:
        self.answered: list[bytes] = []
        self._address, self._mark, self._enough = address, mark, enough
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        with Caller(self._address, self._mark) as caller:
            while True:
                body = f"{self._mark} {number}".encode()
                number += 1
                try:
                    answer = caller.call("SendMessage", 10, messages=[message("T", body)])
                except grpc.RpcError:
                    return
                if answer.status.code == 20000:
                    self.answered.append(body)
                    self._enough.release()

    def join(self) -> list[bytes]:
        self._thread.join()
        return self.answered


def test_what_was_answered_survives_kills(tmp_path: Path) -> None:
    cluster = open_cluster("trocket", tmp_path / "cluster")
    answered: list[bytes] = []
    try:
        cluster.start()
        with WireClient(cluster.broker_address) as wire:
            wire.create_topic("T", queue_count=QUEUES)
        for kill in range(KILLS):
            enough = threading.Semaphore(0)
            senders = [
                Sender(cluster.broker_address, f"{kill}-{number}", enough)
                for number in range(SENDERS)
            ]
            for _ in range(PER_KILL):
                assert enough.acquire(timeout=60)
            cluster.kill_broker()
            for sender in senders:
                answered += sender.join()
            cluster.start_broker()
        with WireClient(cluster.broker_address) as wire:
            stored = [
                each.body
                for queue_id in range(QUEUES)
                for each in decode_messages(b"".join(wire.pull_all("G", "T", queue_id)))
            ]
    finally:
        cluster.close()
    assert len(answered) >= KILLS * PER_KILL
    assert len(set(stored)) == len(stored)
    assert set(answered) <= set(stored)
