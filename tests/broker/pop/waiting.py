"""Waiting requests without a broker, in virtual time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.broker.harness import FakeChannel
from trocket.broker.pop.waiting_requests import ANY_QUEUE, Polling, PollingKey, WaitingRequests
from trocket.broker.settings.config import BrokerConfig
from trocket.remoting.channel import Channel
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.request_codes import RequestCode

POLL_MS = 15_000


class Waits:
    """Waiting requests, and a processor that answers those in `answered` and all that are over.

    Attributes:
      now_s: the time.
      tick_s: how long each look at the clock takes that measures slices.
      serve: the processor.
      served: the numbers of the requests that were served again, in that order.
      over: those whose time was over then.
      answered: the requests that find a message.
      codes: the tags codes of each queue's messages.
    """

    def __init__(self, config: BrokerConfig | None = None, *, youngest_first: bool = False) -> None:
        self.now_s = 100.0
        self.tick_s = 0.0
        self.serve = self.serve_or_hold
        self.served: list[int] = []
        self.over: list[int] = []
        self.answered: set[int] = set()
        self.codes: dict[tuple[str, int], list[int]] = {}
        self._keys: dict[int, PollingKey] = {}
        self._elapsed_s = 0.0
        self.requests = WaitingRequests(
            lambda request, channel: self.serve(request, channel),
            config or BrokerConfig(),
            youngest_first=youngest_first,
            now_s=lambda: self.now_s,
            elapsed_s=self._tick,
            tags_codes_since=self._codes_since,
        )

    def _tick(self) -> float:
        self._elapsed_s += self.tick_s
        return self._elapsed_s

    def _codes_since(self, key: tuple[str, int], offset: int) -> tuple[set[int] | None, int]:
        codes = self.codes.get(key, [])
        return (set(codes[offset:]) if offset >= 0 else None), len(codes)

    def serve_or_hold(self, request: RemotingCommand, channel: Channel) -> None:
        """Answer a request, or hold it again."""
        number = request.opaque
        self.served.append(number)
        if number in self.answered:
            return
        polling = self.requests.hold(request, channel, self._keys[number], wait_ms=POLL_MS)
        if polling is Polling.TIMEOUT:
            self.over.append(number)

    def hold(self, *place: Any, **options: Any) -> int:
        """Hold one request that must wait, see `poll`; return its number."""
        number = len(self._keys)
        assert self.poll(*place, **options) is Polling.WAITS
        return number

    def poll(
        self,
        topic: str = "T",
        group: str = "G",
        queue_id: int = ANY_QUEUE,
        *,
        channel: FakeChannel | None = None,
        wait_ms: int = POLL_MS,
        codes: Iterable[int] | None = None,
    ) -> Polling:
        """Try to hold one request."""
        number = len(self._keys)
        key = self._keys[number] = PollingKey(topic, group, queue_id)
        return self.requests.hold(
            RemotingCommand(RequestCode.POP_MESSAGE, {}, b"", opaque=number),
            channel or FakeChannel(),  # type: ignore[arg-type]
            key,
            wait_ms=wait_ms,
            selector=None if codes is None else frozenset(codes),
        )

    def arrived(self, topic: str = "T", queue_id: int = 0, code: int = 0) -> None:
        """A message comes; everything that it leads to is done."""
        self.codes.setdefault((topic, queue_id), []).append(code)
        self.requests.arrived([(topic, queue_id)])
        self.run()

    def at(self, now_s: float) -> None:
        """Go to another time and do what is due."""
        self.now_s = now_s
        self.run()

    def run(self) -> None:
        """Do all slices that are due."""
        for _ in range(100_000):
            if self.requests.run_slice() > 0:
                return
        raise AssertionError("the slices do not end")
