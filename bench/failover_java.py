"""A Java producer with default options beside the clients of a failover run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from trocket.interop.java_program import java_command
from trocket.interop.process import LineProcess, PeerError

VERSION: Final = "5.5.0"
TOPIC: Final = "FailoverJava"
"""A topic to itself: the others' messages have numbers."""
PAUSE_MS: Final = 20
START_S: Final = 60.0


class JavaProducer:
    """The process; it sends from its start until it is killed."""

    def __init__(self, namesrv_address: str, folder: Path) -> None:
        self._sent_s: dict[str, float] = {}
        command = java_command(
            VERSION, "Steady", namesrv_address, TOPIC, str(PAUSE_MS), folder=folder
        )
        self._process = LineProcess(command, folder=folder, name="steady", on_line=self._on_line)

    def wait_sent(self, *, after_s: float, lost: str, timeout_s: float) -> float | None:
        """When the first send was confirmed after a moment, by a broker that is not lost.

        Args:
          after_s: and the result: monotonic seconds.
          lost: its `host:port`; "": any broker will do.

        Returns: None: there was none in time.
        """

        def first() -> float | None:
            sent = self._sent_s.items()
            return min(
                (at_s for each, at_s in sent if each != lost and at_s > after_s), default=None
            )

        try:
            return self._process.wait(first, timeout_s=timeout_s, what="a confirmed send")
        except PeerError:
            return None

    def kill(self) -> None:
        """End it."""
        self._process.kill()

    def _on_line(self, line: str) -> None:
        word, _, address = line.partition(" ")
        if word == "sent":
            self._sent_s[address] = time.monotonic()


@contextmanager
def java_producer(namesrv_address: str, folder: Path) -> Iterator[JavaProducer]:
    """A producer that has begun to send, until the end of the block.

    Args:
      folder: for its logs.
    Raises: PeerError: it sends nothing.
    """
    producer = JavaProducer(namesrv_address, folder)
    try:
        if producer.wait_sent(after_s=0.0, lost="", timeout_s=START_S) is None:
            raise PeerError(f"Java's producer sends nothing; see {folder}")
        yield producer
    finally:
        producer.kill()
