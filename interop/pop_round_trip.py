"""A data folder with half-popped messages that Apache's broker and ours open in turn.

    apache's  gets messages; some are popped for a short, some for a long time; half of both acked
    ours      the short ones come again; half of them, and of further ones, are acked
    apache's  all that is left comes, and is acked

Each hand-over is a clean stop or a kill, after what the facts say is stored (`SETTLED_S`). A round
trip only records; `CHECKS` compare.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from ..broker.tables.consumer_offset_manager import parse_offsets
from ..common.clock import SystemClock
from .apache import ApacheCluster
from .pop_wire import Popped, ack, pop
from .process import PeerError
from .store_round_trip import KEEP_ALL, SIZES, apache_on_store
from .trocket_peer import TrocketBroker
from .wire import Outgoing, WireClient

GROUP = "poppers"
TOPIC = "Popped"
QUEUE_COUNT = 4
COUNT = 64
PART = 16
"""Messages popped at a time."""

SHORT_MS = 12_000
LONG_MS = 30_000
"""Longer than a hand-over: the check points wait in the timer topic meanwhile."""

SETTLED_S = 3.0
"""Between the last save of offsets that is waited for and a hand-over. Both brokers then have saved
their other offsets, too (`KEYS`), and ours has stored what its buffer merges, so that a kill
repeats nothing."""

SAVED_S = 30.0
"""The longest wait for the offsets; Apache's broker saves none in its first 10 s."""

KEYS = {"flushConsumerOffsetInterval": 500}
OUR_KEYS = {"popCkStayBufferTime": 500}

AGAIN_S = 40.0
"""The longest wait for the short ones, a start of a JVM included."""

DRAIN_S = 120.0
QUIET_S = 8.0
"""How long nothing more may come at the end."""

ENDINGS = ("stop", "kill")
MOMENTS = {
    "ours after apache's": "trocket",
    "apache after ours": "apache",
}


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message that a broker delivered.

    Attributes:
      moment: "" for the first visit, or one of `MOMENTS`.
      popped: the delivery.
      is_again: it was acknowledged before.
      is_early: an earlier delivery was still invisible.
    """

    moment: str
    popped: Popped
    is_again: bool
    is_early: bool


@dataclass
class Record:
    """What happened so far.

    Attributes:
      deliveries: in order.
      acked: by body, the delivery that was acknowledged.
      visible_ms: when a message that is not acknowledged may come again, by body.
      ended: the visits that were completed, by moment: the number of messages not yet acked.
    """

    deliveries: list[Delivery] = field(default_factory=list)
    acked: dict[bytes, Popped] = field(default_factory=dict)
    visible_ms: dict[bytes, int] = field(default_factory=dict)
    ended: dict[str, int] = field(default_factory=dict)


class PopRoundTrip:
    """One round trip (see the module).

    Args:
      version: of Apache's broker.
      ending: of each visit but the last, one of ENDINGS.
      folder: for the store and the logs; `run` removes the store.

    Attributes:
      record: what happened.
    """

    def __init__(self, version: str, ending: str, folder: Path) -> None:
        self.record = Record()
        self._ending = ending
        self._store = folder / "store"
        self._clock = SystemClock()
        sizes = SIZES["small files"]
        self.ours = TrocketBroker(
            folder / "ours",
            store=self._store,
            broker_keys={**sizes, **KEEP_ALL, **KEYS, **OUR_KEYS},
        )
        self.apaches = apache_on_store(version, folder / "apaches", self._store, {**sizes, **KEYS})

    def run(self) -> PopRoundTrip:
        """Make all steps and return itself. Raises: whatever failed on the way."""
        try:
            self._begin()
            self._go_on()
            self._drain()
        finally:
            self.ours.close()
            self.apaches.close()
            shutil.rmtree(self._store, ignore_errors=True)
        return self

    # ---- the steps -----------------------------------------------------------------------

    def _begin(self) -> None:
        self.apaches.start_broker()
        with WireClient(self.apaches.broker_address) as client:
            client.create_topic(TOPIC, queue_count=QUEUE_COUNT)
            client.create_group(GROUP, consumeEnable=True)
            messages = [
                Outgoing(TOPIC, number % QUEUE_COUNT, b"%d" % number, f"UNIQ_KEY\1{number:032}\2")
                for number in range(COUNT)
            ]
            client.send_all(messages)
            for invisible_ms in (LONG_MS, SHORT_MS):
                check_complete(self._pop_half(client, "", invisible_ms))
            self._wait_saved()
        self._end(self.apaches)

    def _go_on(self) -> None:
        moment = "ours after apache's"
        self.ours.start_broker()
        with WireClient(self.ours.broker_address) as client:
            deadline_s = time.monotonic() + AGAIN_S
            owed = {
                each.popped.body
                for each in self.record.deliveries
                if each.popped.body not in self.record.acked
                and f" {SHORT_MS} " in each.popped.receipt
            }
            rounds = 0
            while time.monotonic() < deadline_s and (owed or rounds < 2):
                owed -= {each.body for each in self._pop_half(client, moment, LONG_MS)}
                rounds += 1
                self._pause(0.1)
            self._wait_saved()
            self.record.ended[moment] = len(owed)
        self._end(self.ours)

    def _drain(self) -> None:
        moment = "apache after ours"
        self.apaches.start_broker()
        with WireClient(self.apaches.broker_address) as client:
            deadline_s = time.monotonic() + DRAIN_S
            quiet_s = time.monotonic() + QUIET_S
            while time.monotonic() < min(deadline_s, quiet_s):
                for each in self._pop(client, moment, LONG_MS):
                    self._ack(client, each)
                if len(self.record.acked) < COUNT:
                    quiet_s = time.monotonic() + QUIET_S
                self._pause(0.1)
        self.record.ended[moment] = COUNT - len(self.record.acked)

    def _end(self, peer: ApacheCluster | TrocketBroker) -> None:
        if self._ending == "kill":
            peer.kill_broker()
        else:
            peer.stop_broker()

    def _wait_saved(self) -> None:
        """Wait until the file of offsets has those of all pops."""
        count = len(
            {each.popped.body for each in self.record.deliveries if not each.popped.is_retry}
        )
        deadline_s = time.monotonic() + SAVED_S
        while time.monotonic() < deadline_s and self._saved_count() < count:
            self._pause(0.1)
        self._pause(SETTLED_S)

    def _saved_count(self) -> int:
        """The number of messages of the topic before the saved offsets."""
        path = self._store / "config" / "consumerOffset.json"
        try:
            table, _, _ = parse_offsets(path.read_bytes())
        except (FileNotFoundError, ValueError):
            return 0  # not written yet, or half: Apache's writes in place
        return sum(table.get(f"{TOPIC}@{GROUP}", {}).values())

    # ---- consuming -----------------------------------------------------------------------

    def _pop_half(self, client: WireClient, moment: str, invisible_ms: int) -> list[Popped]:
        """Pop PART messages, in several pops, and acknowledge each second one."""
        found: list[Popped] = []
        for _ in range(2 * QUEUE_COUNT):
            found += self._pop(client, moment, invisible_ms, PART - len(found))
            if len(found) >= PART:
                break
        for each in found[::2]:
            self._ack(client, each)
        return found

    def _pop(
        self, client: WireClient, moment: str, invisible_ms: int, count: int = 32
    ) -> list[Popped]:
        now_ms = self._clock.wall_ms()
        record = self.record
        found = pop(client, GROUP, TOPIC, now_ms=now_ms, count=count, invisible_ms=invisible_ms)
        now_ms = self._clock.wall_ms()
        for each in found:
            is_early = now_ms < record.visible_ms.get(each.body, 0)
            record.deliveries.append(Delivery(moment, each, each.body in record.acked, is_early))
            record.visible_ms[each.body] = now_ms + invisible_ms
        return found

    def _ack(self, client: WireClient, each: Popped) -> None:
        ack(client, GROUP, each)
        self.record.acked[each.body] = each

    @staticmethod
    def _pause(seconds: float) -> None:
        threading.Event().wait(seconds)


def check_complete(found: Sequence[Popped]) -> None:
    """Check that a first pop got all that it asked for: with less, the checks would say nothing.

    Raises: PeerError: it did not.
    """
    if len(found) != PART:
        raise PeerError(f"{len(found)} messages were popped instead of {PART}")


Check = Callable[[Record, str], list[str]]


def nothing_is_lost(record: Record, moment: str) -> list[str]:
    """What was not acknowledged comes again."""
    missing = record.ended.get(moment)
    if missing is None:
        return ["this visit did not end"]
    return [f"{missing} messages did not come again"] if missing else []


def nothing_acked_comes_again(record: Record, moment: str) -> list[str]:
    """What was acknowledged does not come again."""
    return [
        f"{each.popped} was acknowledged by {record.acked[each.popped.body].receipt}"
        for each in _judged(record, moment)
        if each.is_again
    ]


def nothing_comes_early(record: Record, moment: str) -> list[str]:
    """What is invisible stays so after the hand-over."""
    return [
        f"{each.popped} came while it was invisible"
        for each in _judged(record, moment)
        if each.is_early
    ]


def _judged(record: Record, moment: str) -> list[Delivery]:
    """The deliveries of a visit without those that may be repeated.

    Apache's broker delivers timer messages of our store again, from the first one on that still
    waits (docs/quirks.md); so it revives messages again that ours revived.
    """
    revived: set[bytes] = set()
    if MOMENTS[moment] == "apache":
        revived = {each.popped.body for each in record.deliveries if each.popped.is_retry}
    return [
        each
        for each in record.deliveries
        if each.moment == moment and each.popped.body not in revived
    ]


CHECKS: Mapping[str, Check] = MappingProxyType(
    {
        "what was popped and not acked comes again": nothing_is_lost,
        "what was acked does not come again": nothing_acked_comes_again,
        "what is invisible stays invisible": nothing_comes_early,
    }
)
"""By their names in cells."""
