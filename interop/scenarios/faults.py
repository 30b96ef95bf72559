"""Scenarios that go on while something happens to the broker, and the judge of what they tell.

Pure. A program sends and consumes before, during and after a fault, repeating each send until it
is acknowledged, and tells everything: `Told`. With what the broker has afterwards, `Kept`, it is
judged here, once for all clients. How many sends failed and how often a message came differs from
run to run; the facts that are judged hold whatever the timing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec

from ..report.cells import NO_FAULT
from .table import (
    ALL,
    CLIENTS,
    FOUR_QUEUES,
    GO,
    JAVA,
    JAVA_42,
    LITE_PULL_IS_NEW,
    PYTHON,
    WITH_JAVA_42,
)

KEYS = 4
"""A step is one message of each key: body KEY/STEP, tag TKEY, key k-KEY/STEP, property step."""
SENT_BEFORE = SENT_AFTER = 20
TRIES = 3
LEVEL_MS = (1000, 5000)
"""What a delay level waits; keys take turns."""
COMMITTED_KEYS = frozenset({"0", "2"})
"""Whose transactions are committed (those of 2 when asked about); the others are rolled back."""
LISTED_MAX = 8


class Fault(StrEnum):
    """What happens."""

    NONE = NO_FAULT
    RESTART = "restart"
    """The broker is stopped in an orderly way and started again."""
    KILL = "kill"
    """The broker is killed with SIGKILL and started again."""
    NAMESRV_GONE = "namesrv-gone"
    """The name server is away for a while; the broker stays."""
    SLOW_NETWORK = "slow-network"
    """What goes to and fro is late, in small pieces, and connections are cut."""


ALL_FAULTS: tuple[str, ...] = tuple(Fault)
GENTLE = frozenset({Fault.NONE, Fault.NAMESRV_GONE})
"""Under these nothing is sent or handed out twice."""


class Send(StrEnum):
    """How a scenario sends."""

    SYNC = "sync"
    ASYNC = "async"
    BATCH = "batch"
    ORDERED = "ordered"
    DELAYED = "delayed"
    TRANSACTION = "transaction"


class Consume(StrEnum):
    """How a scenario consumes."""

    CONCURRENT = "concurrent"
    ORDERLY = "orderly"
    RETRY = "retry"
    """Each message is refused twice."""
    SQL = "sql"
    PULL = "pull"


RETRIED = {**FOUR_QUEUES, "%RETRY%{}": 1}
"""There from the start: a client may look for new topics only every 30 s."""


@dataclass(frozen=True)
class FaultScenario:
    """One way to send and to consume.

    Attributes: as `table.Scenario` has them, and
      left_out: clients that have the feature but cannot be asked for it, with the reason.
    """

    name: str
    send: Send
    consume: Consume
    clients: tuple[str, ...] = ALL
    topics: Mapping[str, int] = field(default_factory=lambda: FOUR_QUEUES)
    not_on: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def argument(self) -> str:
        """What a program is told: NAME:SEND:CONSUME."""
        return f"{self.name}:{self.send}:{self.consume}"

    def facts(self, fault: str) -> dict[str, Any]:
        """What must come out, with any client on any broker."""
        facts: dict[str, Any] = {
            "acknowledged": {"before": SENT_BEFORE, "after": SENT_AFTER},
            "sent_during": True,
            "lost": [],
            "not_stored": [],
            "never_sent": [],
            "changed": [],
            "left_behind": [],
        }
        if fault == Fault.NONE:
            del facts["sent_during"]
        if fault in GENTLE:
            facts["repeated"] = []
        if self.consume is Consume.ORDERLY:
            facts["overtaken"] = []
        if self.consume is Consume.RETRY:
            facts["tries"] = [list(range(TRIES))]
        if self.send is Send.DELAYED:
            facts["early"] = []
        if self.send is Send.TRANSACTION:
            facts["rolled_back_but_came"] = []
        return facts


FAULT_SCENARIOS = (
    FaultScenario("through_sync", Send.SYNC, Consume.CONCURRENT, CLIENTS),
    FaultScenario(
        "through_async",
        Send.ASYNC,
        Consume.CONCURRENT,
        WITH_JAVA_42,
        left_out={
            # Its program would end, with all other scenarios in it.
            GO: "this client panics when an asynchronous send times out (client.go:730)",
            # The next request takes the place of the send that is tried again, whose answer is
            # then nobody's: with Apache's brokers, too.
            JAVA_42: "this client gives an asynchronous send that it tries again the opaque id of"
            " its next request (RemotingCommand.createNewRequestId), and may forget the callback",
        },
    ),
    FaultScenario("through_batch", Send.BATCH, Consume.CONCURRENT, WITH_JAVA_42),
    FaultScenario("through_ordered", Send.ORDERED, Consume.ORDERLY, CLIENTS),
    FaultScenario("through_delayed", Send.DELAYED, Consume.CONCURRENT, CLIENTS),
    FaultScenario("through_transaction", Send.TRANSACTION, Consume.CONCURRENT),
    FaultScenario("through_retry", Send.SYNC, Consume.RETRY, WITH_JAVA_42, RETRIED),
    FaultScenario("through_sql", Send.SYNC, Consume.SQL, WITH_JAVA_42),
    FaultScenario(
        "through_pull",
        Send.SYNC,
        Consume.PULL,
        (*JAVA, GO, *PYTHON),
        not_on=LITE_PULL_IS_NEW,
    ),
)


class Received(msgspec.Struct, frozen=True, array_like=True):
    """A message as it came: `age_ms` is since its producer made it."""

    body: str
    tries: int
    tags: str | None
    keys: str
    step: str | None
    own_topic: bool
    age_ms: int


class Told(msgspec.Struct, frozen=True):
    """What a program tells.

    Attributes:
      acknowledged: bodies of sends that succeeded, in that order.
      counts: how many of them before, during and after the fault.
      failed: sends that failed and were repeated: "BODY: ERROR".
      received: everything that came, in its order.
    """

    acknowledged: list[str]
    counts: list[int]
    failed: list[str]
    received: list[Received]

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Told:
        """From a program's facts. Raises: ValueError: it told something else; it says where."""
        return msgspec.convert(facts, cls)


@dataclass(frozen=True)
class Kept:
    """What the broker has at the end.

    Attributes:
      bodies: of the scenario's topic.
      left_behind: "TOPIC/QUEUE: OFFSET of MAX" where the group is not at the queue's end.
    """

    bodies: Sequence[str]
    left_behind: Sequence[str] = ()


def judge(scenario: FaultScenario, fault: str, told: Told, kept: Kept) -> dict[str, Any]:
    """The facts, named as in `FaultScenario.facts`."""
    tried = {*told.acknowledged, *(text.partition(":")[0] for text in told.failed)}
    wanted = [body for body in told.acknowledged if _is_wanted(scenario, body)]
    last_try = TRIES - 1 if scenario.consume is Consume.RETRY else 0
    came = {one.body for one in told.received if one.tries >= last_try}
    before, during, after = (*told.counts, 0, 0, 0)[:3]
    facts: dict[str, Any] = {
        "acknowledged": {"before": before, "after": after},
        "lost": _some(body for body in wanted if body not in came),
        "not_stored": _some(set(wanted).difference(kept.bodies)),
        "never_sent": _some({one.body for one in told.received} - tried),
        "changed": _some(_changes(one) for one in told.received if _changes(one)),
        "left_behind": list(kept.left_behind),
    }
    if fault != Fault.NONE:
        facts["sent_during"] = during >= KEYS
    if fault in GENTLE:
        facts["repeated"] = _some(_repeated(told, kept))
    if scenario.consume is Consume.ORDERLY:
        facts["overtaken"] = _some(_overtaken(told.received))
    if scenario.consume is Consume.RETRY:
        facts["tries"] = _tries(told.received)
    if scenario.send is Send.DELAYED:
        facts["early"] = _some(f"{m.body} after {m.age_ms} ms" for m in told.received if _early(m))
    if scenario.send is Send.TRANSACTION:
        facts["rolled_back_but_came"] = _some(
            one.body for one in told.received if not _is_wanted(scenario, one.body)
        )
    return facts


def summary(told: Told, kept: Kept) -> str:
    """What differs from run to run, in one line."""
    stored = sum(times - 1 for times in Counter(kept.bodies).values())
    came = sum(times - 1 for times in _times_come(told).values())
    return (
        f"{len(told.acknowledged)} acknowledged, {len(told.failed)} sends failed,"
        f" {stored} stored again, {came} came again"
    )


def _is_wanted(scenario: FaultScenario, body: str) -> bool:
    return scenario.send is not Send.TRANSACTION or body.partition("/")[0] in COMMITTED_KEYS


def _times_come(told: Told) -> Counter[tuple[str, int]]:
    return Counter((one.body, one.tries) for one in told.received)


def _repeated(told: Told, kept: Kept) -> Iterable[str]:
    yield from (f"{body} stored" for body, times in Counter(kept.bodies).items() if times > 1)
    yield from (f"{body} came" for (body, _), times in _times_come(told).items() if times > 1)


def _changes(one: Received) -> str:
    key, _, step = one.body.partition("/")
    expected = (f"T{key}", f"k-{one.body}", step, True)
    found = (one.tags, one.keys, one.step, one.own_topic)
    return "" if found == expected else f"{one.body} came as {found}"


def _overtaken(received: Iterable[Received]) -> Iterable[str]:
    """Messages that came before an earlier one of their key had come; repeats count for nothing."""
    next_steps: dict[str, int] = defaultdict(int)
    for one in received:
        key, _, text = one.body.partition("/")
        step = int(text)
        if step > next_steps[key]:
            yield f"{one.body} before {key}/{next_steps[key]}"
        next_steps[key] = max(next_steps[key], step + 1)


def _tries(received: Iterable[Received]) -> list[list[int]]:
    """Each set of tries that some message had."""
    tries: dict[str, set[int]] = defaultdict(set)
    for one in received:
        tries[one.body].add(one.tries)
    return sorted({tuple(sorted(some)): sorted(some) for some in tries.values()}.values())


def _early(one: Received) -> bool:
    return one.age_ms < LEVEL_MS[int(one.body.partition("/")[0]) % len(LEVEL_MS)]


def _some(texts: Iterable[str]) -> list[str]:
    """The first few of them, sorted, and how many there are more."""
    found = sorted(texts)
    more = len(found) - LISTED_MAX
    return [*found[:LISTED_MAX], *([f"and {more} more"] if more > 0 else [])]
