"""A sender that goes on while brokers come and go: what is not acknowledged is sent again."""

from __future__ import annotations

import threading
import time
from itertools import islice
from types import TracebackType
from typing import Self

from trocket.interop.process import PeerError
from trocket.interop.wire import SUCCESS, Acknowledged, Outgoing, WireClient, acknowledged

TOPICS = {"Orders": 4, "Events": 1}
TOGETHER = 64
RETRY_S = 0.2
ANSWER_TIMEOUT_S = 20.0
ALLOWED_CHECK_S = 0.05
STALL_S = 120.0
"""So long without one acknowledgement, and the load gives up."""


def message(number: int) -> Outgoing:
    """One of the load: mostly small, and every thousandth much larger than a frame of the log."""
    topic = "Events" if number % 5 == 0 else "Orders"
    size = 50_000 if number % 1_000 == 999 else 40 + number % 211
    filler = bytes(97 + (number + at) % 26 for at in range(26))
    body = b"load-%d|" % number + (filler * (size // 26 + 1))[:size]
    properties = f"KEYS\x01k{number}\x02TAGS\x01t{number % 3}\x02UNIQ_KEY\x01{number:032X}\x02"
    return Outgoing(topic, number % TOPICS[topic], body, properties)


class Load:
    """Sends `count` messages in a thread. Use it as a context manager: it is over at the end.

    Args:
      address: HOST:PORT of the master.
      count: messages that are to be acknowledged.
      first: number of the first one.

    Attributes:
      acknowledged: where they are stored. A send that was not answered may be stored, too.
      failures: texts of what went wrong meanwhile.
    """

    def __init__(self, address: str, count: int, *, first: int = 0) -> None:
        self.acknowledged: list[Acknowledged] = []
        self.failures: list[str] = []
        self._address = address
        self._numbers = range(first, first + count)
        self._changed = threading.Condition()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self._is_through = False
        self._allowed = count

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join(STALL_S)

    def allow(self, share: float) -> None:
        """Send up to this share of all from now on; everything, unless this was called."""
        self._allowed = int(len(self._numbers) * share)

    def wait_share(self, share: float) -> None:
        """Wait until this share of all is acknowledged, of 1.0 all.

        Raises: PeerError: the load has given up.
        """
        count = int(len(self._numbers) * share)
        with self._changed:
            self._changed.wait_for(lambda: len(self.acknowledged) >= count or self._is_through)
            if len(self.acknowledged) < count:
                raise PeerError(f"{len(self.acknowledged)} of {count} sent: {self.failures[-3:]}")

    def _run(self) -> None:
        numbers = iter(self._numbers)
        todo: dict[int, Outgoing] = {}
        client: WireClient | None = None
        last_s = time.monotonic()
        while not self._ended.is_set() and time.monotonic() - last_s < STALL_S:
            todo |= {number: message(number) for number in islice(numbers, self._room(len(todo)))}
            if not todo:
                if len(self.acknowledged) == len(self._numbers):
                    break
                self._ended.wait(ALLOWED_CHECK_S)
                last_s = time.monotonic()
                continue
            before = len(todo)
            try:
                client = client or WireClient(self._address, timeout_s=ANSWER_TIMEOUT_S)
                self._exchange(client, todo)
            except PeerError as error:
                self.failures.append(str(error))
                if client is not None:
                    client.close()
                    client = None
            if len(todo) < before:
                last_s = time.monotonic()
            else:
                self._ended.wait(RETRY_S)
        if client is not None:
            client.close()
        with self._changed:
            self._is_through = True
            self._changed.notify_all()

    def _room(self, taken: int) -> int:
        """How many more may be under way."""
        return max(0, min(TOGETHER, self._allowed - len(self.acknowledged)) - taken)

    def _exchange(self, client: WireClient, todo: dict[int, Outgoing]) -> None:
        """Send all that is to be done; what is acknowledged is not any more."""
        asked = {client.start_send(each): number for number, each in todo.items()}
        for _ in asked:
            opaque, answer = client.receive()
            number = asked[opaque]
            if answer.code != SUCCESS:
                self.failures.append(f"{answer.code} {answer.remark}")
                continue
            with self._changed:
                self.acknowledged.append(acknowledged(todo.pop(number), answer))
                self._changed.notify_all()
